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
    /// The rows that were written with keys.
    rows: BTreeMap<Key, u64>,
}

impl Keys {
    /// Records that a write with keys has so many rows.
    pub fn written(&mut self, key: Key, rows: usize) {
        if rows > 0 {
            self.rows.insert(key, rows as u64);
        }
    }

    /// Returns what is wrong.
    pub fn wrong(&self) -> Vec<String> {
        let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
        self.rows.keys().for_each(|(client, _)| *counts.entry(*client).or_default() += 1);
        let mut wrong = Vec::new();
        for (what, found) in [("lists", &self.lists), ("sets", &self.sets)] {
            if *found != self.rows {
                wrong.push(format!("the {what} under keys hold {found:?}, and the rows are {:?}", self.rows));
            }
        }
        if self.counts != counts {
            wrong.push(format!("the counters under keys are {:?}, not {counts:?}", self.counts));
        }
        let is_known = |(client, number): (&i64, &i64)| self.rows.contains_key(&(*client, *number));
        if !(self.long.keys().eq(counts.keys()) && self.long.iter().all(is_known)) {
            wrong.push(format!("the last numbers under keys are {:?}, and the rows are {:?}", self.long, self.rows));
        }
        wrong
    }
}
