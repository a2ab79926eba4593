//! The model of a log: the history of its records and how far they were acknowledged.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use quorate_model::{GroupId, LogId};

/// A record, as submitted.
#[derive(Clone)]
pub enum Op {
    Entry(GroupId, LogId, Bytes),
    Truncate(GroupId, Option<u64>),
    Purge(GroupId, LogId),
    Vote(GroupId, Bytes),
    Identity(Bytes),
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(group, id, bytes) => write!(f, "g{} {}", group.0, brief(id, bytes)),
            Self::Truncate(group, kept) => write!(f, "g{} truncate to {kept:?}", group.0),
            Self::Purge(group, upto) => write!(f, "g{} purge {}", group.0, upto.index),
            Self::Vote(group, vote) => write!(f, "g{} vote {:02x}", group.0, vote[0]),
            Self::Identity(identity) => write!(f, "identity {:02x}", identity[0]),
        }
    }
}

/// A short form of an entry: index, term, length, first byte.
fn brief(id: &LogId, bytes: &[u8]) -> String {
    format!("#{}t{}({},{:02x})", id.index, id.term, bytes.len(), bytes.first().copied().unwrap_or(0))
}

/// The visible state of a group.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Group {
    pub floor: Option<LogId>,
    pub entries: BTreeMap<u64, (LogId, Bytes)>,
    pub vote: Option<Bytes>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<String> = self.entries.values().map(|(id, bytes)| brief(id, bytes)).collect();
        let (floor, vote) = (self.floor.map(|floor| floor.index), self.vote.as_ref().map(|vote| vote[0]));
        write!(f, "floor {floor:?} vote {vote:02x?} {}", entries.join(" "))
    }
}

impl Group {
    pub fn last(&self) -> Option<LogId> {
        self.entries.last_key_value().map(|(_, (id, _))| *id).or(self.floor)
    }

    pub fn next(&self) -> u64 {
        self.last().map_or(0, |last| last.index + 1)
    }
}

/// The visible state of a log, apart from committed ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub groups: BTreeMap<GroupId, Group>,
    pub identity: Option<Bytes>,
}

impl Contents {
    pub fn group(&mut self, group: GroupId) -> &mut Group {
        self.groups.entry(group).or_default()
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Entry(group, id, bytes) => {
                self.group(*group).entries.insert(id.index, (*id, bytes.clone()));
            }
            Op::Truncate(group, kept) => self.group(*group).entries.retain(|index, _| Some(*index) <= *kept),
            Op::Purge(group, upto) => {
                let group = self.group(*group);
                group.entries.retain(|index, _| *index > upto.index);
                group.floor = Some(*upto);
            }
            Op::Vote(group, vote) => self.group(*group).vote = Some(vote.clone()),
            Op::Identity(identity) => self.identity = Some(identity.clone()),
        }
    }
}

/// The number of records of the history that must survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acks {
    /// The end of the process.
    pub process: usize,
    /// A power loss.
    pub power: usize,
}

/// The history since the last opening.
#[derive(Clone, Debug, Default)]
pub struct Model {
    base: Contents,
    history: Vec<Op>,
    /// The state that the handle must show now.
    pub now: Contents,
    /// The highest committed id submitted, by group.
    pub committed: BTreeMap<GroupId, LogId>,
}

impl Model {
    pub fn push(&mut self, op: Op) {
        self.now.apply(&op);
        self.history.push(op);
    }

    /// The number of records submitted.
    pub fn len(&self) -> usize {
        self.history.len()
    }

    /// Finds a number of records, at least `safe`, that produces the recovered state.
    pub fn explain(&self, safe: usize, found: &Contents) -> Option<usize> {
        let mut state = self.base.clone();
        self.history.iter().take(safe).for_each(|op| state.apply(op));
        let mut count = safe;
        loop {
            if normal(&state) == normal(found) {
                return Some(count);
            }
            state.apply(self.history.get(count)?);
            count += 1;
        }
    }

    /// Starts a new history from the recovered state.
    pub fn restart(&mut self, found: Contents) {
        self.now = found.clone();
        self.base = found;
        self.history.clear();
    }
}

/// The contents without empty groups.
fn normal(contents: &Contents) -> Contents {
    let groups = contents.groups.clone().into_iter().filter(|(_, group)| *group != Group::default()).collect();
    Contents { groups, identity: contents.identity.clone() }
}
