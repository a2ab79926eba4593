//! Checks whether transactions that append to lists and read them are strictly serializable.
//!
//! Values are unique, so a list that was read shows the order of the transactions that appended to it (as in Elle). The
//! edges of Adya's dependency graph follow from it, plus one kind of edge for time:
//! - `ww`: the second appended after the first one's value; `wr`: the second read the first one's value as the last;
//!   `rw`: the first read a list to which the second appended next;
//! - `rt`: the first was acknowledged before the second began.
//!
//! A cycle is an anomaly: its transactions can't have run one after the other. Some anomalies need no graph: a value of
//! a failed transaction (G1a), an intermediate state of a transaction (G1b), two reads of a list of which neither is a
//! prefix of the other, a duplicate value, a value that was never appended, a transaction that does not see its own
//! appends.
//!
//! Invariants:
//! - A transaction of unknown outcome counts, as a whole, if any of its values was read.
//! - Values that were never read come after all that were, because reads show prefixes of one order.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{Op, Outcome, Verdict};

mod graph;
#[cfg(test)]
mod tests;

use graph::{Edge, Graph};

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Appends a value that is appended nowhere else.
    Append {
        /// The list.
        key: u64,
        /// The value.
        value: u64,
    },
    /// Reads a list.
    Read {
        /// The list.
        key: u64,
        /// The values read; ignored unless the transaction is known to be done.
        values: Vec<u64>,
    },
}

/// Steps that take effect together, in this order.
pub type Transaction = Vec<Step>;

/// The kind of an anomaly, by Adya's name if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Two reads of a list of which neither is a prefix of the other.
    IncompatibleOrder,
    /// A value that a list holds twice.
    Duplicate,
    /// A value that no transaction appended to the list.
    Garbage,
    /// A transaction that does not see its own effects.
    Internal,
    /// A read of a value of a failed transaction.
    G1a,
    /// A read that shows only part of what a transaction appended.
    G1b,
    /// A cycle of `ww` edges.
    G0,
    /// A cycle of `ww` and `wr` edges.
    G1c,
    /// A cycle with one `rw` edge.
    GSingle,
    /// A cycle with several `rw` edges.
    G2,
    /// Like [`Kind::G0`], with `rt` edges in the cycle.
    G0RealTime,
    /// Like [`Kind::G1c`], with `rt` edges in the cycle.
    G1cRealTime,
    /// Like [`Kind::GSingle`], with `rt` edges in the cycle, such as a stale read or a lost write.
    GSingleRealTime,
    /// Like [`Kind::G2`], with `rt` edges in the cycle.
    G2RealTime,
}

/// An anomaly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Its kind.
    pub kind: Kind,
    /// A description of what was read, or of the cycle.
    pub text: String,
}

/// Checks whether the transactions are strictly serializable.
pub fn check(history: &[Op<Transaction>]) -> Verdict {
    Verdict::of(anomalies(history).into_iter().map(|Anomaly { kind, text }| format!("{kind:?}: {text}")).collect())
}

/// All anomalies found. Cycles are searched for only if the lists themselves show no anomaly.
pub fn anomalies(history: &[Op<Transaction>]) -> Vec<Anomaly> {
    let mut lists = Lists::of(history);
    if lists.anomalies.is_empty() { lists.graph().anomalies() } else { lists.anomalies }
}

/// An append of a value: its transaction and its list.
#[derive(Clone, Copy)]
struct Appended {
    by: usize,
    key: u64,
    /// Whether this is the transaction's last append to the list.
    last: bool,
}

/// The appends and reads of all lists.
struct Lists<'a> {
    history: &'a [Op<Transaction>],
    appended: HashMap<u64, Appended>,
    /// The longest read of each list.
    longest: BTreeMap<u64, &'a [u64]>,
    anomalies: Vec<Anomaly>,
}

impl<'a> Lists<'a> {
    fn of(history: &'a [Op<Transaction>]) -> Self {
        let mut lists = Self { history, appended: HashMap::new(), longest: BTreeMap::new(), anomalies: Vec::new() };
        for (by, op) in history.iter().enumerate() {
            for (at, step) in op.what.iter().enumerate() {
                if let Step::Append { key, value } = step {
                    let more = |step: &Step| matches!(step, Step::Append { key: other, .. } if other == key);
                    let last = !op.what[at + 1..].iter().any(more);
                    lists.appended.insert(*value, Appended { by, key: *key, last });
                }
            }
        }
        for (_, key, values) in reads(history) {
            let longest = lists.longest.entry(key).or_default();
            if values.len() > longest.len() {
                *longest = values;
            }
        }
        for (by, key, values) in reads(history) {
            lists.check_read(by, key, values);
        }
        lists.check_longest();
        (0..history.len()).filter(|by| history[*by].is_done()).for_each(|by| lists.check_own(by));
        lists
    }

    fn found(&mut self, kind: Kind, text: String) {
        self.anomalies.push(Anomaly { kind, text });
    }

    /// Checks a single read against the longest one and against its last writer.
    fn check_read(&mut self, by: usize, key: u64, values: &[u64]) {
        let longest = self.longest[&key];
        if !longest.starts_with(values) {
            let text = format!("list {key} was read as {values:?} and as {longest:?}");
            self.found(Kind::IncompatibleOrder, text);
        }
        let last = values.last().and_then(|value| self.appended.get(value));
        if let Some(Appended { by: writer, last: false, .. }) = last.filter(|last| last.by != by) {
            let text =
                format!("list {key} was read as {values:?}, an intermediate state of {:?}", self.history[*writer].what);
            self.found(Kind::G1b, text);
        }
    }

    /// Checks the values of each list: their uniqueness and their origin.
    fn check_longest(&mut self) {
        for (key, values) in self.longest.clone() {
            let mut seen = HashSet::new();
            for value in values {
                if !seen.insert(value) {
                    self.found(Kind::Duplicate, format!("list {key} holds {value} twice"));
                }
                match self.appended.get(value).copied() {
                    Some(appended) if appended.key == key => {
                        if self.history[appended.by].outcome == Outcome::Failed {
                            self.found(Kind::G1a, format!("list {key} holds {value}, whose transaction failed"));
                        }
                    }
                    _ => self
                        .found(Kind::Garbage, format!("list {key} holds {value}, which no transaction appended to it")),
                }
            }
        }
    }

    /// Checks that a transaction sees its own effects.
    fn check_own(&mut self, by: usize) {
        let history = self.history;
        // Each list as the transaction last read it, if it did, and its own appends since then.
        let mut known: HashMap<u64, (Option<&[u64]>, Vec<u64>)> = HashMap::new();
        for step in &history[by].what {
            match step {
                Step::Append { key, value } => known.entry(*key).or_default().1.push(*value),
                Step::Read { key, values } => {
                    let (before, own) = known.entry(*key).or_default();
                    let sees = match before {
                        Some(before) => [before, own.as_slice()].concat() == *values,
                        None => values.ends_with(own),
                    };
                    if !sees {
                        let text = format!("own effects on list {key} are missing in {:?}", history[by].what);
                        self.anomalies.push(Anomaly { kind: Kind::Internal, text });
                    }
                    *before = Some(values);
                    own.clear();
                }
            }
        }
    }

    /// The dependency graph of the transactions that certainly happened.
    fn graph(&mut self) -> Graph<'a> {
        let writers = self.longest.values().flat_map(|values| values.iter());
        let mut happened: Vec<bool> = self.history.iter().map(Op::is_done).collect();
        for appended in writers.filter_map(|value| self.appended.get(value)) {
            happened[appended.by] = true;
        }
        let mut graph = Graph::new(self.history, happened);
        let unseen = self.unseen(&graph);
        for (key, values) in &self.longest {
            let behind = unseen.get(key).map_or(&[][..], Vec::as_slice);
            for pair in values.windows(2) {
                graph.add(self.writer(pair[0]), self.writer(pair[1]), Edge::Ww);
            }
            for writer in behind {
                let last = values.last().map(|value| self.writer(*value));
                last.into_iter().for_each(|last| graph.add(last, *writer, Edge::Ww));
            }
        }
        for (by, key, values) in reads(self.history) {
            // A transaction's own values are no dependency on another transaction.
            let others = values.iter().rposition(|value| self.writer(*value) != by).map_or(0, |at| at + 1);
            if let Some(last) = values[..others].last() {
                graph.add(self.writer(*last), by, Edge::Wr);
            }
            match self.longest[&key].get(values.len()) {
                Some(next) => graph.add(by, self.writer(*next), Edge::Rw),
                None => unseen.get(&key).into_iter().flatten().for_each(|writer| graph.add(by, *writer, Edge::Rw)),
            }
        }
        graph
    }

    /// For each list, the transactions that certainly happened and appended a value that was never read.
    fn unseen(&self, graph: &Graph<'_>) -> HashMap<u64, Vec<usize>> {
        let mut unseen: HashMap<u64, Vec<usize>> = HashMap::new();
        for (value, Appended { by, key, .. }) in &self.appended {
            if graph.happened(*by) && !self.longest.get(key).is_some_and(|longest| longest.contains(value)) {
                unseen.entry(*key).or_default().push(*by);
            }
        }
        unseen
    }

    fn writer(&self, value: u64) -> usize {
        self.appended[&value].by
    }
}

/// All reads of transactions that are done: the transaction, the list, and the values read.
fn reads(history: &[Op<Transaction>]) -> impl Iterator<Item = (usize, u64, &[u64])> {
    let done = history.iter().enumerate().filter(|(_, op)| op.is_done());
    done.flat_map(|(by, op)| {
        op.what.iter().filter_map(move |step| match step {
            Step::Read { key, values } => Some((by, *key, values.as_slice())),
            Step::Append { .. } => None,
        })
    })
}
