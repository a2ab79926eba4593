//! The same SQL by a cluster of real processes that are killed, and by plain SQLite: are all answers, and all data at
//! the end, the same?
//!
//! Statements are made at random, from a seed: changes of the schema, writes of all kinds of rows, failures of all
//! kinds, triggers, foreign keys, FTS5 and R*Tree; they come as single statements, batches, many rows at once,
//! closures, interactive transactions and queries of any node at any level. Everything that is told is compared: rows
//! by storage class and bits, counts, rowids, and SQLite's codes. The same seed makes the same statements, whenever
//! nodes are killed. The first difference ends the run with status 1.
//!
//! `cargo run --release -p quorate-cli --example differential -- [--statements 10000] [--seed N] [--kills N]
//! [--break STATEMENTS] [--dir DIR] [--quorate FILE]`; `--break` changes a row of plain SQLite behind its back after so
//! many statements, which must be found: so one sees that a difference is seen.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it runs real processes, and stops at the first surprise"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod run;

use std::process::ExitCode;
use std::time::Instant;

use harness::cluster::Cluster;
use harness::options::Options;
use run::Settings;

/// Statements to a kill, if nobody says otherwise.
const STATEMENTS_PER_KILL: u64 = 1500;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match differential().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("differential: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn differential() -> harness::Result<()> {
    let mut options = Options::typed()?;
    let statements = options.number("statements", 10_000)?;
    let seed = options.number("seed", quorate_env::Rng::from_os().below(1_000_000))?;
    let kills = options.number("kills", statements.div_ceil(STATEMENTS_PER_KILL))?;
    let break_at = Some(options.number("break", u64::MAX)?).filter(|at| *at < u64::MAX);
    let mut cluster = Cluster::start(&mut options, &[]).await?;
    options.finish()?;
    println!("seed {seed}, {statements} statements, {kills} kills");

    let begun = Instant::now();
    let verdict = run::run(&Settings { seed, statements, kills, break_at }, &cluster).await;
    cluster.stop().await?;
    println!("{}", verdict?);
    println!("{:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}
