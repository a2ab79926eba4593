//! The command line of the simulator: runs seeds, prints a line for each, and prints the command that repeats a
//! failure.

#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a binary that runs on the machine, not in the simulated world"
)]

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use quorate::config::Durability;
use quorate_env::mutant::Mutant;
use quorate_sim::{Coverage, Failure, Plan, Report, classes, run_without, shorten};

/// A run of at least this many seeds fails if a class of fault never struck. This does not apply to `--short` runs,
/// which may miss a class by chance.
const SEEDS_THAT_MEET_ALL: u64 = 100;

/// Runs simulated clusters under faults, one cluster for each seed.
#[derive(Debug, Parser)]
#[command(name = "quorate-sim")]
struct Arguments {
    /// Seeds to run, without the end of the range.
    #[arg(long, value_name = "FROM..TO", value_parser = range, conflicts_with = "seed")]
    seeds: Option<std::ops::Range<u64>>,
    /// One seed to run.
    #[arg(long)]
    seed: Option<u64>,
    /// Faults of the seed to leave out, by their numbers, such as 3,7,8.
    #[arg(long, value_name = "FAULTS", value_delimiter = ',', requires = "seed")]
    skip: Vec<u32>,
    /// Reduces a failing seed: leaves out as many of its faults as possible while it still fails.
    #[arg(long)]
    shorten: bool,
    /// Turns on a deliberate bug; requires a build with the feature `mutants`.
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Lists all deliberate bugs, one in each line, and runs nothing.
    #[arg(long)]
    mutants: bool,
    /// Stops at the first seed that fails.
    #[arg(long)]
    first: bool,
    /// Runs each seed twice and compares the hashes of their events.
    #[arg(long)]
    twice: bool,
    /// Runs each seed for a shorter time, as the tests do.
    #[arg(long)]
    short: bool,
    /// Runs each seed for an hour of virtual time, in which faults and the pauses of clients last longer.
    #[arg(long, conflicts_with = "short")]
    long: bool,
    /// Draws every second fault from this class, such as tampering.
    #[arg(long, value_name = "CLASS", value_parser = class)]
    favour: Option<&'static str>,
    /// Runs clusters with durability `os`; only one machine at a time then loses power.
    #[arg(long)]
    os: bool,
    /// How many of its last events a failed seed prints; 4,000 are kept.
    #[arg(long, default_value_t = 40)]
    events: usize,
    /// Stops each seed at this virtual second and prints its last events.
    #[arg(long, value_name = "SECONDS")]
    until: Option<f64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.mutants {
        Mutant::ALL.iter().for_each(|mutant| println!("{mutant:?}"));
        return ExitCode::SUCCESS;
    }
    if let Some(name) = &arguments.mutant
        && !Mutant::named(name).is_some_and(Mutant::turn_on)
    {
        eprintln!("{name} can't be turned on: use a name that --mutants lists, and build with --features mutants");
        return ExitCode::FAILURE;
    }
    let seeds = match (arguments.seeds, arguments.seed) {
        (Some(seeds), _) => seeds,
        (None, Some(seed)) => seed..seed.saturating_add(1),
        (None, None) => 0..100,
    };
    let plan = match (arguments.short, arguments.long) {
        (true, _) => Plan::SHORT,
        (_, true) => Plan::LONG,
        _ => Plan::FULL,
    };
    let until = arguments.until.map(Duration::from_secs_f64);
    let durability = if arguments.os { Durability::Os } else { Durability::Fsync };
    let runner = Runner {
        plan: Plan { told_events: arguments.events, durability, until, favoured: arguments.favour, ..plan },
        skipped: arguments.skip.into_iter().collect(),
        twice: arguments.twice,
        shortens: arguments.shorten,
    };
    let count = seeds.end.saturating_sub(seeds.start);
    let begun = Instant::now();
    let mut sum = Sum::default();
    let failing = seeds.filter(|seed| !runner.passes(*seed, &mut sum));
    let failed = failing.take(if arguments.first { 1 } else { usize::MAX }).count();
    println!("{sum}");
    println!("{count} seeds, {failed} failed, {:.1} s", begun.elapsed().as_secs_f64());
    let count = if arguments.first { sum.seeds.saturating_add(failed as u64) } else { count };
    let missing = if count >= SEEDS_THAT_MEET_ALL && !arguments.short { sum.coverage.missing() } else { Vec::new() };
    missing.iter().for_each(|what| eprintln!("never met: {what}"));
    if failed == 0 && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How seeds are run.
struct Runner {
    plan: Plan,
    skipped: BTreeSet<u32>,
    twice: bool,
    shortens: bool,
}

impl Runner {
    /// Runs a seed and prints its result. Returns whether it passed.
    fn passes(&self, seed: u64, sum: &mut Sum) -> bool {
        let begun = Instant::now();
        let report = match run_without(seed, &self.plan, &self.skipped) {
            Ok(report) => report,
            Err(failure) => {
                self.failed(failure);
                return false;
            }
        };
        println!("{} wall_ms={}", line(&report), begun.elapsed().as_millis());
        sum.add(&report);
        if self.twice {
            let second = run_without(seed, &self.plan, &self.skipped).map(|report| report.trace_hash);
            if !matches!(second, Ok(hash) if hash == report.trace_hash) {
                eprintln!(
                    "seed {seed} gives different events the second time\nrun it again: {} --twice",
                    self.again(seed)
                );
                return false;
            }
        }
        true
    }

    fn failed(&self, failure: Box<Failure>) {
        eprintln!("{failure}\nrun it again: {}", self.again(failure.seed));
        if self.shortens {
            let (skipped, shorter) = shorten(failure, &self.plan, |skipped, faults| {
                eprintln!("still fails without {} of {faults} faults", skipped.len());
            });
            let again = Self { skipped, ..*self }.again(shorter.seed);
            eprintln!("shortened:\n{shorter}\nrun it again: {again}");
        }
    }

    /// Returns the command that runs a seed again.
    fn again(&self, seed: u64) -> String {
        let plan = match self.plan.time {
            time if time == Plan::LONG.time => " --long",
            time if time == Plan::SHORT.time => " --short",
            _ => "",
        };
        let os = if self.plan.durability == Durability::Os { " --os" } else { "" };
        let favour = self.plan.favoured.map(|class| format!(" --favour \"{class}\"")).unwrap_or_default();
        let skipped: Vec<String> = self.skipped.iter().map(u32::to_string).collect();
        let skip = if skipped.is_empty() { String::new() } else { format!(" --skip {}", skipped.join(",")) };
        format!("cargo run --release -p quorate-sim -- --seed {seed}{plan}{os}{favour}{skip}")
    }
}

/// The totals of all seeds that passed.
#[derive(Default)]
struct Sum {
    seeds: u64,
    time: Duration,
    crashes: u64,
    partitions: u64,
    entries: u64,
    acknowledged: u64,
    reads: u64,
    coverage: Coverage,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.time += report.time;
        self.crashes += u64::from(report.crashes.total());
        self.partitions += report.partitions;
        self.entries += report.last_index;
        self.acknowledged += report.counts.acknowledged;
        self.reads += report.counts.reads;
        self.coverage.add(&report.coverage);
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seeds, time, crashes, partitions, entries, acknowledged, reads, coverage } = self;
        let hours = time.as_secs_f64() / 3600.0;
        write!(
            f,
            "{coverage}\npassed: {seeds} seeds, {hours:.2} virtual hours, {crashes} crashes, {partitions} partitions, \
             {entries} committed entries, {acknowledged} acknowledged writes, {reads} reads"
        )
    }
}

fn line(report: &Report) -> String {
    let Report { seed, nodes, time, crashes, counts, installs, last_index, compared, settled, events, .. } = report;
    format!(
        "seed={seed} nodes={nodes} virtual_s={:.1} power={} kill={} wipe={} damage={} removed={} failed={} cut={} \
         acked={} unknown={} not_done={} reads={} entries={last_index} installs={installs} \
         states_compared={compared} settled_s={:.2} events={events} trace={:016x}",
        time.as_secs_f64(),
        crashes.power,
        crashes.kill,
        crashes.wipe,
        crashes.damage,
        crashes.removal,
        crashes.failure,
        report.partitions,
        counts.acknowledged,
        counts.unknown,
        counts.not_done,
        counts.reads,
        settled.as_secs_f64(),
        report.trace_hash,
    )
}

fn range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let parts = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    parts.ok_or_else(|| format!("{text} is not of the form 0..100"))
}

fn class(name: &str) -> Result<&'static str, String> {
    let all = || classes().into_iter().collect::<Vec<_>>().join(", ");
    classes().get(name).copied().ok_or_else(|| format!("there is no class {name}; the classes are {}", all()))
}
