//! Transactions that append to lists and read them: are they strictly serializable?
//!
//! Values are unique, so a list that was read tells the order of the transactions that made it (as in Elle). From it
//! follow the edges of the dependency graph of Adya, and one more kind for time:
//! - `ww`: appended behind the other's value; `wr`: read the other's value as the last; `rw`: read a list to which the
//!   other appended next;
//! - `rt`: was acknowledged before the other began.
//!
//! A cycle is an anomaly: such transactions can't have run one after the other. Some anomalies need no graph: a value
//! of a transaction that failed (G1a), the state in the middle of one (G1b), lists that are no prefixes of each other,
//! a value twice or from nowhere, a transaction that does not see its own appends.
//!
//! Invariants:
//! - A transaction of unknown outcome takes part once somebody saw one of its values, and then as a whole.
//! - Values that nobody saw stand behind all that were seen: reads show prefixes of one order.

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
        /// To which list.
        key: u64,
        /// What.
        value: u64,
    },
    /// Reads a list.
    Read {
        /// Which.
        key: u64,
        /// What it showed; not looked at where the transaction is not known to be done.
        values: Vec<u64>,
    },
}

/// Steps that take effect together, in their order.
pub type Transaction = Vec<Step>;

/// What was found, by Adya's names where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Two reads of a list of which none is a prefix of the other.
    IncompatibleOrder,
    /// A value that is there twice.
    Duplicate,
    /// A value that nobody appended.
    Garbage,
    /// A transaction does not see what it did itself.
    Internal,
    /// A value of a transaction that failed.
    G1a,
    /// A value that its transaction appended more to, without that.
    G1b,
    /// A cycle of `ww`.
    G0,
    /// A cycle of `ww` and `wr`.
    G1c,
    /// A cycle with one `rw`.
    GSingle,
    /// A cycle with several `rw`.
    G2,
    /// The same with `rt` in the cycle.
    G0RealTime,
    /// The same with `rt` in the cycle.
    G1cRealTime,
    /// The same with `rt` in the cycle: a stale read, or a lost write.
    GSingleRealTime,
    /// The same with `rt` in the cycle.
    G2RealTime,
}

/// An anomaly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// What it is called.
    pub kind: Kind,
    /// What it is made of.
    pub text: String,
}

/// Whether the transactions are strictly serializable.
pub fn check(history: &[Op<Transaction>]) -> Verdict {
    Verdict::of(anomalies(history).into_iter().map(|Anomaly { kind, text }| format!("{kind:?}: {text}")).collect())
}

/// All anomalies that can be told apart. Cycles are looked for only if the lists themselves are in order.
pub fn anomalies(history: &[Op<Transaction>]) -> Vec<Anomaly> {
    let mut lists = Lists::of(history);
    if lists.anomalies.is_empty() { lists.graph().anomalies() } else { lists.anomalies }
}

/// A value, by the list and the order in which it was appended to that by its transaction.
#[derive(Clone, Copy)]
struct Appended {
    by: usize,
    key: u64,
    /// Whether its transaction appended nothing more to the list.
    last: bool,
}

/// What is known of all lists.
struct Lists<'a> {
    history: &'a [Op<Transaction>],
    appended: HashMap<u64, Appended>,
    /// The longest that was read of each list.
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

    /// What a read alone can be wrong in.
    fn check_read(&mut self, by: usize, key: u64, values: &[u64]) {
        let longest = self.longest[&key];
        if !longest.starts_with(values) {
            let text = format!("list {key} was read as {values:?} and as {longest:?}");
            self.found(Kind::IncompatibleOrder, text);
        }
        let last = values.last().and_then(|value| self.appended.get(value));
        if let Some(Appended { by: writer, last: false, .. }) = last.filter(|last| last.by != by) {
            let text = format!("list {key} was read as {values:?}, in the middle of {:?}", self.history[*writer].what);
            self.found(Kind::G1b, text);
        }
    }

    /// What the values themselves can be wrong in.
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
                    _ => self.found(Kind::Garbage, format!("list {key} holds {value}, which nobody appended to it")),
                }
            }
        }
    }

    /// Whether a transaction sees what it did itself.
    fn check_own(&mut self, by: usize) {
        let history = self.history;
        // The list if it was read before, and what was appended since.
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
                        let text = format!("list {key} in {:?}", history[by].what);
                        self.anomalies.push(Anomaly { kind: Kind::Internal, text });
                    }
                    *before = Some(values);
                    own.clear();
                }
            }
        }
    }

    /// The graph of all that certainly happened.
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
            // What a transaction appended itself it did not learn of another one.
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

    /// Who appended to each list what nobody read, and did so certainly.
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

/// All reads that were answered: by which transaction, of which list, and what it showed.
fn reads(history: &[Op<Transaction>]) -> impl Iterator<Item = (usize, u64, &[u64])> {
    let done = history.iter().enumerate().filter(|(_, op)| op.is_done());
    done.flat_map(|(by, op)| {
        op.what.iter().filter_map(move |step| match step {
            Step::Read { key, values } => Some((by, *key, values.as_slice())),
            Step::Append { .. } => None,
        })
    })
}
