//! Runs the same SQL on a cluster of real processes that are killed, and on plain SQLite, and compares all answers and,
//! at the end, all data.
//!
//! Statements are generated at random from a seed: changes of the schema, writes of all kinds of rows, failures of all
//! kinds, triggers, foreign keys, FTS5 and R*Tree. They are sent as single statements, batches, many rows at once,
//! closures, interactive transactions, and queries of any node at any level. Everything in an answer is compared: rows
//! by storage class and bits, counts, rowids, and SQLite's codes. The same seed generates the same statements, no
//! matter when nodes are killed. The first difference ends the run with exit code 1.
//!
//! `cargo run --release -p quorate-cli --example differential -- [--statements 10000] [--seed N] [--kills N]
//! [--break STATEMENTS] [--dir DIR] [--quorate FILE]`; after so many statements `--break` changes the data of plain
//! SQLite only, which must be found: this shows that differences are detected.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it runs real processes, and may panic"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod run;

use std::process::ExitCode;
use std::time::Instant;

use harness::cluster::Cluster;
use harness::options::Options;
use run::Settings;

/// The default number of statements for each kill.
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
