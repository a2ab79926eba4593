//! A bounded part of the model check; `cargo run --release -p quorate-wal --example l0` runs as many cases as
//! requested.

#![allow(clippy::panic, reason = "tests")]

mod harness;

use harness::{Tally, run_program};

/// The number of programs in this test: some ten thousand cases, which take a few seconds.
const PROGRAMS: u64 = 60;

#[test]
fn no_crash_loses_acknowledged_records() {
    let mut tally = Tally::default();
    for program in 0..PROGRAMS {
        if let Err(broken) = run_program(program, &mut tally) {
            panic!("{broken:?}");
        }
    }
    assert_eq!(tally.missing(), [""; 0], "these classes never happened");
}
