//! Runs seeds, a line each, and says how to run one again that failed.

#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a binary: it belongs to the machine, not to the simulated world"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use quorate::Durability;
use quorate_sim::{Plan, Report, run};

/// Takes whole clusters through hard times, each seed another one.
#[derive(Debug, Parser)]
#[command(name = "quorate-sim")]
struct Arguments {
    /// Seeds to run: from the first to before the last.
    #[arg(long, value_name = "FROM..TO", value_parser = range, conflicts_with = "seed")]
    seeds: Option<std::ops::Range<u64>>,
    /// One seed to run.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs each seed twice and compares the hashes of their events.
    #[arg(long)]
    twice: bool,
    /// Runs less of each seed, as the tests do.
    #[arg(long)]
    short: bool,
    /// With durability `os`: then only one machine at a time loses power.
    #[arg(long)]
    os: bool,
    /// How many of its last events a seed that failed tells; 4,000 are kept.
    #[arg(long, default_value_t = 40)]
    events: usize,
    /// Gives each seed up at this virtual second, and tells its last events.
    #[arg(long, value_name = "SECONDS")]
    until: Option<f64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match (arguments.seeds, arguments.seed) {
        (Some(seeds), _) => seeds,
        (None, Some(seed)) => seed..seed.saturating_add(1),
        (None, None) => 0..100,
    };
    let plan = if arguments.short { Plan::SHORT } else { Plan::FULL };
    let until = arguments.until.map(Duration::from_secs_f64);
    let durability = if arguments.os { Durability::Os } else { Durability::Fsync };
    let plan = Plan { told_events: arguments.events, durability, until, ..plan };
    let count = seeds.end.saturating_sub(seeds.start);
    let begun = Instant::now();
    let failed: Vec<u64> = seeds.filter(|seed| !passes(*seed, &plan, arguments.twice)).collect();
    println!("{count} seeds, {} failed, {:.1} s", failed.len(), begun.elapsed().as_secs_f64());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a seed and prints how that went.
fn passes(seed: u64, plan: &Plan, twice: bool) -> bool {
    let begun = Instant::now();
    let report = match run(seed, plan) {
        Ok(report) => report,
        Err(failure) => {
            eprintln!("{failure}\nrun it again: {}", again(seed, plan));
            return false;
        }
    };
    println!("{} wall_ms={}", line(&report), begun.elapsed().as_millis());
    if twice {
        let second = run(seed, plan).map(|report| report.trace_hash);
        if !matches!(second, Ok(hash) if hash == report.trace_hash) {
            eprintln!("seed {seed} gives other events the second time\nrun it again: {} --twice", again(seed, plan));
            return false;
        }
    }
    true
}

fn line(report: &Report) -> String {
    let Report { seed, time, crashes, counts, installs, last_index, compared, settled, events, trace_hash } = report;
    format!(
        "seed={seed} virtual_s={:.1} power={} kill={} wipe={} damage={} removed={} acked={} unknown={} not_done={} \
         reads={} entries={last_index} \
         installs={installs} states_compared={compared} settled_s={:.2} events={events} trace={trace_hash:016x}",
        time.as_secs_f64(),
        crashes.power,
        crashes.kill,
        crashes.wipe,
        crashes.damage,
        crashes.removal,
        counts.acknowledged,
        counts.unknown,
        counts.not_done,
        counts.reads,
        settled.as_secs_f64(),
    )
}

fn again(seed: u64, plan: &Plan) -> String {
    let short = if plan.writes == Plan::SHORT.writes { " --short" } else { "" };
    let os = if plan.durability == Durability::Os { " --os" } else { "" };
    format!("cargo run --release -p quorate-sim -- --seed {seed}{short}{os}")
}

fn range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let parts = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    parts.ok_or_else(|| format!("{text} is not of the form 0..100"))
}
