//! What the handles, the writer and the keeper share.
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

/// What the parts of a log share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) options: WalOptions,
    pub(crate) writer_bell: Signal,
    pub(crate) keeper_bell: Signal,
    pub(crate) cache: FrameCache,
    pub(crate) metrics: WalMetrics,
    state: Mutex<State>,
    _lock: Box<dyn DirLock>,
}

/// A segment and what must be purged before it may go.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) segment: Arc<Segment>,
    /// The highest index of each group's entries in it.
    pub(crate) highest: BTreeMap<GroupId, u64>,
}

/// Figures that only ever rise.
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
    /// The boot id of now; empty where it can't be read.
    pub(crate) boot: Bytes,
    /// The machine was restarted without a clean stop, and nobody has dealt with that yet.
    pub(crate) rebooted: bool,
    pub(crate) queue: Queue,
    pub(crate) waiters: Vec<Waiter>,
    /// Bytes on their way through the writer.
    pub(crate) in_flight: usize,
    /// By ordinal; the last is the active one.
    pub(crate) segments: BTreeMap<u32, Live>,
    pub(crate) spares: Vec<Spare>,
    /// Purge floors that survive power loss.
    pub(crate) durable_floors: BTreeMap<GroupId, u64>,
    /// Memory to be dropped by the writer.
    pub(crate) garbage: Vec<VecDeque<Bytes>>,
    /// Groups with purged entries that are still in memory.
    pub(crate) to_trim: Vec<GroupId>,
    /// How often the writer's bell was rung.
    pub(crate) rings: u64,
    /// The writer will look by itself before long, so records that nobody waits for need not ring.
    pub(crate) writer_looks: bool,
    /// The active segment is more than half full: a spare will be needed.
    pub(crate) wants_spare: bool,
    /// The log is idle: spares may go.
    pub(crate) sheds_spares: bool,
    /// A segment could not be made because the disk is full.
    pub(crate) disk_full: bool,
    pub(crate) sequence: u64,
    pub(crate) durable: u64,
    /// Where the last frame begins: segment and offset.
    pub(crate) last_frame: (u32, u64),
    pub(crate) counters: Counters,
    /// Nothing more is accepted, but the writer still works.
    pub(crate) closing: bool,
    /// Why nothing is done any more.
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
            writer_bell: Signal::new(),
            keeper_bell: Signal::new(),
            cache: FrameCache::default(),
            metrics: WalMetrics::default(),
            state: Mutex::new(state),
            _lock: lock,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The state, if the log still works.
    pub(crate) fn lock_working(&self) -> Result<MutexGuard<'_, State>, WalError> {
        let state = self.lock();
        match &state.stopped {
            Some(error) => Err(error.clone()),
            None => Ok(state),
        }
    }

    /// The state, if the log still accepts something of `cost` bytes.
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

    /// Ends all work with `error`, unless it has ended before, and wakes the active parts to notice.
    pub(crate) fn stop(&self, error: WalError) {
        self.lock().stopped.get_or_insert(error);
        self.writer_bell.wake();
        self.keeper_bell.wake();
    }

    /// Queues an item.
    pub(crate) fn submit(&self, state: &mut State, item: Item) {
        let urgent = item.need > crate::queue::Need::Lazy;
        state.queue.push(item);
        self.ring(state, urgent);
    }

    /// Lets the writer know, if it would not look by itself.
    pub(crate) fn ring(&self, state: &mut State, urgent: bool) {
        if urgent || !state.writer_looks {
            state.rings = state.rings.wrapping_add(1);
            self.writer_bell.wake();
        }
    }
}

impl State {
    pub(crate) fn group(&mut self, group: GroupId) -> &mut Group {
        self.groups.entry(group).or_default()
    }

    /// Bytes that wait to be written or synced.
    pub(crate) fn pending(&self) -> usize {
        self.queue.bytes().saturating_add(self.in_flight)
    }

    /// Notes that the entries of a frame can be read from the disk.
    pub(crate) fn note_written(&mut self, batch: &Batch, ordinal: u32, frame: u32) {
        for (item, place) in batch.placed(ordinal, frame) {
            let Some(record) = item.as_record() else { continue };
            match record.kind {
                Kind::Entry => {
                    self.group(record.group).entry_written(record.id.index, place);
                    if let Some(live) = self.segments.get_mut(&ordinal) {
                        let highest = live.highest.entry(record.group).or_default();
                        *highest = (*highest).max(record.id.index);
                    }
                }
                Kind::Truncate => self.group(record.group).truncation_written(),
                _ => {}
            }
        }
    }

    /// Takes out those who need not wait any more.
    pub(crate) fn take_waiters(&mut self) -> Vec<Waiter> {
        let groups = &self.groups;
        let waits = |waiter: &Waiter| groups.get(&waiter.group).is_some_and(|group| group.has_unwritten(waiter.upto));
        self.waiters.extract_if(.., |waiter| !waits(waiter)).collect()
    }

    /// Takes what is in memory beyond `limit` bytes off the largest tails.
    pub(crate) fn shed_tails(&mut self, limit: usize) {
        let total: usize = self.groups.values().map(|group| group.tail_bytes).sum();
        let Some(excess) = total.checked_sub(limit).filter(|excess| *excess > 0) else { return };
        if let Some(largest) = self.groups.values_mut().max_by_key(|group| group.tail_bytes) {
            largest.shed(excess);
        }
    }

    /// Takes the oldest segment out if none of its entries is needed any more.
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
