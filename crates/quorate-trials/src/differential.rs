//! Runs the same SQL on a cluster of real processes that are killed, and on plain SQLite, and compares all answers and,
//! at the end, all data.
//!
//! Statements are generated at random from a seed: changes of the schema, writes of all kinds of rows, failures of all
//! kinds, triggers, foreign keys, FTS5 and R*Tree. They are sent as single statements, batches, many rows at once,
//! closures, interactive transactions, and queries of any node at any level. Everything in an answer is compared: rows
//! by storage class and bits, counts, rowids, and SQLite's codes. The same seed generates the same statements, no
//! matter when nodes are killed. The first difference ends the run.
//!
//! `cargo run --release -p quorate-trials -- differential [--statements 10000] [--seed N] [--kills N]
//! [--break STATEMENTS] [--dir DIR] [--quorate FILE]`; after so many statements `--break` changes the data of plain
//! SQLite only, which must be found: this shows that differences are detected.

mod run;
#[cfg(test)]
mod tests;

use std::time::Instant;

use clap::Args;
use quorate_env::Rng;

use crate::harness::Result;
use crate::harness::cluster::Cluster;
use crate::harness::options::Options;
use crate::verdict::Verdict;
use run::Settings;

/// The default number of statements for each kill.
const STATEMENTS_PER_KILL: u64 = 1500;

/// Options of `quorate-trials differential`.
#[derive(Args, Debug)]
pub struct DifferentialArgs {
    /// How many statements are run on both sides
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    statements: u64,
    /// The seed of the statements [default: a random one]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many times a node is killed [default: once in 1500 statements]
    #[arg(long, value_name = "N")]
    kills: Option<u64>,
    /// After this many statements, change the data of plain SQLite only, which must be found
    #[arg(long = "break", value_name = "STATEMENTS")]
    break_at: Option<u64>,
    #[command(flatten)]
    options: Options,
}

/// Runs the trial.
pub async fn run(args: DifferentialArgs) -> Result<Verdict> {
    let DifferentialArgs { statements, seed, kills, break_at, options } = args;
    let seed = seed.unwrap_or_else(|| Rng::from_os().below(1_000_000));
    let kills = kills.unwrap_or_else(|| statements.div_ceil(STATEMENTS_PER_KILL));
    let mut cluster = Cluster::start(&options, &[]).await?;
    println!("seed {seed}, {statements} statements, {kills} kills");

    let begun = Instant::now();
    let summary = run::run(&Settings { seed, statements, kills, break_at }, &cluster).await;
    cluster.stop().await?;
    let summary = summary?;
    println!("{}", summary.details());
    Ok(Verdict::new(format!("{summary}; {:.1} s", begun.elapsed().as_secs_f64()), true))
}
