//! The state that the handles, the writer and the keeper share.
//!
//! Invariant: one mutex guards all state, and it is never held during I/O or while a completion runs.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use quorate_env::disk::{DirLock, Disk};
use quorate_env::lock;
use quorate_env::worker::Signal;
use quorate_model::GroupId;

use crate::batch::Batch;
use crate::error::WalError;
use crate::group::Group;
use crate::metrics::WalMetrics;
use crate::options::WalOptions;
use crate::queue::{Item, Queue, Waiter};
use crate::read::FrameCache;
use crate::record::Kind;
use crate::segment::{Segment, Spare};

/// The data shared by the parts of a log.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) options: WalOptions,
    pub(crate) writer_signal: Signal,
    pub(crate) keeper_signal: Signal,
    pub(crate) cache: FrameCache,
    pub(crate) metrics: WalMetrics,
    state: Mutex<State>,
    _lock: Box<dyn DirLock>,
}

/// A segment, and what must be purged before it may be removed.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) segment: Arc<Segment>,
    /// The highest index of each group that the segment holds.
    highest: BTreeMap<GroupId, u64>,
    /// The total size of the entries that were written to it, of all groups, in bytes.
    entry_bytes: u64,
}

impl Live {
    /// A segment without entries.
    pub(crate) fn new(segment: Arc<Segment>) -> Self {
        Self { segment, highest: BTreeMap::new(), entry_bytes: 0 }
    }

    /// Notes that the segment holds an entry of `len` bytes.
    pub(crate) fn note_entry(&mut self, group: GroupId, index: u64, len: usize) {
        let highest = self.highest.entry(group).or_default();
        *highest = index.max(*highest);
        self.entry_bytes = self.entry_bytes.saturating_add(len as u64);
    }
}

/// Counters since the log was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) frames: u64,
    pub(crate) syncs: u64,
    pub(crate) bytes_written: u64,
    pub(crate) segments_begun: u64,
    pub(crate) segments_recycled: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) groups: BTreeMap<GroupId, Group>,
    pub(crate) identity: Option<Bytes>,
    /// The machine's current boot id; empty if it can't be read.
    pub(crate) boot: Bytes,
    /// The machine was restarted without a clean close of the log, and the caller has not yet accepted that.
    pub(crate) rebooted: bool,
    pub(crate) queue: Queue,
    pub(crate) waiters: Vec<Waiter>,
    /// Bytes of the batch that the writer is working on.
    pub(crate) in_flight: usize,
    /// Keyed by ordinal; the last one is the active segment.
    pub(crate) segments: BTreeMap<u32, Live>,
    pub(crate) spares: Vec<Spare>,
    /// Purge floors that are synced and so survive a power loss.
    pub(crate) durable_floors: BTreeMap<GroupId, u64>,
    /// Purged entries, which the writer drops outside the lock.
    pub(crate) garbage: Vec<VecDeque<Bytes>>,
    /// Groups with purged entries that are still in memory.
    pub(crate) to_trim: Vec<GroupId>,
    /// How often the writer was woken.
    pub(crate) writer_wakes: u64,
    /// The writer checks the queue soon without being woken, so lazy records need not wake it.
    pub(crate) writer_will_check: bool,
    /// The active segment is more than half full, so a spare will be needed.
    pub(crate) wants_spare: bool,
    /// The log is idle, so the keeper removes the spares.
    pub(crate) releases_spares: bool,
    /// A segment could not be made because the disk is full.
    pub(crate) disk_full: bool,
    pub(crate) sequence: u64,
    pub(crate) durable: u64,
    /// The location of the last frame: segment and offset.
    pub(crate) last_frame: (u32, u64),
    pub(crate) counters: Counters,
    /// A clean close was submitted: nothing more is accepted, but the writer finishes the queue.
    pub(crate) closing: bool,
    /// The error that stopped the log.
    pub(crate) stopped: Option<WalError>,
}

impl Shared {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        options: WalOptions,
        lock: Box<dyn DirLock>,
        state: State,
    ) -> Self {
        Self {
            disk,
            dir,
            options,
            writer_signal: Signal::new(),
            keeper_signal: Signal::new(),
            cache: FrameCache::default(),
            metrics: WalMetrics::default(),
            state: Mutex::new(state),
            _lock: lock,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Locks the state, or returns the error that stopped the log.
    pub(crate) fn lock_working(&self) -> Result<MutexGuard<'_, State>, WalError> {
        let state = self.lock();
        match &state.stopped {
            Some(error) => Err(error.clone()),
            None => Ok(state),
        }
    }

    /// Locks the state if the log accepts another `cost` bytes. Exceeding the limit on pending bytes stops the log.
    pub(crate) fn lock_accepting(&self, cost: usize) -> Result<MutexGuard<'_, State>, WalError> {
        let state = self.lock_working()?;
        if state.closing {
            return Err(WalError::Closed);
        }
        let pending = state.pending().saturating_add(cost);
        if pending > self.options.pending_limit {
            let error = WalError::Overrun { pending, limit: self.options.pending_limit };
            drop(state);
            self.stop(error.clone());
            return Err(error);
        }
        Ok(state)
    }

    /// Stops the log with `error`, unless it has already stopped, and wakes the writer and the keeper.
    pub(crate) fn stop(&self, error: WalError) {
        self.lock().stopped.get_or_insert(error);
        self.writer_signal.wake();
        self.keeper_signal.wake();
    }

    /// Queues an item and wakes the writer if necessary.
    pub(crate) fn submit(&self, state: &mut State, item: Item) {
        let urgent = item.need > crate::queue::Need::Lazy;
        state.queue.push(item);
        self.wake_writer(state, urgent);
    }

    /// Wakes the writer, unless the item is lazy and the writer checks the queue soon anyway.
    pub(crate) fn wake_writer(&self, state: &mut State, urgent: bool) {
        if urgent || !state.writer_will_check {
            state.writer_wakes = state.writer_wakes.wrapping_add(1);
            self.writer_signal.wake();
        }
    }
}

impl State {
    pub(crate) fn group(&mut self, group: GroupId) -> &mut Group {
        self.groups.entry(group).or_default()
    }

    /// The number of bytes that wait to be written or synced.
    pub(crate) fn pending(&self) -> usize {
        self.queue.bytes().saturating_add(self.in_flight)
    }

    /// Records where the entries of a written frame can be read from the disk.
    pub(crate) fn note_written(&mut self, batch: &Batch, ordinal: u32, frame: u32) {
        for (item, place) in batch.placed(ordinal, frame) {
            let Some(record) = item.as_record() else { continue };
            match record.kind {
                Kind::Entry => {
                    self.group(record.group).entry_written(record.id.index, place);
                    if let Some(live) = self.segments.get_mut(&ordinal) {
                        live.note_entry(record.group, record.id.index, record.bytes.len());
                    }
                }
                Kind::Truncate => self.group(record.group).truncation_written(),
                _ => {}
            }
        }
    }

    /// Takes the waiters whose entries are all written.
    pub(crate) fn take_waiters(&mut self) -> Vec<Waiter> {
        let groups = &self.groups;
        let waits = |waiter: &Waiter| groups.get(&waiter.group).is_some_and(|group| group.has_unwritten(waiter.upto));
        self.waiters.extract_if(.., |waiter| !waits(waiter)).collect()
    }

    /// Drops entries of the largest tail if the tails together exceed `limit` bytes.
    pub(crate) fn evict_tails(&mut self, limit: usize) {
        let total: usize = self.groups.values().map(|group| group.tail_bytes).sum();
        let Some(excess) = total.checked_sub(limit).filter(|excess| *excess > 0) else { return };
        if let Some(largest) = self.groups.values_mut().max_by_key(|group| group.tail_bytes) {
            largest.evict(excess);
        }
    }

    /// The highest index of a group in the segments that at least `bytes` bytes of entries follow, of whichever groups.
    pub(crate) fn index_before_newest(&self, group: GroupId, bytes: u64) -> Option<u64> {
        let mut following = 0_u64;
        let mut highest = None;
        for live in self.segments.values().rev() {
            if following >= bytes {
                highest = highest.max(live.highest.get(&group).copied());
            }
            following = following.saturating_add(live.entry_bytes);
        }
        highest
    }

    /// Takes out the oldest segment if all of its entries are durably purged and a later segment exists.
    pub(crate) fn take_dead_segment(&mut self) -> Option<Arc<Segment>> {
        let oldest = self.segments.first_entry()?;
        let dead = oldest
            .get()
            .highest
            .iter()
            .all(|(group, highest)| self.durable_floors.get(group).is_some_and(|floor| floor >= highest));
        if self.segments.len() < 2 || !dead {
            return None;
        }
        self.segments.pop_first().map(|(_, live)| live.segment)
    }
}
