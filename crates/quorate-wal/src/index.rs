//! The index of a group's entries: 24 bytes per entry, with terms and leaders stored as runs.
//!
//! Invariant: slots are contiguous from `base`; `runs` cover at least the slots, in order.

use std::collections::VecDeque;

use quorate_model::{LogId, NodeId};

/// The location of an entry's bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) ordinal: u32,
    /// The offset of its frame in the segment.
    pub(crate) frame: u32,
    /// The offset of its bytes in the frame's unpacked body.
    pub(crate) at: u32,
    pub(crate) len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    place: Place,
    /// The total size of all entries up to this one, counted from an arbitrary earlier point.
    end: u64,
}

/// Consecutive entries that one leader proposed in one term.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: u64,
    term: u64,
    node: NodeId,
}

/// The index of a group.
#[derive(Debug, Default)]
pub(crate) struct Index {
    base: u64,
    slots: VecDeque<Slot>,
    runs: VecDeque<Run>,
    /// The `end` that a slot before the first would have.
    start: u64,
}

impl Index {
    /// The index of the first slot, or the one that it will have.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The index after that of the last slot.
    pub(crate) fn next(&self) -> u64 {
        self.base.saturating_add(self.slots.len() as u64)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Removes everything and starts again at `base`.
    pub(crate) fn restart(&mut self, base: u64) {
        self.start = self.slots.back().map_or(self.start, |slot| slot.end);
        self.slots.clear();
        self.runs.clear();
        self.base = base;
    }

    /// Adds the next entry, whose index is `self.next()`.
    pub(crate) fn push(&mut self, id: LogId, place: Place) {
        let end = self.slots.back().map_or(self.start, |slot| slot.end).wrapping_add(place.len.into());
        self.slots.push_back(Slot { place, end });
        if self.runs.back().is_none_or(|run| (run.term, run.node) != (id.term, id.node)) {
            self.runs.push_back(Run { from: id.index, term: id.term, node: id.node });
        }
    }

    /// Records where an entry was written.
    pub(crate) fn set_place(&mut self, index: u64, place: Place) {
        let slot = self.slot_number(index).and_then(|n| self.slots.get_mut(n));
        slot.into_iter().for_each(|slot| slot.place = place);
    }

    pub(crate) fn place(&self, index: u64) -> Option<Place> {
        Some(self.slots.get(self.slot_number(index)?)?.place)
    }

    pub(crate) fn id_at(&self, index: u64) -> Option<LogId> {
        self.slots.get(self.slot_number(index)?)?;
        let run = self.runs.get(self.runs.partition_point(|run| run.from <= index).checked_sub(1)?)?;
        Some(LogId { term: run.term, node: run.node, index })
    }

    /// Removes everything from index `from` on.
    pub(crate) fn truncate(&mut self, from: u64) {
        self.slots.truncate(usize::try_from(from.saturating_sub(self.base)).unwrap_or(usize::MAX));
        while self.runs.back().is_some_and(|run| run.from >= from) {
            self.runs.pop_back();
        }
    }

    /// Removes everything before `base`. Fast, because the slots need no drop.
    pub(crate) fn trim(&mut self, base: u64) {
        let count = self.slot_number(base).unwrap_or(if base > self.base { self.slots.len() } else { 0 });
        if let Some(last) = count.checked_sub(1).and_then(|n| self.slots.get(n)) {
            self.start = last.end;
        }
        self.slots.drain(..count.min(self.slots.len()));
        self.base = self.base.max(base);
        while self.runs.get(1).is_some_and(|run| run.from <= self.base) {
            self.runs.pop_front();
        }
        if self.slots.capacity() > 4096 && self.slots.capacity() / 4 > self.slots.len() {
            self.slots.shrink_to(self.slots.len() * 2);
        }
    }

    /// The total size of the entries after `index`, in bytes.
    pub(crate) fn bytes_after(&self, index: u64) -> u64 {
        let end = self.slots.back().map_or(self.start, |slot| slot.end);
        let upto = match self.slot_number(index).and_then(|n| self.slots.get(n)) {
            Some(slot) => slot.end,
            None if index < self.base => self.start,
            None => end,
        };
        end.wrapping_sub(upto)
    }

    /// The last index that at least `bytes` bytes of entries follow.
    pub(crate) fn index_before_end(&self, bytes: u64) -> Option<u64> {
        let end = self.slots.back()?.end;
        let count = self.slots.partition_point(|slot| end.wrapping_sub(slot.end) >= bytes);
        Some(self.base.saturating_add(u64::try_from(count.checked_sub(1)?).ok()?))
    }

    fn slot_number(&self, index: u64) -> Option<usize> {
        let number = usize::try_from(index.checked_sub(self.base)?).ok()?;
        (number < self.slots.len()).then_some(number)
    }
}
