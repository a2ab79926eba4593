//! What waits to be written, in the order of submission.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::Bytes;
use quorate_model::{GroupId, LogId};

use crate::error::WalError;
use crate::record::{Kind, RECORD_HEADER, Record};

/// Told once, on the writer's thread, whether everything up to an operation is durable. It must not block.
pub type Completion = Box<dyn FnOnce(Result<(), WalError>) + Send>;

/// How much somebody wants an item to be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// It may wait for others.
    Lazy,
    /// It is to be written.
    Write,
    /// It is to be written and synced.
    Sync,
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Task {
    /// Write this record.
    Record { kind: Kind, flag: bool, group: GroupId, id: LogId, bytes: Bytes },
    /// Nothing but what its completion demands of everything before.
    Barrier,
    /// Begin a new segment.
    Cut,
}

/// One thing to do, and whom to tell.
pub(crate) struct Item {
    pub(crate) task: Task,
    pub(crate) need: Need,
    pub(crate) done: Option<Completion>,
}

impl Item {
    pub(crate) fn record(kind: Kind, group: GroupId, id: LogId, bytes: Bytes, need: Need) -> Self {
        Self { task: Task::Record { kind, flag: false, group, id, bytes }, need, done: None }
    }

    pub(crate) fn with_flag(mut self, set: bool) -> Self {
        if let Task::Record { flag, .. } = &mut self.task {
            *flag = set;
        }
        self
    }

    pub(crate) fn with_done(mut self, done: Completion) -> Self {
        self.done = Some(done);
        self
    }

    pub(crate) fn as_record(&self) -> Option<Record<'_>> {
        match &self.task {
            Task::Record { kind, flag, group, id, bytes } => {
                Some(Record { kind: *kind, flag: *flag, group: *group, id: *id, bytes })
            }
            Task::Barrier | Task::Cut => None,
        }
    }

    /// What it takes in a frame and about what it takes in memory.
    pub(crate) fn cost(&self) -> usize {
        RECORD_HEADER + self.as_record().map_or(0, |record| record.bytes.len())
    }

    /// Whether it needs a frame for itself: a cut has no records, and after a close nothing may come.
    fn stands_alone(&self) -> bool {
        matches!(&self.task, Task::Cut) || self.is_last()
    }

    fn is_last(&self) -> bool {
        matches!(&self.task, Task::Record { kind: Kind::Closed, .. })
    }
}

/// Somebody who wants to know when no entry up to an index waits to be written any more.
pub(crate) struct Waiter {
    pub(crate) group: GroupId,
    pub(crate) upto: u64,
    pub(crate) done: Completion,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("group", &self.group).field("upto", &self.upto).finish_non_exhaustive()
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("task", &self.task).field("need", &self.need).finish_non_exhaustive()
    }
}

/// The queue between the handles and the writer.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    items: VecDeque<Item>,
    /// What the items cost.
    bytes: usize,
    /// Items that somebody waits for.
    urgent: usize,
    /// The newest committed ids not written yet: only the last of each group counts.
    committed: BTreeMap<GroupId, LogId>,
}

impl Queue {
    pub(crate) fn push(&mut self, item: Item) {
        self.urgent += usize::from(item.need > Need::Lazy);
        self.bytes = self.bytes.saturating_add(item.cost());
        self.items.push_back(item);
    }

    pub(crate) fn commit(&mut self, group: GroupId, id: LogId) {
        self.committed.insert(group, id);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.committed.is_empty()
    }

    /// Takes the items of the next frame: up to `limit` bytes, but at least one item.
    pub(crate) fn take(&mut self, limit: usize) -> Vec<Item> {
        let mut taken = Vec::new();
        let mut bytes = 0_usize;
        while let Some(item) = self.items.front() {
            bytes = bytes.saturating_add(item.cost());
            if !taken.is_empty() && (bytes > limit || item.stands_alone()) {
                break;
            }
            if item.is_last() && !self.committed.is_empty() {
                break;
            }
            let alone = item.stands_alone();
            taken.extend(self.items.pop_front());
            if alone {
                break;
            }
        }
        self.bytes -= taken.iter().map(Item::cost).sum::<usize>();
        self.urgent -= taken.iter().filter(|item| item.need > Need::Lazy).count();
        // Never before an entry or a truncation that was there first: after a crash, entries would count as committed
        // that were to be truncated.
        if self.items.front().is_none_or(Item::is_last) {
            let committed = std::mem::take(&mut self.committed).into_iter();
            let record = |(group, id)| Item::record(Kind::Committed, group, id, Bytes::new(), Need::Lazy);
            taken.extend(committed.map(record));
        }
        taken
    }

    /// Everything, to be told that it failed.
    pub(crate) fn take_all(&mut self) -> VecDeque<Item> {
        (self.bytes, self.urgent, self.committed) = (0, 0, BTreeMap::new());
        std::mem::take(&mut self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(items: &[Item]) -> Vec<Option<Kind>> {
        items.iter().map(|item| item.as_record().map(|record| record.kind)).collect()
    }

    fn record(kind: Kind) -> Item {
        Item::record(kind, GroupId::MAIN, LogId::default(), Bytes::new(), Need::Lazy)
    }

    #[test]
    fn what_is_committed_is_written_behind_all_that_was_there_before_and_before_the_end() {
        let mut queue = Queue::default();
        queue.push(Item { task: Task::Cut, need: Need::Sync, done: None });
        queue.push(record(Kind::Truncate));
        queue.push(record(Kind::Entry));
        queue.commit(GroupId::MAIN, LogId::default());
        assert_eq!(kinds(&queue.take(usize::MAX)), [None], "a cut has a frame for itself");
        assert_eq!(kinds(&queue.take(1)), [Some(Kind::Truncate)]);
        assert_eq!(kinds(&queue.take(1)), [Some(Kind::Entry), Some(Kind::Committed)]);
        queue.push(record(Kind::Closed));
        queue.commit(GroupId::MAIN, LogId::default());
        assert_eq!(kinds(&queue.take(usize::MAX)), [Some(Kind::Committed)]);
        assert_eq!(kinds(&queue.take(usize::MAX)), [Some(Kind::Closed)]);
        assert!(queue.is_empty());
    }
}
