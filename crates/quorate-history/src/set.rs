//! Checks sets that only grow: every read must show each element that it must, once, and no other.
//!
//! Elements are unique, so times alone determine what a read must and must not show:
//! - no element twice, none that was never added, none whose addition failed or began after the read ended;
//! - every element that was certainly in the set: one that was acknowledged, or shown by another read, before this read
//!   began, or before the addition of an element that this read shows began;
//! - of two reads, one shows every element that the other shows.
//!
//! Invariant: a set that was not read after the last acknowledgment is [`Verdict::Unknown`].

use std::collections::{BTreeMap, HashMap};

use crate::{Nanos, Op, Outcome, Verdict};

#[cfg(test)]
mod tests;

/// An operation on one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Adds an element that is added nowhere else.
    Add {
        /// The set.
        set: u64,
        /// The element.
        element: u64,
    },
    /// Reads all elements of a set.
    Read {
        /// The set.
        set: u64,
        /// The elements read, in any order.
        elements: Vec<u64>,
    },
}

/// Checks whether all reads showed what they must.
pub fn check(history: &[Op<Access>]) -> Verdict {
    let mut sets: BTreeMap<u64, Set<'_>> = BTreeMap::new();
    for op in history {
        match &op.what {
            Access::Add { set, element } => {
                let entry = Addition { begun: op.begun, there_by: op.effective_by(), outcome: op.outcome };
                sets.entry(*set).or_default().added.insert(*element, entry);
            }
            Access::Read { set, elements } if op.is_done() => {
                sets.entry(*set).or_default().reads.push(Read { begun: op.begun, ended: op.ended, elements });
            }
            Access::Read { .. } => {}
        }
    }
    sets.into_iter().map(|(number, set)| set.check(number)).fold(Verdict::Right, Verdict::and)
}

#[derive(Default)]
struct Set<'a> {
    added: HashMap<u64, Addition>,
    reads: Vec<Read<'a>>,
}

#[derive(Clone, Copy)]
struct Addition {
    begun: Nanos,
    /// The time from which every read must show it.
    there_by: Nanos,
    outcome: Outcome,
}

#[derive(Clone, Copy)]
struct Read<'a> {
    begun: Nanos,
    ended: Nanos,
    elements: &'a [u64],
}

impl Set<'_> {
    fn check(mut self, number: u64) -> Verdict {
        let mut findings = Vec::new();
        self.reads.sort_unstable_by_key(|read| (read.elements.len(), read.begun));
        for read in &self.reads {
            for element in read.elements {
                match self.added.get_mut(element) {
                    Some(addition) if addition.outcome == Outcome::Failed => {
                        findings.push(format!("set {number}: {element} was read, but adding it failed"));
                    }
                    Some(addition) if addition.begun > read.ended => {
                        findings.push(format!("set {number}: {element} was read before it was added"));
                    }
                    Some(addition) => addition.there_by = addition.there_by.min(read.ended),
                    None => findings.push(format!("set {number}: {element} was read, but no client added it")),
                }
            }
        }
        for read in &self.reads {
            self.compare(read, number, &mut findings);
        }
        for pair in self.reads.windows(2) {
            let larger = sorted(pair[1].elements);
            let missing = pair[0].elements.iter().find(|element| larger.binary_search(element).is_err());
            findings.extend(
                missing.map(|element| format!("set {number}: of two reads, each lacks some element: {element}")),
            );
        }
        let acknowledged = self.added.values().filter(|addition| addition.outcome == Outcome::Done);
        let last = acknowledged.map(|addition| addition.there_by).max();
        let read_last = self.reads.iter().map(|read| read.begun).max();
        let unread = Verdict::Unknown(format!("set {number}: it was not read after the last acknowledgment"));
        let read_at_the_end = if last.is_some() && read_last <= last { unread } else { Verdict::Right };
        Verdict::of(findings).and(read_at_the_end)
    }

    /// Finds elements that a read lacks or shows twice.
    fn compare(&self, read: &Read<'_>, number: u64, findings: &mut Vec<String>) {
        let elements = sorted(read.elements);
        let twice = elements.windows(2).find(|pair| pair[0] == pair[1]);
        findings.extend(twice.map(|pair| format!("set {number}: {} appears twice in a read", pair[0])));
        let begun = elements.iter().filter_map(|element| self.added.get(element)).map(|addition| addition.begun).max();
        let shows_all_until = read.begun.max(begun.unwrap_or(0));
        let missing = |(element, addition): (&u64, &Addition)| {
            (addition.there_by < shows_all_until && elements.binary_search(element).is_err()).then_some(*element)
        };
        let missing = self.added.iter().filter_map(missing).min();
        findings.extend(missing.map(|element| {
            format!("set {number}: {element} is lost: the read from {} to {} ns lacks it", read.begun, read.ended)
        }));
    }
}

fn sorted(elements: &[u64]) -> Vec<u64> {
    let mut elements = elements.to_vec();
    elements.sort_unstable();
    elements
}
