//! One group as the handle sees it: its state, its index, and its newest entries in memory.
//!
//! Invariants:
//! - The tail ends where the index ends. Every entry that is not yet written is in the tail.
//! - Records are written in the order of submission. A place reported by the writer therefore belongs to the current
//!   entry at that index, unless a truncation that is still queued removed the entry that was written there.

use std::collections::VecDeque;

use bytes::Bytes;
use quorate_model::LogId;

use crate::index::{Index, Place};
use crate::options::Durability;
use crate::state::GroupState;

/// The maximum number of entries dropped at a time while the state is locked.
const DROP_AT_ONCE: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) state: GroupState,
    pub(crate) durability: Durability,
    pub(crate) index: Index,
    tail: VecDeque<Bytes>,
    /// Bytes in the tail.
    pub(crate) tail_bytes: usize,
    /// Every entry before this index has been written.
    written: u64,
    /// The first index removed by each truncation that is still queued.
    truncations: VecDeque<u64>,
}

impl Group {
    /// A group in this state without any entries: the next one follows `state.last`.
    pub(crate) fn starting_with(state: GroupState) -> Self {
        let mut group = Self::default();
        group.index.restart(state.next_index().unwrap_or_default());
        Self { state, ..group }
    }

    /// The index that the next entry must have, or `None` if any is accepted.
    pub(crate) fn next_index(&self) -> Option<u64> {
        self.state.next_index()
    }

    /// Adds an entry; the caller has checked that its index is the next.
    pub(crate) fn append(&mut self, id: LogId, bytes: Bytes) {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.tail_bytes += bytes.len();
        self.tail.push_back(bytes);
        self.index_entry(id, Place { len, ..Place::default() });
    }

    /// Adds an entry that is already on disk.
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

    /// The id of the last entry that a truncation to `to` keeps, or `Err` if its id is unknown because it is purged.
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

    /// Notes that the truncation just made is queued for writing.
    pub(crate) fn await_truncation(&mut self, kept: Option<LogId>) {
        self.truncations.push_back(kept.map_or(0, |kept| kept.index.saturating_add(1)));
    }

    /// Notes that the oldest queued truncation was written.
    pub(crate) fn truncation_written(&mut self) {
        self.truncations.pop_front();
    }

    /// Notes that an entry was written at `place`.
    pub(crate) fn entry_written(&mut self, index: u64, place: Place) {
        if index >= self.index.base() && self.truncations.iter().all(|from| index < *from) {
            self.index.set_place(index, place);
            self.written = index.saturating_add(1);
        }
    }

    /// Whether any entry up to this index is still unwritten.
    pub(crate) fn has_unwritten(&self, upto: u64) -> bool {
        let first = self.written.max(self.index.base());
        first <= upto && first < self.index.next()
    }

    /// Raises the floor, in constant time. If this purges the whole log, returns the tail, which the caller drops
    /// later.
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

    /// Drops a bounded number of purged entries from memory; returns whether none is left.
    pub(crate) fn trim(&mut self) -> bool {
        let Some(floor) = self.state.floor else { return true };
        let first = floor.index.saturating_add(1);
        let purged = usize::try_from(first.saturating_sub(self.tail_start())).unwrap_or(usize::MAX);
        self.drop_oldest(purged.min(DROP_AT_ONCE));
        self.index.trim(first.min(self.tail_start()));
        purged <= DROP_AT_ONCE
    }

    /// Drops the oldest written entries from memory until `bytes` bytes are freed, but at most a bounded number of
    /// them.
    pub(crate) fn evict(&mut self, bytes: usize) {
        let (mut freed, mut count) = (0, 0);
        let written = usize::try_from(self.written.saturating_sub(self.tail_start())).unwrap_or(0);
        for entry in self.tail.iter().take(written.min(DROP_AT_ONCE)) {
            if freed >= bytes {
                break;
            }
            freed += entry.len();
            count += 1;
        }
        self.drop_oldest(count);
    }

    fn drop_oldest(&mut self, count: usize) {
        for bytes in self.tail.drain(..count.min(self.tail.len())) {
            self.tail_bytes -= bytes.len();
        }
    }

    /// The first index that can be read, whether or not an entry exists there.
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

    /// The index of the oldest entry in memory, or the next index if none is in memory.
    pub(crate) fn tail_start(&self) -> u64 {
        self.index.next().saturating_sub(self.tail.len() as u64)
    }

    /// The entries in memory from `index` on.
    pub(crate) fn tail_from(&self, index: u64) -> impl Iterator<Item = &Bytes> {
        let skip = usize::try_from(index.saturating_sub(self.tail_start())).unwrap_or(usize::MAX);
        self.tail.range(skip.min(self.tail.len())..)
    }
}
