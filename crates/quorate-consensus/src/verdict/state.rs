//! What a node knows of entries that can't be applied.

use std::collections::{BTreeMap, BTreeSet};

use quorate_model::NodeId;

use crate::identity::Halt;

/// All that it knows.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The entry that this node can't apply, and why.
    pub(super) trouble: Option<Trouble>,
    /// The entries that this node has promised not to apply, by their indexes. There may be several: one that is behind
    /// does not hear what became of the first while the others stop before a later one.
    pub(super) halts: BTreeMap<u64, Halt>,
    /// The last entry that the store was given and has not answered for.
    pub(super) in_flight: Option<u64>,
    /// Rejections in this node's log: their own index, and the one that they reject.
    pub(super) logged: BTreeMap<u64, u64>,
    /// Entries that another node has applied as rejected ones.
    pub(super) heard: BTreeSet<u64>,
    pub(super) committed: u64,
    /// The last entry that the log held when this life began, or that the store has held since. The node may have
    /// applied the entries up to here and answered for them, even where its store does not hold them now: the node lost
    /// power, or took another node's state in the place of a damaged one.
    pub(super) perhaps_applied: u64,
    /// The term of this node's vote when it began, if it had lost power before.
    pub(super) lost_power_in: Option<u64>,
    /// Up to this entry the node applies one at a time, with a note before each.
    pub(super) careful_until: u64,
    /// The rejection that this node, as the leader of a term, works for.
    pub(super) pursuit: Option<Halt>,
    /// Entries that an operator rejects without the word of voters that can't be reached.
    pub(super) forced: BTreeSet<u64>,
    /// Up to which entry this node, as the leader, may have told each member that the log is committed.
    pub(super) announced: BTreeMap<u64, u64>,
    pub(super) closed: bool,
}

/// Why an entry can't be applied here.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) index: u64,
    pub(super) why: String,
    /// It takes longer, or more memory, than this node lets an entry have.
    pub(super) is_too_much: bool,
    pub(super) tries: u32,
    /// It is handed to the store once more.
    pub(super) again: bool,
    /// Nodes that have applied it.
    pub(super) holders: Vec<NodeId>,
}

impl State {
    pub(super) fn holders(&self) -> Vec<NodeId> {
        self.trouble.as_ref().map(|trouble| trouble.holders.clone()).unwrap_or_default()
    }

    /// Whether no entry is in doubt.
    pub(super) fn is_quiet(&self) -> bool {
        self.trouble.is_none() && self.halts.is_empty() && self.logged.is_empty()
    }

    /// Entries up to this one are applied: nothing of them is in doubt any more.
    pub(super) fn forget(&mut self, applied: u64) {
        self.trouble.take_if(|trouble| trouble.index <= applied);
        self.halts.retain(|index, _| *index > applied);
        self.pursuit.take_if(|pursuit| pursuit.index <= applied);
        self.logged.retain(|index, _| *index > applied);
        self.heard.retain(|index| *index > applied);
        self.forced.retain(|index| *index > applied);
    }

    /// Lets go of promises whose rejections are committed in this node's log: the log speaks for them.
    pub(super) fn let_go(&mut self) {
        let (logged, committed) = (&self.logged, self.committed);
        let is_settled = |index: u64| logged.iter().any(|(at, rejected)| *rejected == index && *at <= committed);
        self.halts.retain(|index, _| !is_settled(*index));
    }

    /// Whether the log holds a rejection of an entry.
    pub(super) fn rejects(&self, index: u64) -> bool {
        self.logged.values().any(|rejected| *rejected == index)
    }

    /// Whether this node may not try an entry by itself.
    pub(super) fn is_bound(&self, index: u64) -> bool {
        self.rejects(index) || self.halts.contains_key(&index)
    }

    /// Whether it is certain that an entry is rejected.
    pub(super) fn is_rejected(&self, index: u64) -> bool {
        let is_committed = |(at, rejected): (&u64, &u64)| *rejected == index && *at <= self.committed;
        self.heard.contains(&index) || self.logged.iter().any(is_committed)
    }
}

impl Trouble {
    pub(super) fn new(index: u64, why: &str) -> Self {
        Self { index, why: why.to_owned(), is_too_much: false, tries: 0, again: false, holders: Vec::new() }
    }
}
