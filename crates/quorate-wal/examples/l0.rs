//! The model check of the log, with as many cases as requested.
//!
//! `cargo run --release -p quorate-wal --example l0 -- --cases 1000000 [--first PROGRAM]` prints how many cases ran,
//! how fast, and how often each kind of end, fault and verdict occurred. It fails if the log breaks a promise, or if a
//! kind never occurred. A broken case names its program: `--first PROGRAM --cases 1` runs it again. With
//! `--features quorate-env/mutants`, `--mutant NAME` turns on a deliberate bug, which the check must find.

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::expect_used, reason = "a program for people")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[path = "../tests/l0/harness/mod.rs"]
mod harness;

use harness::{Broken, Tally, run_program};
use quorate_env::mutant::Mutant;

fn main() -> ExitCode {
    if let Some(name) = argument::<String>("--mutant")
        && !Mutant::named(&name).is_some_and(Mutant::turn_on)
    {
        println!("{name} can't be turned on: it is unknown, or this build is without the feature quorate-env/mutants");
        return ExitCode::FAILURE;
    }
    let (cases, first) = (argument("--cases").unwrap_or(1_000_000), argument("--first").unwrap_or(0));
    let start = Instant::now();
    let run = Run { next: AtomicU64::new(first), done: AtomicU64::new(0), cases, total: Mutex::default() };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let broken: Vec<Broken> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| run.work())).collect();
        workers.into_iter().filter_map(|worker| worker.join().expect("a completion came out of order")).collect()
    });
    for broken in &broken {
        println!("BROKEN {broken:#?}");
    }
    let (seconds, done) = (start.elapsed().as_secs_f64(), run.done.into_inner());
    let programs = run.next.into_inner() - first;
    println!("{done} cases of {programs} programs in {seconds:.1} s, {:.0} a second", done as f64 / seconds);
    let tally = run.total.into_inner().expect("nobody panicked");
    tally.lines().iter().for_each(|line| println!("{line}"));
    let missing = tally.missing();
    if cases >= 10_000 && !missing.is_empty() {
        println!("never happened: {missing:?}");
    } else if broken.is_empty() {
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

struct Run {
    next: AtomicU64,
    done: AtomicU64,
    cases: u64,
    total: Mutex<Tally>,
}

impl Run {
    /// Runs programs until enough cases have run or a promise is broken.
    fn work(&self) -> Option<Broken> {
        let mut tally = Tally::default();
        let mut result = None;
        while result.is_none() && self.done.load(Ordering::Relaxed) < self.cases {
            let program = self.next.fetch_add(1, Ordering::Relaxed);
            match run_program(program, &mut tally) {
                Ok(count) => drop(self.done.fetch_add(count, Ordering::Relaxed)),
                Err(broken) => result = Some(broken),
            }
        }
        self.total.lock().expect("nobody panicked").merge(&tally);
        result
    }
}

fn argument<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::args().skip_while(|argument| argument != name).nth(1)?.parse().ok()
}
