//! Registers: is there an order of the operations on each key that explains all answers?
//!
//! The search of Wing and Gong with Lowe's memory, as in Porcupine: take any operation that no other one must precede,
//! see whether the register answers as its client was told, go on with the rest; go back where nothing fits. States
//! that were reached before by the same set of operations are not tried again. Keys are independent of each other
//! (linearizability is local), so each is searched alone.
//!
//! Invariants:
//! - An operation of unknown outcome may be taken at any time after its beginning, and need not be taken at all.
//! - A search that takes more steps than it may is [`Verdict::Unknown`].

use std::collections::{BTreeMap, HashSet};

use crate::{Nanos, Op, Outcome, Verdict};

#[cfg(test)]
mod tests;

/// What a register holds; nothing at first.
pub type Held = Option<u64>;

/// An operation on one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which register.
    pub key: u64,
    /// What is done to it.
    pub action: Action,
}

/// What is done to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was found to hold this.
    Read(Held),
    /// It holds this from now on.
    Write(u64),
    /// Where it holds `old`, it holds `new` from now on. Of an unknown outcome it is not known which.
    Swap {
        /// What it must hold.
        old: u64,
        /// What it then holds.
        new: u64,
        /// Whether it did.
        swapped: bool,
    },
}

impl Action {
    /// The register afterwards, if it may have answered so.
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

/// Whether the history is linearizable. Each key may take so many steps of the search.
pub fn check(history: &[Op<Access>], steps_max: u64) -> Verdict {
    let mut keys: BTreeMap<u64, Vec<Op<Action>>> = BTreeMap::new();
    for op in history {
        let Op { begun, ended, outcome, what: Access { key, action } } = *op;
        // What did not happen, or changed nothing and was not answered, says nothing.
        let action = match (outcome, action) {
            (Outcome::Failed, _) | (Outcome::Unknown, Action::Read(_)) => continue,
            // One that was not swapped is one that never happened.
            (Outcome::Unknown, Action::Swap { old, new, .. }) => Action::Swap { old, new, swapped: true },
            (_, action) => action,
        };
        keys.entry(key).or_default().push(Op { begun, ended, outcome, what: action });
    }
    let verdicts = keys.iter().map(|(key, ops)| Search::new(ops).run(*key, steps_max));
    verdicts.fold(Verdict::Right, Verdict::and)
}

/// An end of an operation on the line of time.
#[derive(Clone, Copy)]
enum Mark {
    Begin(usize),
    End(usize),
}

/// The marks of a key in the order of time, as a list from which operations are taken out and put back.
struct Search<'a> {
    ops: &'a [Op<Action>],
    /// By place; place 0 is the head of the list, and behind its last.
    marks: Vec<Mark>,
    next: Vec<usize>,
    before: Vec<usize>,
    /// Where each operation's end stands, if it has one.
    end_of: Vec<Option<usize>>,
}

impl<'a> Search<'a> {
    fn new(ops: &'a [Op<Action>]) -> Self {
        let begins = ops.iter().enumerate().map(|(number, op)| (op.begun, false, number));
        let ended = ops.iter().enumerate().filter(|(_, op)| op.is_done());
        // At the same moment, beginnings go first: such operations count as concurrent.
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
        let mut known: HashSet<(Vec<u64>, Held)> = HashSet::new();
        let mut way: Vec<(usize, Held)> = Vec::new();
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
                        let is_new = known.insert((taken.clone(), *after));
                        if !is_new {
                            flip(&mut taken, number);
                        }
                        is_new
                    });
                    let Some(after) = after else {
                        at = self.next[at];
                        continue;
                    };
                    way.push((at, held));
                    held = after;
                    left -= usize::from(self.end_of[number].is_some());
                    self.take_out(at, number);
                    at = self.next[0];
                }
                // It should have been taken by now: the last choice was wrong.
                Mark::End(stuck) => {
                    if way.len() >= furthest.0 {
                        furthest = (way.len(), stuck);
                    }
                    let Some((last, state)) = way.pop() else {
                        return Verdict::Wrong(vec![self.tell(key, furthest)]);
                    };
                    let Mark::Begin(number) = self.marks[last] else { break };
                    held = state;
                    flip(&mut taken, number);
                    left += usize::from(self.end_of[number].is_some());
                    self.put_back(last, number);
                    at = self.next[last];
                }
            }
        }
        Verdict::Unknown(format!("register {key}: {} operations, given up after {steps_max} steps", self.ops.len()))
    }

    fn take_out(&mut self, begin: usize, number: usize) {
        for at in [Some(begin), self.end_of[number]].into_iter().flatten() {
            let (before, next) = (self.before[at], self.next[at]);
            self.next[before] = next;
            self.before[next] = before;
        }
    }

    /// In the other order than they were taken out.
    fn put_back(&mut self, begin: usize, number: usize) {
        for at in [self.end_of[number], Some(begin)].into_iter().flatten() {
            let (before, next) = (self.before[at], self.next[at]);
            self.next[before] = at;
            self.before[next] = at;
        }
    }

    fn tell(&self, key: u64, (many, stuck): (usize, usize)) -> String {
        let total = self.ops.len();
        let stuck = self.ops.get(stuck);
        format!("register {key}: no order explains its {total} operations; after {many} of them, not {stuck:?}")
    }
}

/// Turns a bit.
fn flip(bits: &mut [u64], number: usize) {
    bits[number / 64] ^= 1 << (number % 64);
}
