//! The writer: takes the queued items, writes them as one frame, syncs, and runs the completions.
//!
//! Invariants:
//! - Frames are written in the order of submission, at increasing offsets. A segment is synced before the next one is
//!   begun, and the header of the next one is synced before its first frame is written.
//! - After an error nothing more is written.

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

/// The worker that writes the log. Run it with [`WalWriter::signal`]. When it is dropped, the log stops and all waiting
/// completions fail.
#[derive(Debug)]
pub struct WalWriter {
    pub(crate) shared: Arc<Shared>,
    builder: FrameBuilder,
    /// The state that all frames written so far have produced.
    logged: LogState,
    active: Arc<Segment>,
    /// The offset of the next frame.
    offset: u64,
    /// Whether this writer has written a frame to the active segment.
    is_used: bool,
    next_ordinal: u32,
    sequence: u64,
    durable: u64,
    unsynced: u64,
    /// Purge floors in frames that are not yet synced.
    floors: Vec<(GroupId, u64)>,
    /// The batch that is being written, or that waits for disk space.
    held: Option<Batch>,
    last_sleep: LastSleep,
}

/// The writer's last sleep. Lazy records are written after a timed sleep in which the writer was not woken.
#[derive(Debug, Default)]
struct LastSleep {
    /// The sleep had a timeout.
    timed: bool,
    /// A wake from before the sleep may have cut it short.
    disturbed: bool,
    /// How often the writer had been woken when it went to sleep.
    wakes: u64,
    /// Something was written since the writer was last idle.
    worked: bool,
}

enum Work {
    Batch(Batch),
    Sync,
    Sleep(Step),
}

/// The position at which a newly opened log continues.
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
            last_sleep: LastSleep::default(),
        }
    }

    /// The signal that wakes the writer when there is something to write.
    pub fn signal(&self) -> &Signal {
        &self.shared.writer_signal
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
        // Stored here so that `fail` can fail its completions after an error.
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
        let undisturbed =
            self.last_sleep.timed && !self.last_sleep.disturbed && self.last_sleep.wakes == state.writer_wakes;
        if state.queue.is_urgent() || (undisturbed && !state.queue.is_empty()) {
            let batch = Batch::new(state.queue.take(self.shared.options.batch_bytes));
            state.in_flight = batch.cost();
            state.writer_will_check = true;
            self.last_sleep = LastSleep { timed: false, worked: true, ..self.last_sleep };
            return Ok(Work::Batch(batch));
        }
        if undisturbed && self.unsynced > 0 {
            return Ok(Work::Sync);
        }
        let disturbed = self.last_sleep.wakes != state.writer_wakes;
        let idle = state.queue.is_empty() && self.unsynced == 0;
        let timed = !idle || (self.last_sleep.worked && !undisturbed);
        self.last_sleep =
            LastSleep { timed, disturbed, wakes: state.writer_wakes, worked: self.last_sleep.worked && !undisturbed };
        state.writer_will_check = timed;
        Ok(Work::Sleep(if timed { Step::WaitFor(LAZY_DELAY) } else { Step::Wait }))
    }

    /// Writes the frame of the held batch and syncs it if required. Returns `false` if the disk was full; nothing of
    /// the frame was written then.
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

    /// Writes the built frame, padded so that it ends at `end`.
    fn write_frame(&mut self, end: u64) -> Result<(), WalError> {
        let Some(batch) = &self.held else { return Ok(()) };
        let span = end.saturating_sub(self.offset);
        let sequence = self.sequence.saturating_add(1);
        let epoch = self.active.epoch;
        let bytes = self.builder.seal(epoch, sequence, self.durable, span);
        let file = &self.active.file;
        // A direct write evicts its pages from the page cache. If entries are not synced, the next small frame would
        // first have to read its page back.
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
            (state.wants_spare, state.releases_spares) = (true, false);
            self.shared.keeper_signal.wake();
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
            self.shared.keeper_signal.wake();
        }
        Ok(())
    }

    /// Runs the completions of the held batch, which is now as durable as required.
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

    /// Drops purged entries, and entries beyond the limit on memory, a bounded number at a time. Returns whether no
    /// purged entry is left.
    fn tidy_memory(&self) -> bool {
        let mut guard = self.shared.lock();
        let State { groups, to_trim, garbage, .. } = &mut *guard;
        to_trim.retain(|group| groups.get_mut(group).is_some_and(|group| !group.trim()));
        let garbage = std::mem::take(garbage);
        guard.evict_tails(self.shared.options.tail_bytes);
        let all = guard.to_trim.is_empty();
        drop(guard);
        drop(garbage);
        all
    }

    /// Stops the log and fails all waiting completions.
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
