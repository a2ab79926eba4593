//! The state that all records before a point of the log produce, apart from entries.
//!
//! The writer maintains one and repeats it in the header of each segment. Recovery starts with that of the oldest
//! segment, advances it with the same [`LogState::apply`], and compares it with the header of each later segment.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_model::{GroupId, LogId};

use crate::record::{Kind, Record};

/// The state of one group.
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
    /// The index that the next entry must have, if the log of the group has an end.
    pub(crate) fn next_index(&self) -> Option<u64> {
        self.last.map(|last| last.index.saturating_add(1))
    }

    /// Checks that the log may be truncated after `kept`: it must hold that entry, or have purged it as the last one.
    pub(crate) fn check_cut(&self, kept: Option<LogId>) -> Result<(), String> {
        let [floor, kept, last] = [self.floor, kept, self.last].map(|id| id.map(|id| id.index));
        let holds = floor <= kept && kept <= last;
        if holds {
            Ok(())
        } else {
            Err(format!("a log purged up to {floor:?} and ending at {last:?} can't be cut at {kept:?}"))
        }
    }

    /// Raises the floor, and the end of the log too if it lies before the new floor.
    pub(crate) fn purge(&mut self, upto: LogId) {
        if self.floor.is_none_or(|floor| floor.index < upto.index) {
            self.floor = Some(upto);
        }
        if self.last.is_none_or(|last| last.index <= upto.index) {
            self.last = Some(upto);
        }
    }
}

/// The state of all groups and of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogState {
    pub(crate) groups: BTreeMap<GroupId, GroupState>,
    pub(crate) identity: Option<Bytes>,
    /// The boot id under which the log was written or accepted; empty if it could not be read.
    pub(crate) boot: Bytes,
    /// The last record says that the log was closed cleanly.
    pub(crate) closed: bool,
}

impl LogState {
    pub(crate) fn group(&mut self, group: GroupId) -> &mut GroupState {
        self.groups.entry(group).or_default()
    }

    /// Applies a record of a frame.
    pub(crate) fn apply(&mut self, record: &Record<'_>) {
        self.closed = record.kind == Kind::Closed && !record.flag;
        match record.kind {
            Kind::Entry => self.group(record.group).last = Some(record.id),
            Kind::Truncate => self.group(record.group).last = (!record.flag).then_some(record.id),
            Kind::Purge => self.group(record.group).purge(record.id),
            _ => self.adopt(record),
        }
    }

    /// Applies a record of a header. There, each id replaces the former value and has no other effect.
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

    /// Writes the state as the records of a header and returns their number.
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

    /// Whether both agree on all groups and on the identity. The boot id and the closed flag may differ between
    /// openings and are not compared.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let known = |state: &Self| {
            let groups = state.groups.clone().into_iter().filter(|(_, group)| *group != GroupState::default());
            groups.collect::<BTreeMap<_, _>>()
        };
        self.identity == other.identity && known(self) == known(other)
    }
}
