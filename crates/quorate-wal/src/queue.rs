//! The queue of items that wait to be written, in the order of submission.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::Bytes;
use quorate_model::{GroupId, LogId};

use crate::error::WalError;
use crate::record::{Kind, RECORD_HEADER, Record};

/// Called once, on the writer's thread, when everything up to an operation is durable or the log has stopped. It must
/// not block.
pub type Completion = Box<dyn FnOnce(Result<(), WalError>) + Send>;

/// How urgently an item must reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// It may wait for other items.
    Lazy,
    /// It must be written without delay.
    Write,
    /// It must be written and synced without delay.
    Sync,
}

/// The work of an item.
#[derive(Debug)]
pub(crate) enum Task {
    /// Write this record.
    Record { kind: Kind, flag: bool, group: GroupId, id: LogId, bytes: Bytes },
    /// Write nothing; only make everything before it as durable as its completion requires.
    Barrier,
    /// Begin a new segment.
    Cut,
}

/// A unit of work and its completion.
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

    /// The bytes that it takes in a frame, which is about what it takes in memory.
    pub(crate) fn cost(&self) -> usize {
        RECORD_HEADER + self.as_record().map_or(0, |record| record.bytes.len())
    }

    /// Whether it needs a batch of its own: a cut has no records, and nothing may follow a close.
    fn needs_own_batch(&self) -> bool {
        matches!(&self.task, Task::Cut) || self.is_close()
    }

    fn is_close(&self) -> bool {
        matches!(&self.task, Task::Record { kind: Kind::Closed, .. })
    }
}

/// A completion to call when every entry up to an index is written.
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
    /// The total cost of the items.
    bytes: usize,
    /// The number of items that are not lazy.
    urgent: usize,
    /// The committed ids not yet written; only the latest of each group is kept.
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

    /// Takes the items of the next frame: up to `limit` bytes, but at least one item if there is any.
    pub(crate) fn take(&mut self, limit: usize) -> Vec<Item> {
        let mut taken = Vec::new();
        let mut bytes = 0_usize;
        while let Some(item) = self.items.front() {
            bytes = bytes.saturating_add(item.cost());
            if !taken.is_empty() && (bytes > limit || item.needs_own_batch()) {
                break;
            }
            if item.is_close() && !self.committed.is_empty() {
                break;
            }
            let alone = item.needs_own_batch();
            taken.extend(self.items.pop_front());
            if alone {
                break;
            }
        }
        self.bytes -= taken.iter().map(Item::cost).sum::<usize>();
        self.urgent -= taken.iter().filter(|item| item.need > Need::Lazy).count();
        // A committed id is never written before an entry or truncation that was queued earlier. Otherwise, after a
        // crash, entries that were about to be truncated would count as committed.
        if self.items.front().is_none_or(Item::is_close) {
            let committed = std::mem::take(&mut self.committed).into_iter();
            let record = |(group, id)| Item::record(Kind::Committed, group, id, Bytes::new(), Need::Lazy);
            taken.extend(committed.map(record));
        }
        taken
    }

    /// Takes everything, so that the caller can fail its completions.
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
    fn committed_ids_follow_records_but_precede_close() {
        let mut queue = Queue::default();
        queue.push(Item { task: Task::Cut, need: Need::Sync, done: None });
        queue.push(record(Kind::Truncate));
        queue.push(record(Kind::Entry));
        queue.commit(GroupId::MAIN, LogId::default());
        assert_eq!(kinds(&queue.take(usize::MAX)), [None], "a cut has a batch of its own");
        assert_eq!(kinds(&queue.take(1)), [Some(Kind::Truncate)]);
        assert_eq!(kinds(&queue.take(1)), [Some(Kind::Entry), Some(Kind::Committed)]);
        queue.push(record(Kind::Closed));
        queue.commit(GroupId::MAIN, LogId::default());
        assert_eq!(kinds(&queue.take(usize::MAX)), [Some(Kind::Committed)]);
        assert_eq!(kinds(&queue.take(usize::MAX)), [Some(Kind::Closed)]);
        assert!(queue.is_empty());
    }
}
