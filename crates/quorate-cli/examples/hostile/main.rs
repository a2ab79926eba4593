//! Tries to stop a cluster by hostile statements. They are sent to three real processes with limited resources, while
//! 16 writers insert small rows.
//!
//! Every statement must end with an answer or a clear error within its deadline. No node may end, no other write may
//! wait for longer than 3 s, every acknowledged row must be there once, and all nodes must hold the same at the end.
//! The nodes have 256 MiB of address space above what they need and 20 MiB for temporary files. All nodes are killed
//! from time to time. Four connections send queries at the same time, and one of them may send a write. Only one,
//! because the promise is how long one hostile write may delay the others, and the delays of several add up (`--writes
//! 4` shows that). The statements depend on the seed and their number alone. Those that were in flight when something
//! went wrong are written to a file, which `--replay` sends again.
//!
//! `cargo run --release -p quorate-cli --example hostile -- [--statements 100000] [--seed N] [--from N] [--to N]
//! [--only CATEGORY] [--replay FILE] [--senders 4] [--writes 1] [--kill-every 5000] [--reset-every 400] [--limits no]
//! [--stall-max MILLISECONDS] [--suspects FILE] [--dir DIR] [--quorate FILE]`; with `--embedded yes` only the queries
//! are run, in a program that embeds a node and whose threads have stacks of 512 KiB.

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

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use harness::Result;
use harness::options::Options;
use run::books::Books;
use run::machine::Machine;
use run::statements::{Category, Corpus, Hostile, functions};
use run::{Settings, Source, embedded};

/// How many statements there are between two kills of all nodes.
const KILL_EVERY: u64 = 5000;
/// How long another write may wait, in milliseconds.
const STALL_MAX: u64 = 3000;
/// How many statements there are between two resets of the schema.
const RESET_EVERY: u64 = 400;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match hostile().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hostile: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn hostile() -> Result<bool> {
    let mut options = Options::typed()?;
    let seed = options.number("seed", quorate_env::Rng::from_os().below(1_000_000))?;
    let from = options.number("from", 0)?;
    let statements = options.number("statements", 100_000)?;
    let only = options.text("only").map(|name| Category::named(&name)).transpose()?;
    let replay = options.path("replay").map(|file| again(&file)).transpose()?;
    let all = replay.as_ref().map_or(from + statements, |list| list.len() as u64);
    let to = options.number("to", all)?;
    let source = match replay {
        Some(list) => Source::Again(list),
        None => Source::Corpus(Corpus::new(seed, only, functions()?)),
    };
    let scratch = match options.path("dir") {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let dir = scratch.path().to_owned();
    if let Some(life) = options.path("inside") {
        return embedded::inside(source, options.number("begin", from)?, to, life).await;
    }
    if options.text("embedded").is_some() {
        println!("seed {seed}, statements {from} to {to}, queries in a program with small stacks");
        return embedded::run(&source, from, to, &dir);
    }
    let given = options.path("quorate");
    let program = match &given {
        Some(program) => program.clone(),
        None => harness::cluster::build().await?,
    };
    let temp = run::fleet::enter(&mut options, seed, given.is_none().then_some(&program))?;
    let senders = usize::try_from(options.number("senders", 4)?)?.max(1);
    let writes = usize::try_from(options.number("writes", 1)?)?.max(1);
    let suspects = options.path("suspects");
    let suspects = suspects.unwrap_or_else(|| std::env::temp_dir().join(format!("hostile-{seed}.jsonl")));
    let kill_every = options.number("kill-every", KILL_EVERY)?;
    let reset_every = options.number("reset-every", RESET_EVERY)?.max(1);
    let stall_max = Duration::from_millis(options.number("stall-max", STALL_MAX)?);
    let limits = options.text("limits").is_none_or(|limits| limits != "no");
    options.finish()?;
    println!("seed {seed}, statements {from} to {to}; suspects go to {}", suspects.display());
    let machine = Machine::watch(&dir)?;
    let settings =
        Settings { from, to, senders, writes, kill_every, reset_every, limits, stall_max, temp, program, dir };
    run::run(settings, source, Arc::new(Books::new(suspects, senders, machine))).await
}

/// Reads the statements of a file: one JSON object per line, and comments.
fn again(file: &Path) -> Result<Vec<Hostile>> {
    let text = std::fs::read_to_string(file)?;
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let mut list = lines.map(serde_json::from_str).collect::<Result<Vec<Hostile>, _>>()?;
    for (number, hostile) in (1..).zip(&mut list) {
        hostile.number = number;
    }
    Ok(list)
}
