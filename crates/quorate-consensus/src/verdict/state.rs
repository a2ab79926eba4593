//! What a node knows about entries that can't be applied.

use std::collections::{BTreeMap, BTreeSet};

use quorate_model::NodeId;

use crate::identity::Halt;

/// The whole state.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The entry that this node can't apply, and why.
    pub(super) failed: Option<FailedEntry>,
    /// The entries that this node has promised not to apply, by their indexes. There may be several: a node that is
    /// behind may not learn what became of the first while the others stop before a later one.
    pub(super) halts: BTreeMap<u64, Halt>,
    /// The last entry that the store was given and has not answered for yet.
    pub(super) in_flight: Option<u64>,
    /// The rejections in this node's log: the index of each, and the index of the entry that it rejects.
    pub(super) logged: BTreeMap<u64, u64>,
    /// The entries that another node has applied as rejected ones.
    pub(super) rejected_elsewhere: BTreeSet<u64>,
    pub(super) committed: u64,
    /// The last entry that the log held when this process began, or that the store has held since. The node may have
    /// applied the entries up to this one and answered for them, even if its store does not hold them now: the node
    /// lost power, or replaced a damaged state by another node's.
    pub(super) perhaps_applied: u64,
    /// The term of this node's vote at its start, if the machine had lost power before.
    pub(super) lost_power_in: Option<u64>,
    /// Up to this entry the node applies one entry at a time, and records each before.
    pub(super) careful_until: u64,
    /// The rejection that this node, as the leader of a term, works on.
    pub(super) pending_rejection: Option<Halt>,
    /// The entries that an operator has decided to reject without the voters that can't be reached.
    pub(super) forced: BTreeSet<u64>,
    /// For each member, the last entry that this node, as the leader, may have announced to it as committed.
    pub(super) announced: BTreeMap<u64, u64>,
    pub(super) closed: bool,
}

/// An entry that this node can't apply.
#[derive(Clone, Debug)]
pub(super) struct FailedEntry {
    pub(super) index: u64,
    pub(super) why: String,
    /// Whether the entry takes more time or memory than this node allows for an entry.
    pub(super) is_too_much: bool,
    pub(super) tries: u32,
    /// Whether the entry is to be handed to the store once more.
    pub(super) again: bool,
    /// The nodes that have applied the entry.
    pub(super) holders: Vec<NodeId>,
}

impl State {
    pub(super) fn holders(&self) -> Vec<NodeId> {
        self.failed.as_ref().map(|failed| failed.holders.clone()).unwrap_or_default()
    }

    /// Whether no entry is in doubt.
    pub(super) fn is_quiet(&self) -> bool {
        self.failed.is_none() && self.halts.is_empty() && self.logged.is_empty()
    }

    /// Removes everything about entries up to this one: they are applied, so they are no longer in doubt.
    pub(super) fn forget(&mut self, applied: u64) {
        self.failed.take_if(|failed| failed.index <= applied);
        self.halts.retain(|index, _| *index > applied);
        self.pending_rejection.take_if(|pending| pending.index <= applied);
        self.logged.retain(|index, _| *index > applied);
        self.rejected_elsewhere.retain(|index| *index > applied);
        self.forced.retain(|index| *index > applied);
    }

    /// Removes the promises whose rejections are committed in this node's log, because the log ensures the same.
    pub(super) fn drop_settled_halts(&mut self) {
        let (logged, committed) = (&self.logged, self.committed);
        let is_settled = |index: u64| logged.iter().any(|(at, rejected)| *rejected == index && *at <= committed);
        self.halts.retain(|index, _| !is_settled(*index));
    }

    /// Whether the log holds a rejection of an entry.
    pub(super) fn rejects(&self, index: u64) -> bool {
        self.logged.values().any(|rejected| *rejected == index)
    }

    /// Whether this node may not try an entry before it is decided.
    pub(super) fn is_bound(&self, index: u64) -> bool {
        self.rejects(index) || self.halts.contains_key(&index)
    }

    /// Whether it is certain that an entry is rejected.
    pub(super) fn is_rejected(&self, index: u64) -> bool {
        let is_committed = |(at, rejected): (&u64, &u64)| *rejected == index && *at <= self.committed;
        self.rejected_elsewhere.contains(&index) || self.logged.iter().any(is_committed)
    }
}

impl FailedEntry {
    pub(super) fn new(index: u64, why: &str) -> Self {
        Self { index, why: why.to_owned(), is_too_much: false, tries: 0, again: false, holders: Vec::new() }
    }
}
