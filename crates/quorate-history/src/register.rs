//! Checks whether the operations on registers are linearizable.
//!
//! The search of Wing and Gong with Lowe's cache of visited states, as in Porcupine: take any operation that no other
//! must precede, check that the register gives the result that the client received, continue with the rest, and
//! backtrack if no operation fits. A state that the same set of operations has already reached is not tried again. Keys
//! are independent of each other (linearizability is local), so each is searched alone.
//!
//! Invariants:
//! - An operation of unknown outcome may be taken at any time after its start, or not at all.
//! - A search that exceeds its step limit is [`Verdict::Unknown`].

use std::collections::{BTreeMap, HashSet};

use crate::{Nanos, Op, Outcome, Verdict};

#[cfg(test)]
mod tests;

/// The value of a register; initially `None`.
pub type Held = Option<u64>;

/// An operation on one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The register.
    pub key: u64,
    /// The operation.
    pub action: Action,
}

/// An operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads this value.
    Read(Held),
    /// Writes this value.
    Write(u64),
    /// Replaces `old` with `new` if the register holds `old`. If the outcome is unknown, `swapped` is ignored.
    Swap {
        /// The expected value.
        old: u64,
        /// The new value.
        new: u64,
        /// Whether the value was replaced.
        swapped: bool,
    },
}

impl Action {
    /// The register's value afterwards, or `None` if this result is impossible.
    fn apply(self, held: Held) -> Option<Held> {
        match self {
            Self::Read(found) => (found == held).then_some(held),
            Self::Write(value) => Some(Some(value)),
            Self::Swap { old, new, swapped } if swapped == (held == Some(old)) => {
                Some(if swapped { Some(new) } else { held })
            }
            Self::Swap { .. } => None,
        }
    }
}

/// Checks whether the history is linearizable. The search for each key takes at most `steps_max` steps.
pub fn check(history: &[Op<Access>], steps_max: u64) -> Verdict {
    let mut keys: BTreeMap<u64, Vec<Op<Action>>> = BTreeMap::new();
    for op in history {
        let Op { begun, ended, outcome, what: Access { key, action } } = *op;
        // Failed operations, and reads without a result, constrain nothing.
        let action = match (outcome, action) {
            (Outcome::Failed, _) | (Outcome::Unknown, Action::Read(_)) => continue,
            // If it did not swap, it is the same as if it never happened.
            (Outcome::Unknown, Action::Swap { old, new, .. }) => Action::Swap { old, new, swapped: true },
            (_, action) => action,
        };
        keys.entry(key).or_default().push(Op { begun, ended, outcome, what: action });
    }
    let verdicts = keys.iter().map(|(key, ops)| Search::new(ops).run(*key, steps_max));
    verdicts.fold(Verdict::Right, Verdict::and)
}

/// The start or end of an operation on the time line.
#[derive(Clone, Copy)]
enum Mark {
    Begin(usize),
    End(usize),
}

/// The marks of a key in order of time, in a linked list from which operations are removed and reinserted.
struct Search<'a> {
    ops: &'a [Op<Action>],
    /// The marks by position. Position 0 is the head of the circular list.
    marks: Vec<Mark>,
    next: Vec<usize>,
    before: Vec<usize>,
    /// The position of each operation's end mark, if it has one.
    end_of: Vec<Option<usize>>,
}

impl<'a> Search<'a> {
    fn new(ops: &'a [Op<Action>]) -> Self {
        let begins = ops.iter().enumerate().map(|(number, op)| (op.begun, false, number));
        let ended = ops.iter().enumerate().filter(|(_, op)| op.is_done());
        // At equal times, starts come before ends, so that such operations count as concurrent.
        let mut times: Vec<(Nanos, bool, usize)> =
            begins.chain(ended.map(|(number, op)| (op.ended, true, number))).collect();
        times.sort_unstable();
        let mut end_of = vec![None; ops.len()];
        let mut marks = vec![Mark::End(usize::MAX)];
        for (_, is_end, number) in times {
            if is_end {
                end_of[number] = Some(marks.len());
            }
            marks.push(if is_end { Mark::End(number) } else { Mark::Begin(number) });
        }
        let count = marks.len();
        let next = (0..count).map(|at| (at + 1) % count).collect();
        let before = (0..count).map(|at| (at + count - 1) % count).collect();
        Self { ops, marks, next, before, end_of }
    }

    fn run(mut self, key: u64, steps_max: u64) -> Verdict {
        let mut left = self.end_of.iter().flatten().count();
        let mut taken = vec![0_u64; self.ops.len().div_ceil(64)];
        let mut visited: HashSet<(Vec<u64>, Held)> = HashSet::new();
        let mut path: Vec<(usize, Held)> = Vec::new();
        let mut held: Held = None;
        let mut furthest = (0, usize::MAX);
        let mut at = self.next[0];
        for _ in 0..steps_max {
            if left == 0 {
                return Verdict::Right;
            }
            match self.marks[at] {
                Mark::Begin(number) => {
                    let after = self.ops[number].what.apply(held).filter(|after| {
                        flip(&mut taken, number);
                        let is_new = visited.insert((taken.clone(), *after));
                        if !is_new {
                            flip(&mut taken, number);
                        }
                        is_new
                    });
                    let Some(after) = after else {
                        at = self.next[at];
                        continue;
                    };
                    path.push((at, held));
                    held = after;
                    left -= usize::from(self.end_of[number].is_some());
                    self.remove(at, number);
                    at = self.next[0];
                }
                // This operation has ended without being taken, so the last choice was wrong.
                Mark::End(stuck) => {
                    if path.len() >= furthest.0 {
                        furthest = (path.len(), stuck);
                    }
                    let Some((last, state)) = path.pop() else {
                        return Verdict::Wrong(vec![self.describe(key, furthest)]);
                    };
                    let Mark::Begin(number) = self.marks[last] else { break };
                    held = state;
                    flip(&mut taken, number);
                    left += usize::from(self.end_of[number].is_some());
                    self.reinsert(last, number);
                    at = self.next[last];
                }
            }
        }
        Verdict::Unknown(format!(
            "register {key}: {} operations, the search stopped after {steps_max} steps",
            self.ops.len()
        ))
    }

    fn remove(&mut self, begin: usize, number: usize) {
        for at in [Some(begin), self.end_of[number]].into_iter().flatten() {
            let (before, next) = (self.before[at], self.next[at]);
            self.next[before] = next;
            self.before[next] = before;
        }
    }

    /// Reinserts the marks in the reverse order of their removal.
    fn reinsert(&mut self, begin: usize, number: usize) {
        for at in [self.end_of[number], Some(begin)].into_iter().flatten() {
            let (before, next) = (self.before[at], self.next[at]);
            self.next[before] = at;
            self.before[next] = at;
        }
    }

    fn describe(&self, key: u64, (many, stuck): (usize, usize)) -> String {
        let total = self.ops.len();
        let stuck = self.ops.get(stuck);
        format!(
            "register {key}: no order explains its {total} operations; after {many} of them, {stuck:?} does not fit"
        )
    }
}

/// Flips a bit.
fn flip(bits: &mut [u64], number: usize) {
    bits[number / 64] ^= 1 << (number % 64);
}
