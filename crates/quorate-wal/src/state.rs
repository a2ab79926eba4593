//! What all records before a point of the log have led to, entries aside.
//!
//! The writer keeps one and repeats it in the header of each segment; recovery starts with that of the oldest segment,
//! leads it on by the same [`LogState::apply`] and compares it with the header of each following one.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_model::{GroupId, LogId};

use crate::record::{Kind, Record};

/// What is known of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupState {
    pub(crate) vote: Option<Bytes>,
    /// The last purged id.
    pub(crate) floor: Option<LogId>,
    /// The last id, purged or not.
    pub(crate) last: Option<LogId>,
    pub(crate) committed: Option<LogId>,
}

impl GroupState {
    /// The index that must come next, if there is one before it.
    pub(crate) fn next_index(&self) -> Option<u64> {
        self.last.map(|last| last.index.saturating_add(1))
    }

    /// Checks that the log may be cut after `kept`, which it must hold, or have purged last.
    pub(crate) fn check_cut(&self, kept: Option<LogId>) -> Result<(), String> {
        let [floor, kept, last] = [self.floor, kept, self.last].map(|id| id.map(|id| id.index));
        let holds = floor <= kept && kept <= last;
        if holds {
            Ok(())
        } else {
            Err(format!("a log purged up to {floor:?} that ends at {last:?} is cut at {kept:?}"))
        }
    }

    /// Moves the floor up, and the end with it where the log ends before.
    pub(crate) fn purge(&mut self, upto: LogId) {
        if self.floor.is_none_or(|floor| floor.index < upto.index) {
            self.floor = Some(upto);
        }
        if self.last.is_none_or(|last| last.index <= upto.index) {
            self.last = Some(upto);
        }
    }
}

/// What is known of all groups and of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogState {
    pub(crate) groups: BTreeMap<GroupId, GroupState>,
    pub(crate) identity: Option<Bytes>,
    /// The boot id under which all this was written, or accepted; empty where it could not be read.
    pub(crate) boot: Bytes,
    /// The last record said that the log was closed in good order.
    pub(crate) closed: bool,
}

impl LogState {
    pub(crate) fn group(&mut self, group: GroupId) -> &mut GroupState {
        self.groups.entry(group).or_default()
    }

    /// Takes a record of a frame.
    pub(crate) fn apply(&mut self, record: &Record<'_>) {
        self.closed = record.kind == Kind::Closed && !record.flag;
        match record.kind {
            Kind::Entry => self.group(record.group).last = Some(record.id),
            Kind::Truncate => self.group(record.group).last = (!record.flag).then_some(record.id),
            Kind::Purge => self.group(record.group).purge(record.id),
            _ => self.adopt(record),
        }
    }

    /// Takes a record of a header, in which ids stand for themselves.
    pub(crate) fn adopt(&mut self, record: &Record<'_>) {
        match record.kind {
            Kind::Vote => self.group(record.group).vote = Some(Bytes::copy_from_slice(record.bytes)),
            Kind::Purge => self.group(record.group).floor = Some(record.id),
            Kind::Last => self.group(record.group).last = Some(record.id),
            Kind::Committed => self.group(record.group).committed = Some(record.id),
            Kind::Identity => self.identity = Some(Bytes::copy_from_slice(record.bytes)),
            Kind::Boot => self.boot = Bytes::copy_from_slice(record.bytes),
            Kind::Entry | Kind::Truncate | Kind::Closed => {}
        }
    }

    /// Writes the records of a header and returns their number.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> u32 {
        let node = GroupId(0);
        let mut count = 0;
        let mut put = |record: Record<'_>| {
            record.encode(out);
            count += 1;
        };
        put(Record::bytes(Kind::Boot, node, &self.boot));
        if let Some(identity) = &self.identity {
            put(Record::bytes(Kind::Identity, node, identity));
        }
        for (group, state) in &self.groups {
            if let Some(vote) = &state.vote {
                put(Record::bytes(Kind::Vote, *group, vote));
            }
            for (kind, id) in [(Kind::Purge, state.floor), (Kind::Last, state.last), (Kind::Committed, state.committed)]
            {
                id.into_iter().for_each(|id| put(Record::plain(kind, *group, id)));
            }
        }
        count
    }

    /// Whether both say the same of all groups and of the identity. What differs between openings is left out.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let known = |state: &Self| {
            let groups = state.groups.clone().into_iter().filter(|(_, group)| *group != GroupState::default());
            groups.collect::<BTreeMap<_, _>>()
        };
        self.identity == other.identity && known(self) == known(other)
    }
}
