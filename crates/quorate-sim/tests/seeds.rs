//! A few short seeds pass, and a repeated seed gives the same events.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use quorate::config::Durability;
use quorate_sim::{Plan, run};

#[test]
fn short_seeds_pass() {
    for seed in 0..3 {
        if let Err(failure) = run(seed, &Plan::SHORT) {
            std::panic::panic_any(failure.to_string());
        }
    }
}

#[test]
fn short_seeds_pass_with_durability_os() {
    for seed in 0..3 {
        if let Err(failure) = run(seed, &Plan { durability: Durability::Os, ..Plan::SHORT }) {
            std::panic::panic_any(failure.to_string());
        }
    }
}

#[test]
fn a_seed_gives_the_same_events_again() {
    let hash = |seed| run(seed, &Plan::SHORT).unwrap().trace_hash;
    assert_eq!(hash(42), hash(42));
    assert_ne!(hash(42), hash(43));
}
