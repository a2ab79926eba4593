//! Finds out which faults a failing seed can do without.
//!
//! Each fault of a seed has its number, and a run can leave some of them out ([`run_without`]). What comes after the
//! first one that is left out is another run, but as much a function of the seed and of what is left out. So faults are
//! left out for good where the run still fails in the same way: first half of them, then smaller and smaller parts, as
//! in delta debugging (Zeller, Hildebrandt: "Simplifying and Isolating Failure-Inducing Input", 2002).

use std::collections::BTreeSet;

use crate::scenario::{Failure, Plan, run_without};

/// Runs that this may take.
const RUNS_MAX: u32 = 200;

/// The faults that a failure can do without, and the failure that is left. `tell` hears of each that is kept.
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
        // The last ones first: what came after the fault that matters is the most that can go.
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

/// Whether two runs failed in the same way: in the same words, whatever the numbers in them.
fn is_alike(one: &Failure, other: &Failure) -> bool {
    let words = |failure: &Failure| {
        let first = failure.violations.first().map_or("", String::as_str);
        first.chars().filter(|letter| letter.is_alphabetic()).take(WORDS_COMPARED).collect::<String>()
    };
    words(one) == words(other)
}

/// Letters of a violation that are compared.
const WORDS_COMPARED: usize = 40;
