//! What the handle knows of one group: its state, its index, and its newest entries in memory.
//!
//! Invariants:
//! - The tail ends where the index ends; an entry that is not written yet is in the tail.
//! - Records are written in the order of submission, so a place that comes back from the writer belongs to the entry
//!   that is there now, unless a truncation that waits to be written took its predecessor away.

use std::collections::VecDeque;

use bytes::Bytes;
use quorate_model::LogId;

use crate::index::{Index, Place};
use crate::options::Durability;
use crate::state::GroupState;

/// How many entries are dropped at a time while the state is locked.
const DROP_AT_ONCE: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) state: GroupState,
    pub(crate) durability: Durability,
    pub(crate) index: Index,
    tail: VecDeque<Bytes>,
    /// Bytes in the tail.
    pub(crate) tail_bytes: usize,
    /// Every entry before this index was written.
    written: u64,
    /// First removed indexes of the truncations that wait to be written.
    truncations: VecDeque<u64>,
}

impl Group {
    /// A group whose entries up to the last one are not there.
    pub(crate) fn starting_with(state: GroupState) -> Self {
        let mut group = Self::default();
        group.index.restart(state.next_index().unwrap_or_default());
        Self { state, ..group }
    }

    /// The index that comes next, if the log does not accept just any.
    pub(crate) fn next_index(&self) -> Option<u64> {
        self.state.next_index()
    }

    /// Adds an entry that has been found to be the next.
    pub(crate) fn append(&mut self, id: LogId, bytes: Bytes) {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.tail_bytes += bytes.len();
        self.tail.push_back(bytes);
        self.index_entry(id, Place { len, ..Place::default() });
    }

    /// Adds an entry that is on disk.
    pub(crate) fn append_written(&mut self, id: LogId, place: Place) {
        self.index_entry(id, place);
        self.written = id.index.saturating_add(1);
    }

    fn index_entry(&mut self, id: LogId, place: Place) {
        if self.index.is_empty() {
            self.index.restart(id.index);
        }
        self.index.push(id, place);
        self.state.last = Some(id);
    }

    /// The id of the last entry that a truncation to `to` keeps: `Err` if that one is unknown because it is purged.
    pub(crate) fn kept_by(&self, to: Option<u64>) -> Result<Option<LogId>, ()> {
        match (to, self.state.floor) {
            (None, None) => Ok(None),
            (Some(to), Some(floor)) if to == floor.index => Ok(Some(floor)),
            (Some(to), _) => self.id_at(to).map(Some).ok_or(()),
            (None, Some(_)) => Err(()),
        }
    }

    /// Removes all entries after `kept`.
    pub(crate) fn truncate(&mut self, kept: Option<LogId>) {
        let from = kept.map_or(0, |kept| kept.index.saturating_add(1));
        let removed = usize::try_from(self.index.next().saturating_sub(from.max(self.index.base()))).unwrap_or(0);
        for bytes in self.tail.drain(self.tail.len().saturating_sub(removed)..) {
            self.tail_bytes -= bytes.len();
        }
        self.index.truncate(from);
        self.written = self.written.min(from);
        self.state.last = kept;
    }

    /// Notes that the truncation just made waits to be written.
    pub(crate) fn await_truncation(&mut self, kept: Option<LogId>) {
        self.truncations.push_back(kept.map_or(0, |kept| kept.index.saturating_add(1)));
    }

    /// The oldest waiting truncation was written.
    pub(crate) fn truncation_written(&mut self) {
        self.truncations.pop_front();
    }

    /// An entry was written.
    pub(crate) fn entry_written(&mut self, index: u64, place: Place) {
        if index >= self.index.base() && self.truncations.iter().all(|from| index < *from) {
            self.index.set_place(index, place);
            self.written = index.saturating_add(1);
        }
    }

    /// Whether an entry up to this index waits to be written.
    pub(crate) fn has_unwritten(&self, upto: u64) -> bool {
        let first = self.written.max(self.index.base());
        first <= upto && first < self.index.next()
    }

    /// Moves the floor up, in constant time. Where the whole log goes, its tail is handed out to be dropped.
    pub(crate) fn purge(&mut self, upto: LogId) -> VecDeque<Bytes> {
        let all = self.index.next() <= upto.index.saturating_add(1);
        self.state.purge(upto);
        if !all {
            return VecDeque::new();
        }
        self.index.restart(upto.index.saturating_add(1));
        self.tail_bytes = 0;
        std::mem::take(&mut self.tail)
    }

    /// Forgets a bounded number of purged entries; returns whether that was all.
    pub(crate) fn trim(&mut self) -> bool {
        let Some(floor) = self.state.floor else { return true };
        let first = floor.index.saturating_add(1);
        let purged = usize::try_from(first.saturating_sub(self.tail_start())).unwrap_or(usize::MAX);
        self.drop_oldest(purged.min(DROP_AT_ONCE));
        self.index.trim(first.min(self.tail_start()));
        purged <= DROP_AT_ONCE
    }

    /// Drops up to `bytes` of written entries from memory, and at most a bounded number of them.
    pub(crate) fn shed(&mut self, bytes: usize) {
        let (mut shed, mut count) = (0, 0);
        let written = usize::try_from(self.written.saturating_sub(self.tail_start())).unwrap_or(0);
        for entry in self.tail.iter().take(written.min(DROP_AT_ONCE)) {
            if shed >= bytes {
                break;
            }
            shed += entry.len();
            count += 1;
        }
        self.drop_oldest(count);
    }

    fn drop_oldest(&mut self, count: usize) {
        for bytes in self.tail.drain(..count.min(self.tail.len())) {
            self.tail_bytes -= bytes.len();
        }
    }

    /// The first index that can be read, whether there is an entry or not.
    pub(crate) fn first(&self) -> u64 {
        self.state.floor.map_or(self.index.base(), |floor| floor.index.saturating_add(1))
    }

    pub(crate) fn id_at(&self, index: u64) -> Option<LogId> {
        match self.state.floor {
            Some(floor) if floor.index == index => Some(floor),
            Some(floor) if floor.index > index => None,
            _ => self.index.id_at(index),
        }
    }

    /// The index of the oldest entry in memory, or the one after the last.
    pub(crate) fn tail_start(&self) -> u64 {
        self.index.next().saturating_sub(self.tail.len() as u64)
    }

    /// The entries in memory from `index` on.
    pub(crate) fn tail_from(&self, index: u64) -> impl Iterator<Item = &Bytes> {
        let skip = usize::try_from(index.saturating_sub(self.tail_start())).unwrap_or(usize::MAX);
        self.tail.range(skip.min(self.tail.len())..)
    }
}
