//! A bounded share of the model check; `cargo run --release -p quorate-wal --example l0` runs as much as asked for.

#![allow(clippy::panic, reason = "tests")]

mod harness;

use harness::{Tally, run_program};

/// Programs of this test. A run takes some seconds; their cases are some ten thousand.
const PROGRAMS: u64 = 60;

#[test]
fn no_crash_point_loses_what_was_acknowledged() {
    let mut tally = Tally::default();
    for program in 0..PROGRAMS {
        if let Err(broken) = run_program(program, &mut tally) {
            panic!("{broken:?}");
        }
    }
    assert_eq!(tally.missing(), [""; 0], "these never happened");
}
