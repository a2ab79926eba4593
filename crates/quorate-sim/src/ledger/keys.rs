//! What a cluster holds under keys, compared with the rows that were written with them.
//!
//! Invariant: rows and keys of a batch take effect together, so the rows say what the keys must hold.

use std::collections::BTreeMap;

use super::Key;

/// What the cluster holds under keys at the end.
#[derive(Debug, Default)]
pub struct Keys {
    /// How often each number is in the list of its client, and in its set.
    pub lists: BTreeMap<Key, u64>,
    pub sets: BTreeMap<Key, u64>,
    /// The counter of each client.
    pub counts: BTreeMap<i64, i64>,
    /// The number that each client wrote last.
    pub long: BTreeMap<i64, i64>,
}

impl Keys {
    /// Returns what is wrong. `rows` are those that were written with keys.
    pub fn wrong(&self, rows: &BTreeMap<Key, u64>) -> Vec<String> {
        let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
        rows.keys().for_each(|(client, _)| *counts.entry(*client).or_default() += 1);
        let mut wrong = Vec::new();
        for (what, found) in [("lists", &self.lists), ("sets", &self.sets)] {
            if found != rows {
                wrong.push(format!("the {what} under keys hold {found:?}, and the rows are {rows:?}"));
            }
        }
        if self.counts != counts {
            wrong.push(format!("the counters under keys are {:?}, not {counts:?}", self.counts));
        }
        let is_known = |(client, number): (&i64, &i64)| rows.contains_key(&(*client, *number));
        if !(self.long.keys().eq(counts.keys()) && self.long.iter().all(is_known)) {
            wrong.push(format!("the last numbers under keys are {:?}, and the rows are {rows:?}", self.long));
        }
        wrong
    }
}
