//! The writer: takes what is queued, writes it as one frame, syncs, and runs the completions.
//!
//! Invariants:
//! - Frames are written in the order of submission, each behind the one before; a segment is synced before the next one
//!   is begun, and the header of that is synced before its first frame is written.
//! - After an error nothing is written any more.

use std::sync::Arc;

use quorate_env::Instant;
use quorate_env::mutant::Mutant;
use quorate_env::worker::{Signal, Step, Worker};
use quorate_model::GroupId;

use crate::batch::Batch;
use crate::builder::FrameBuilder;
use crate::error::WalError;
use crate::options::{FRAME_ALIGN, FULL_DISK_DELAY, LAZY_DELAY, PAGE, UNSYNCED_BYTES};
use crate::record::Kind;
use crate::segment::Segment;
use crate::shared::{Shared, State};
use crate::state::LogState;

mod rotate;

pub(crate) use rotate::{check_header, make_file};

/// The active part of a log that writes. Run it as a worker with [`WalWriter::signal`]; when it is dropped, the log
/// stops and everything that waits is told so.
#[derive(Debug)]
pub struct WalWriter {
    pub(crate) shared: Arc<Shared>,
    builder: FrameBuilder,
    /// What all frames written so far have led to.
    logged: LogState,
    active: Arc<Segment>,
    /// Where the next frame goes.
    offset: u64,
    /// Whether the active segment holds anything but its header and copies.
    is_used: bool,
    next_ordinal: u32,
    sequence: u64,
    durable: u64,
    unsynced: u64,
    /// Purge floors in frames that are not synced yet.
    floors: Vec<(GroupId, u64)>,
    /// A batch that waits for space on the disk.
    held: Option<Batch>,
    nap: Nap,
}

/// What the writer knows about its last sleep: records that nobody waits for are written when it was not disturbed.
#[derive(Debug, Default)]
struct Nap {
    /// It sleeps for a bounded time.
    timed: bool,
    /// Its bell may have been rung before it fell asleep.
    disturbed: bool,
    /// How often the bell had been rung when it fell asleep.
    rings: u64,
    /// Something was written since.
    worked: bool,
}

enum Work {
    Batch(Batch),
    Sync,
    Sleep(Step),
}

/// Where a freshly opened log goes on.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) logged: LogState,
    pub(crate) active: Arc<Segment>,
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
}

impl WalWriter {
    pub(crate) fn new(shared: Arc<Shared>, start: Start) -> Self {
        let Start { logged, active, offset, sequence } = start;
        Self {
            shared,
            builder: FrameBuilder::default(),
            logged,
            next_ordinal: active.epoch.ordinal.saturating_add(1),
            active,
            offset,
            is_used: false,
            sequence,
            durable: sequence,
            unsynced: 0,
            floors: Vec::new(),
            held: None,
            nap: Nap::default(),
        }
    }

    /// The bell that the log rings when there is something to write.
    pub fn signal(&self) -> &Signal {
        &self.shared.writer_bell
    }

    fn advance(&mut self) -> Result<Step, WalError> {
        let tidied = self.tidy_memory();
        let batch = match self.held.take() {
            Some(batch) => batch,
            None => match self.next_work()? {
                Work::Batch(batch) => batch,
                Work::Sync => {
                    self.sync()?;
                    return Ok(Step::Again);
                }
                Work::Sleep(_) if !tidied => return Ok(Step::Again),
                Work::Sleep(step) => return Ok(step),
            },
        };
        // Kept here, so that an error finds it and tells its completions.
        self.held = Some(batch);
        if self.write_held()? {
            return self.finish_held();
        }
        self.shared.lock().disk_full = true;
        Ok(Step::WaitFor(FULL_DISK_DELAY))
    }

    /// Chooses what to do next.
    fn next_work(&mut self) -> Result<Work, WalError> {
        let mut guard = self.shared.lock_working()?;
        let state = &mut *guard;
        let rested = self.nap.timed && !self.nap.disturbed && self.nap.rings == state.rings;
        if state.queue.is_urgent() || (rested && !state.queue.is_empty()) {
            let batch = Batch::new(state.queue.take(self.shared.options.batch_bytes));
            state.in_flight = batch.cost();
            state.writer_looks = true;
            self.nap = Nap { timed: false, worked: true, ..self.nap };
            return Ok(Work::Batch(batch));
        }
        if rested && self.unsynced > 0 {
            return Ok(Work::Sync);
        }
        let disturbed = self.nap.rings != state.rings;
        let idle = state.queue.is_empty() && self.unsynced == 0;
        let timed = !idle || (self.nap.worked && !rested);
        self.nap = Nap { timed, disturbed, rings: state.rings, worked: self.nap.worked && !rested };
        state.writer_looks = timed;
        Ok(Work::Sleep(if timed { Step::WaitFor(LAZY_DELAY) } else { Step::Wait }))
    }

    /// Writes the frame of the held batch and syncs it if it has to be. Returns whether there was space for it on the
    /// disk; otherwise nothing of it was written.
    fn write_held(&mut self) -> Result<bool, WalError> {
        let Some(batch) = &mut self.held else { return Ok(true) };
        let (needs_sync, is_cut) = (batch.needs_sync(), batch.is_cut());
        self.builder.clear();
        let offsets =
            batch.items().iter().map(|item| item.as_record().map_or(0, |record| self.builder.push(&record))).collect();
        batch.set_offsets(offsets);
        if is_cut && self.is_used {
            return self.begin_segment(0);
        } else if !self.builder.is_empty() {
            let len = self.builder.pack();
            let align = if needs_sync { PAGE } else { FRAME_ALIGN };
            let end = |offset: u64| offset.saturating_add(len).next_multiple_of(align);
            if end(self.offset) > self.active.len && !self.begin_segment(end(0))? {
                return Ok(false);
            }
            self.write_frame(end(self.offset))?;
        }
        if needs_sync && !Mutant::AcknowledgedBeforeSync.is_on() {
            self.sync()?;
        }
        Ok(true)
    }

    /// Writes the frame that was built, padded so that it reaches to `end`.
    fn write_frame(&mut self, end: u64) -> Result<(), WalError> {
        let Some(batch) = &self.held else { return Ok(()) };
        let span = end.saturating_sub(self.offset);
        let sequence = self.sequence.saturating_add(1);
        let epoch = self.active.epoch;
        let bytes = self.builder.seal(epoch, sequence, self.durable, span);
        let file = &self.active.file;
        // What goes past the page cache takes its neighbours from there: where entries are not synced, the next small
        // frame would have to read them first.
        let is_direct = batch.has_synced_entries();
        let written = if is_direct { file.write_direct(bytes, self.offset) } else { file.write_at(bytes, self.offset) };
        written.map_err(WalError::io("write", &self.active.path))?;
        batch.apply_to(&mut self.logged);
        let purges = batch.items().iter().filter_map(|item| item.as_record()).filter(|r| r.kind == Kind::Purge);
        self.floors.extend(purges.map(|record| (record.group, record.id.index)));
        let frame = u32::try_from(self.offset).unwrap_or(u32::MAX);

        let mut guard = self.shared.lock();
        let state = &mut *guard;
        state.note_written(batch, epoch.ordinal, frame);
        state.sequence = sequence;
        state.last_frame = (epoch.ordinal, self.offset);
        state.counters.frames += 1;
        state.counters.bytes_written += span;
        self.sequence = sequence;
        self.unsynced += span;
        self.offset += span;
        self.is_used = true;
        if self.offset > self.active.len / 2 && !state.wants_spare {
            (state.wants_spare, state.sheds_spares) = (true, false);
            self.shared.keeper_bell.wake();
        }
        let waiters = state.take_waiters();
        drop(guard);
        waiters.into_iter().for_each(|waiter| (waiter.done)(Ok(())));
        Ok(())
    }

    /// Makes everything written durable.
    fn sync(&mut self) -> Result<(), WalError> {
        if self.unsynced == 0 {
            return Ok(());
        }
        let begun = Instant::now();
        let synced = self.active.file.sync_data().map_err(WalError::io("sync", &self.active.path));
        if !Mutant::SyncErrorIgnored.is_on() {
            synced?;
        }
        self.shared.metrics.synced(begun);
        (self.unsynced, self.durable) = (0, self.sequence);
        self.offset = self.offset.next_multiple_of(PAGE);
        let mut state = self.shared.lock();
        state.durable = self.durable;
        state.counters.syncs += 1;
        if !self.floors.is_empty() {
            for (group, floor) in self.floors.drain(..) {
                let known = state.durable_floors.entry(group).or_default();
                *known = floor.max(*known);
            }
            self.shared.keeper_bell.wake();
        }
        Ok(())
    }

    /// Runs the completions of the held batch, now that it is where it has to be.
    fn finish_held(&mut self) -> Result<Step, WalError> {
        let Some(batch) = self.held.take() else { return Ok(Step::Again) };
        {
            let mut state = self.shared.lock();
            (state.in_flight, state.disk_full) = (0, false);
        }
        let closes = batch.closes();
        if closes {
            self.shared.stop(WalError::Closed);
        }
        batch.complete(&Ok(()));
        if closes {
            return Ok(Step::Done);
        }
        if self.unsynced > UNSYNCED_BYTES {
            self.sync()?;
        }
        Ok(Step::Again)
    }

    /// Drops purged entries and what memory holds beyond its bound, a bounded number at a time; returns whether that
    /// was all.
    fn tidy_memory(&self) -> bool {
        let mut guard = self.shared.lock();
        let State { groups, to_trim, garbage, .. } = &mut *guard;
        to_trim.retain(|group| groups.get_mut(group).is_some_and(|group| !group.trim()));
        let garbage = std::mem::take(garbage);
        guard.shed_tails(self.shared.options.tail_bytes);
        let all = guard.to_trim.is_empty();
        drop(guard);
        drop(garbage);
        all
    }

    /// Tells everyone who waits that the log has stopped.
    fn fail(&mut self, error: WalError) {
        self.shared.stop(error);
        let (items, waiters, error) = {
            let mut state = self.shared.lock();
            state.in_flight = 0;
            let waiters = std::mem::take(&mut state.waiters);
            (state.queue.take_all(), waiters, state.stopped.clone().unwrap_or(WalError::Closed))
        };
        waiters.into_iter().for_each(|waiter| (waiter.done)(Err(error.clone())));
        if let Some(batch) = self.held.take() {
            batch.complete(&Err(error.clone()));
        }
        items.into_iter().filter_map(|item| item.done).for_each(|done| done(Err(error.clone())));
    }
}

impl Worker for WalWriter {
    fn run_once(&mut self) -> Step {
        self.advance().unwrap_or_else(|error| {
            self.fail(error);
            Step::Done
        })
    }

    fn is_urgent(&self) -> bool {
        true
    }
}

impl Drop for WalWriter {
    fn drop(&mut self) {
        self.fail(WalError::Closed);
    }
}
