//! The model check of the log, as long as asked for.
//!
//! `cargo run --release -p quorate-wal --example l0 -- --cases 1000000 [--first PROGRAM]` prints how many cases ran, how
//! fast, and how often each kind of end, fault and verdict occurred. It fails when a promise is broken or when a kind
//! never occurred. A broken case names its program: `--first PROGRAM --cases 1` runs it again.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program for people")]

use std::process::ExitCode;
use std::time::Instant;

#[path = "../tests/l0/harness/mod.rs"]
mod harness;

use harness::{Tally, run_program};

fn main() -> ExitCode {
    let (cases, first) = (argument("--cases").unwrap_or(1_000_000), argument("--first").unwrap_or(0));
    let (mut tally, mut done, mut program) = (Tally::default(), 0, first);
    let start = Instant::now();
    while done < cases {
        match run_program(program, &mut tally) {
            Ok(count) => done += count,
            Err(broken) => {
                println!("BROKEN {broken:#?}");
                return ExitCode::FAILURE;
            }
        }
        program += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{done} cases of {} programs in {seconds:.1} s, {:.0} a second", program - first, done as f64 / seconds);
    tally.lines().iter().for_each(|line| println!("{line}"));
    let missing = tally.missing();
    if missing.is_empty() || cases < 10_000 {
        return ExitCode::SUCCESS;
    }
    println!("never happened: {missing:?}");
    ExitCode::FAILURE
}

fn argument(name: &str) -> Option<u64> {
    std::env::args().skip_while(|argument| argument != name).nth(1)?.parse().ok()
}
