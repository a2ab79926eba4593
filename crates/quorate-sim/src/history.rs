//! The history of what all nodes have applied in all their process lives. Each new observation is compared with it.
//!
//! Invariants that it checks: an index has one log id, one payload and one outcome, on every node and each time that it
//! is applied; the state at an index has one hash, and its outcome hash is that of the outcomes that were told; a
//! leader id leads in one life, and was elected by a majority that remembers it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use quorate_apply::session::SESSION_IDLE_NANOS;
use quorate_consensus::ClusterId;
use quorate_env::lock;
use quorate_env_sim::Trace;
use quorate_model::{Archiver, FailureKind, LogId, NodeId, Outcome, Stamp, StoreFault, codec};
use xxhash_rust::xxh3::xxh3_64;

use self::running::Running;
pub use self::told::GivenEntry;

mod harm;
mod images;
mod running;
mod told;

/// The number of violations whose texts are kept.
const VIOLATIONS_MAX: usize = 20;

/// A handle of the history; see the module. Clones share the same history.
#[derive(Clone)]
pub struct History(Arc<Inner>);

struct Inner {
    trace: Trace,
    /// The name of the group, if it is not `main`, at the begin of each violation.
    group: &'static str,
    known: Mutex<Known>,
    violations: Arc<Mutex<Vec<String>>>,
}

#[derive(Default)]
struct Known {
    entries: BTreeMap<u64, EntryKnown>,
    states: BTreeMap<u64, (State, String)>,
    leaders: BTreeMap<(u64, NodeId), LeaderKnown>,
    /// The owner of each node id: a node's name, and how many disks it had lost when it first had the id.
    owners: BTreeMap<NodeId, (&'static str, u64)>,
    /// The id of each node after each number of losses of any kind.
    ids: BTreeMap<(&'static str, u64), NodeId>,
    cluster: Option<ClusterId>,
    faults: u32,
    installs: u64,
    /// Lives in which an image was, or was being, installed.
    installers: BTreeSet<String>,
    /// Lives in which the installation failed. Which database is current is known only at the next start.
    failed_installers: BTreeSet<String>,
    /// Lives whose disks may fail to store or to read an image.
    bad_keepers: BTreeSet<String>,
    /// Lives that have verified an image. They need not notice if it changes later.
    verified: BTreeSet<String>,
    /// Nodes whose data were changed, until they hold the same data as the others, and how many changes there were.
    tampered: BTreeSet<&'static str>,
    tamperings: u64,
    /// Nodes whose databases have a bad page, until they hold the same data as the others, and how many bad pages there
    /// were.
    spoiled: BTreeSet<&'static str>,
    spoilings: u64,
    /// Nodes that could not apply some entry.
    unable: BTreeSet<String>,
    /// How often a node could not apply an entry because its disk failed.
    disks_failed: u64,
    /// Whether an operator has rejected an entry.
    is_forced: bool,
    /// How many nodes with changed data got a copy of the others' data while they ran.
    healed: u64,
    compared: u64,
    /// Hints to work ahead of commit that were right, and those that were wrong.
    prefetched: (u64, u64),
    running: Running,
    /// The time stamp of each proposal, by index. The id of a session is the index of its first proposal.
    stamps: BTreeMap<u64, u64>,
    /// The latest of them.
    time: u64,
    /// The hashes of the proposals that were done. All attempts at a write have the same bytes, and so the same hash.
    done: BTreeSet<u64>,
    /// Entries that were refused because their sessions had been idle for too long, and those of them whose write had
    /// been done by an earlier attempt.
    expired: (u64, u64),
}

/// What is known about the entry at an index.
struct EntryKnown {
    log_id: LogId,
    payload: u64,
    outcome: Option<u64>,
    by: String,
    without: Without,
}

/// Nodes that have restarted without something that a majority had stored.
#[derive(Default)]
struct Without(BTreeSet<&'static str>);

impl Without {
    /// Adds a node to the set. Returns whether the other nodes, of `nodes` in all, are fewer than a majority.
    fn add(&mut self, name: &'static str, nodes: usize) -> bool {
        self.0.insert(name);
        self.0.len() > nodes - (nodes / 2 + 1)
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().copied().collect::<Vec<_>>().join(" and "))
    }
}

/// What is known about a leader id.
struct LeaderKnown {
    who: String,
    without: Without,
}

/// How often a node has lost data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Whole disks.
    pub disks: u64,
    /// Lost disks, and all other events after which a node must assume that it may have lost acknowledged data.
    pub all: u64,
}

/// The hashes of a database at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The running hash of outcomes.
    pub outcomes: u64,
    /// The logical hash of what users see.
    pub user: u128,
    /// The logical hash of the store's own tables.
    pub reserved: u128,
    /// The archiver.
    pub archiver: Option<Archiver>,
}

impl History {
    /// Creates an empty history that records its events in `trace`.
    pub fn new(trace: &Trace) -> Self {
        Self(Arc::new(Inner { trace: trace.clone(), group: "", known: Mutex::default(), violations: Arc::default() }))
    }

    /// Creates the history of another group of the same nodes. The two share their violations.
    pub fn beside(&self, group: &'static str) -> Self {
        let (trace, violations) = (self.0.trace.clone(), Arc::clone(&self.0.violations));
        Self(Arc::new(Inner { trace, group, known: Mutex::default(), violations }))
    }

    /// Records an event that is not a violation.
    pub fn note(&self, who: &str, what: fmt::Arguments<'_>) {
        self.0.trace.add(who, what);
    }

    /// Records a violation: something that must never happen.
    pub fn violation(&self, what: String) {
        let what = format!("{}{what}", self.0.group);
        self.0.trace.add("oracle", format_args!("{what}"));
        let mut violations = lock(&self.0.violations);
        if violations.len() < VIOLATIONS_MAX {
            violations.push(what);
        }
    }

    /// Returns the violations so far.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.0.violations).clone()
    }

    /// Counts a fault that was drawn, and returns its number.
    pub fn next_fault(&self) -> u32 {
        let mut known = self.known();
        known.faults += 1;
        known.faults - 1
    }

    /// Returns how many faults were drawn.
    pub fn faults(&self) -> u32 {
        self.known().faults
    }

    /// Returns how many images were installed.
    pub fn installs(&self) -> u64 {
        self.known().installs
    }

    /// Returns how many states were compared with the state of another node at the same index.
    pub fn compared(&self) -> u64 {
        self.known().compared
    }

    /// Returns how many hints to work ahead of commit were right, and how many were wrong.
    pub fn prefetched(&self) -> (u64, u64) {
        self.known().prefetched
    }

    /// Returns how many entries were refused because their sessions had been idle for too long, and for how many of
    /// them an earlier attempt at the same write had been done.
    pub fn expired(&self) -> (u64, u64) {
        self.known().expired
    }

    /// Records that entries were applied after a hint to work ahead of commit, and whether the hint named these
    /// entries.
    pub fn expected(&self, is_right: bool) {
        let mut known = self.known();
        let (right, wrong) = known.prefetched;
        known.prefetched = (right + u64::from(is_right), wrong + u64::from(!is_right));
    }

    /// Returns the last index that any node has applied.
    pub fn last_index(&self) -> u64 {
        self.known().entries.last_key_value().map_or(0, |(index, _)| *index)
    }

    /// Records that a node, in its life `who`, leads in a term. A leader is identified by its term and its node id,
    /// because a node with a higher id may take over the same term.
    pub fn leads(&self, who: &str, term: u64, id: NodeId) {
        let mut known = self.known();
        let new = || LeaderKnown { who: who.to_owned(), without: Without::default() };
        let before = known.leaders.entry((term, id)).or_insert_with(new).who.clone();
        drop(known);
        if before != who {
            self.violation(format!("{before} and {who} both lead as {id} in term {term}"));
        }
    }

    /// Records that a node which has lost nothing starts with this vote; the cluster has `nodes` nodes. Each leader was
    /// elected by a majority, which includes the leader itself.
    pub fn remembers_votes(&self, name: &'static str, vote: (u64, NodeId), nodes: usize) {
        let mut known = self.known();
        let mut forgotten = None;
        for (leader, known) in known.leaders.iter_mut().filter(|(leader, _)| **leader > vote) {
            if known.without.add(name, nodes) || is_life_of(&known.who, name) {
                forgotten = Some(format!("{} came back with votes from before {leader:?} was elected", known.without));
            }
        }
        drop(known);
        forgotten.into_iter().for_each(|text| self.violation(text));
    }

    /// Records that a node which has lost nothing starts with a log that ends at `last_index`; the cluster has `nodes`
    /// nodes. A majority must have each entry that any node has applied.
    pub fn remembers_entries(&self, name: &'static str, last_index: u64, nodes: usize) {
        let mut known = self.known();
        let mut forgotten = None;
        for (_, entry) in known.entries.range_mut(last_index + 1..) {
            if entry.without.add(name, nodes) {
                forgotten = Some(format!("{} came back without {}, which is committed", entry.without, entry.log_id));
            }
        }
        drop(known);
        forgotten.into_iter().for_each(|text| self.violation(text));
    }

    /// Checks that a leader's log, which ends at `last_index`, holds every entry of earlier terms that any node has
    /// applied.
    pub fn leader_holds(&self, who: &str, term: u64, last_index: u64) {
        let known = self.known();
        let of_before = known.entries.iter().rev().find(|(_, entry)| entry.log_id.term < term);
        let missing = of_before.filter(|(index, _)| **index > last_index).map(|(_, entry)| entry.log_id);
        drop(known);
        if let Some(missing) = missing {
            self.violation(format!(
                "{who} leads in term {term} with a log that ends at {last_index}, before {missing}"
            ));
        }
    }

    /// Records that a node has this id. An id whose disk is lost must never come back, and a node that lost nothing
    /// must keep its id.
    pub fn identity(&self, name: &'static str, losses: Losses, id: NodeId) {
        let mut known = self.known();
        let owner = *known.owners.entry(id).or_insert((name, losses.disks));
        let before = *known.ids.entry((name, losses.all)).or_insert(id);
        drop(known);
        if owner != (name, losses.disks) {
            let (other, disks) = owner;
            let text = format!("{name} is {id} after {} lost disks, which {other} was after {disks}", losses.disks);
            self.violation(text);
        }
        if before != id {
            self.violation(format!("{name} is {id} and was {before}, although it has lost nothing since"));
        }
    }

    /// Records that a node belongs to this cluster. There must never be a second one.
    pub fn cluster(&self, who: &str, cluster: ClusterId) {
        let first = *self.known().cluster.get_or_insert(cluster);
        if first != cluster {
            self.violation(format!("{who} belongs to a second cluster, {cluster}; the first is {first}"));
        }
    }

    /// Records that a node has this state at an index.
    pub fn state(&self, who: &str, index: u64, state: State) {
        self.0.trace.add(who, format_args!("state {index} {:016x} {:032x}", state.outcomes, state.user));
        let mut known = self.known();
        if let Some(told) = known.running.at(index).filter(|told| *told != state.outcomes) {
            drop(known);
            return self.violation(format!(
                "at {index} {who} has the outcome hash {:016x}, and the outcomes that were told give {told:016x}",
                state.outcomes
            ));
        }
        let Some((before, by)) = known.states.get(&index).cloned() else {
            known.states.insert(index, (state, who.to_owned()));
            return;
        };
        known.compared += u64::from(by != who);
        drop(known);
        if before != state {
            self.violation(format!("at {index} {by} has {before:x?} and {who} {state:x?}"));
        }
    }

    /// Returns the indexes at which a state is known.
    pub fn sampled(&self) -> Vec<u64> {
        self.known().states.keys().copied().collect()
    }

    /// Records that a node's store has applied entries.
    pub fn applied(&self, who: &str, entries: &[GivenEntry], outcomes: &[Option<Outcome>]) {
        for (given, outcome) in entries.iter().zip(outcomes) {
            let (log_id, payload) = (given.log_id, given.payload);
            let told = outcome.as_ref().map(|outcome| canonical(outcome, given.has_outcome));
            let hash = told.as_ref().map(|told| xxh3_64(told));
            self.0.trace.add(who, format_args!("applied {log_id} {payload:016x} {:016x}", hash.unwrap_or(0)));
            if self.is_tampered(who) {
                continue;
            }
            if let (Some((stamp, bytes)), Some(outcome)) = (&given.proposal, outcome) {
                self.one_attempted(log_id.index, *stamp, bytes, outcome);
            }
            self.one_applied(who, log_id, payload, hash);
            if let Some(told) = told {
                self.known().running.told(log_id.index, told);
            }
        }
    }

    /// Returns the latest stamp of a proposal that a node has applied.
    pub fn time(&self) -> u64 {
        self.known().time
    }

    /// Records that a node applied a proposal, which is an attempt at a write. Only the first application of an index
    /// counts.
    fn one_attempted(&self, index: u64, stamp: Stamp, bytes: &Bytes, outcome: &Outcome) {
        let mut known = self.known();
        known.time = known.time.max(stamp.now);
        if known.stamps.insert(index, stamp.now).is_some() {
            return;
        }
        let write = xxh3_64(bytes);
        if !matches!(outcome, Err(failure) if failure.kind == FailureKind::SessionExpired) {
            known.done.insert(write);
            return;
        }
        let origin = codec::decode_proposal(bytes).ok().and_then(|proposal| proposal.origin);
        let opened = origin.and_then(|origin| known.stamps.get(&origin.session.0).copied());
        // A younger session was ended by its client instead.
        if opened.is_some_and(|opened| stamp.now.saturating_sub(opened) > SESSION_IDLE_NANOS) {
            known.expired.0 += 1;
            known.expired.1 += u64::from(known.done.contains(&write));
        }
    }

    fn one_applied(&self, who: &str, log_id: LogId, payload: u64, outcome: Option<u64>) {
        let mut known = self.known();
        let new = || EntryKnown { log_id, payload, outcome, by: who.to_owned(), without: Without::default() };
        let before = known.entries.entry(log_id.index).or_insert_with(new);
        let same = (before.log_id, before.payload) == (log_id, payload)
            && before.outcome.is_none_or(|before| outcome.is_none_or(|outcome| before == outcome));
        if same {
            before.outcome = before.outcome.or(outcome);
            return;
        }
        let EntryKnown { log_id: other_id, payload: other_payload, outcome: other_outcome, by, .. } = before;
        let text = format!(
            "entry {log_id}: {who} applied {payload:x} with {outcome:x?}, but {by} {other_id}, {other_payload:x} with \
             {other_outcome:x?}"
        );
        drop(known);
        self.violation(text);
    }

    /// Returns the time at which the proposal at an index is applied: its stamp, or an earlier one that is later.
    /// `None` if no node has told the stamp.
    pub fn time_at(&self, index: u64) -> Option<u64> {
        let known = self.known();
        known.stamps.contains_key(&index).then(|| known.stamps.range(..=index).map(|(_, stamp)| *stamp).max())?
    }

    /// Returns the term of the last entry that any node has applied.
    pub fn last_term(&self) -> u64 {
        self.known().entries.last_key_value().map_or(0, |(_, entry)| entry.log_id.term)
    }

    /// Records that a node, in its life `who`, can't apply an entry.
    pub fn could_not_apply(&self, who: &str, fault: &StoreFault) {
        self.note(who, format_args!("did not apply: {fault}"));
        if !matches!(fault, StoreFault::Closed) {
            let mut known = self.known();
            known.unable.insert(node_of(who).to_owned());
            known.disks_failed += u64::from(matches!(fault, StoreFault::Io(_)));
        }
    }

    /// Returns how often a node could not apply an entry because its disk failed.
    pub fn disks_failed(&self) -> u64 {
        self.known().disks_failed
    }

    /// Whether at least `majority` nodes have failed to apply some entry, and so may have voted to reject it.
    pub fn may_reject(&self, majority: usize) -> bool {
        self.known().unable.len() >= majority
    }

    /// Records that an operator rejects an entry. A node that was lost may have applied and acknowledged it.
    pub fn forced(&self) {
        self.known().is_forced = true;
    }

    /// Whether an operator has rejected an entry.
    pub fn is_forced(&self) -> bool {
        self.known().is_forced
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.0.known)
    }
}

/// Returns the name of the node whose life is `who`.
fn node_of(who: &str) -> &str {
    who.split_once('.').map_or(who, |(name, _)| name)
}

/// Whether `who` is a life of a node.
fn is_life_of(who: &str, name: &str) -> bool {
    who.rsplit_once('.').is_some_and(|(node, _)| node == name)
}

/// Returns what the outcome hash takes in of the outcome of an entry.
fn canonical(outcome: &Outcome, has_outcome: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    if has_outcome {
        codec::append_canonical_outcome(&mut bytes, outcome);
    }
    bytes
}
