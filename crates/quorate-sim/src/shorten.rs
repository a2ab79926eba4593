//! Reduces a failing seed to the faults that it needs to fail.
//!
//! Each fault of a seed has a number, and a run can leave out some of them ([`run_without`]). After the first fault
//! that is left out the run takes another course, but it is still determined by the seed and the set of omitted faults.
//! Faults stay omitted if the run still fails in the same way without them: first half of them, then smaller and
//! smaller parts, as in delta debugging (Zeller, Hildebrandt: "Simplifying and Isolating Failure-Inducing Input",
//! 2002).

use std::collections::BTreeSet;

use crate::scenario::{Failure, Plan, run_without};

/// The maximum number of runs.
const RUNS_MAX: u32 = 200;

/// Returns a set of faults that can be left out while the seed still fails in the same way, and the failure without
/// them. Calls `tell` with the omitted faults, and the number of faults drawn, whenever more faults can be left out.
pub fn shorten(
    failure: Box<Failure>,
    plan: &Plan,
    mut tell: impl FnMut(&BTreeSet<u32>, u32),
) -> (BTreeSet<u32>, Box<Failure>) {
    let (mut skipped, mut best) = (BTreeSet::new(), failure);
    let mut part = best.faults.div_ceil(2);
    let mut runs = 0;
    while part > 0 {
        let left: Vec<u32> = (0..best.faults).filter(|fault| !skipped.contains(fault)).collect();
        let mut is_shorter = false;
        // The last faults are tried first: those after the faults that matter are the easiest to leave out.
        for chunk in left.rchunks(usize::try_from(part).unwrap_or(1)) {
            runs += 1;
            if runs > RUNS_MAX {
                return (skipped, best);
            }
            let fewer: BTreeSet<u32> = skipped.iter().chain(chunk).copied().collect();
            match run_without(best.seed, plan, &fewer) {
                Err(failure) if is_alike(&failure, &best) => {
                    (skipped, best, is_shorter) = (fewer, failure, true);
                    tell(&skipped, best.faults);
                }
                _ => {}
            }
        }
        if !is_shorter || part > 1 {
            part /= 2;
        }
    }
    (skipped, best)
}

/// Whether two runs failed in the same way: their first violations begin with the same letters, digits and punctuation
/// apart.
fn is_alike(one: &Failure, other: &Failure) -> bool {
    let words = |failure: &Failure| {
        let first = failure.violations.first().map_or("", String::as_str);
        first.chars().filter(|letter| letter.is_alphabetic()).take(WORDS_COMPARED).collect::<String>()
    };
    words(one) == words(other)
}

/// The number of letters of a violation that are compared.
const WORDS_COMPARED: usize = 40;
