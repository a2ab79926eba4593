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
//! `cargo run --release -p quorate-trials -- hostile [--statements 100000] [--seed N] [--from N] [--to N]
//! [--only CATEGORY] [--replay FILE] [--senders 4] [--writes 1] [--kill-every 5000] [--reset-every 400] [--limits no]
//! [--stall-max MILLISECONDS] [--suspects FILE] [--dir DIR] [--quorate FILE]`; with `--embedded yes` only the queries
//! are run, in a program that embeds a node and whose threads have stacks of 512 KiB.

mod run;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use quorate_env::Rng;

use crate::harness::Result;
use crate::harness::options::Options;
use crate::verdict::Verdict;
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

/// Options of `quorate-trials hostile`.
#[derive(Args, Debug)]
pub struct HostileArgs {
    /// How many statements are sent
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    statements: u64,
    /// The seed of the statements [default: a random one]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The number of the first statement
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// The number after that of the last statement [default: as --statements says]
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Send statements of this category only
    #[arg(long, value_enum, value_name = "CATEGORY")]
    only: Option<Category>,
    /// Send the statements of this file instead
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// How many connections send statements
    #[arg(long, value_name = "N", default_value_t = 4)]
    senders: usize,
    /// How many of them may send a write at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    writes: usize,
    /// How many statements there are between two kills of all nodes; 0 for no kills
    #[arg(long, value_name = "STATEMENTS", default_value_t = KILL_EVERY)]
    kill_every: u64,
    /// How many statements there are between two resets of the schema
    #[arg(long, value_name = "STATEMENTS", default_value_t = RESET_EVERY)]
    reset_every: u64,
    /// Limit the memory and the temporary files of the nodes
    #[arg(
        long,
        value_name = "YES|NO",
        action = ArgAction::Set,
        value_parser = BoolishValueParser::new(),
        default_value = "yes",
        hide_possible_values = true
    )]
    limits: bool,
    /// How long another write may wait
    #[arg(long, value_name = "MILLISECONDS", default_value_t = STALL_MAX)]
    stall_max: u64,
    /// Where to write the statements that were in flight when something went wrong [default: `hostile-SEED.jsonl` in
    /// the directory for temporary files]
    #[arg(long, value_name = "FILE")]
    suspects: Option<PathBuf>,
    /// Run only the queries, in a program that embeds a node and whose threads have small stacks
    #[arg(
        long,
        value_name = "YES|NO",
        action = ArgAction::Set,
        value_parser = BoolishValueParser::new(),
        default_value = "no",
        hide_possible_values = true
    )]
    embedded: bool,
    #[command(flatten)]
    options: Options,
    /// This process runs in a mount namespace of its own.
    #[arg(long, hide = true)]
    namespace: bool,
    /// This process embeds a node whose files are in this directory.
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
    /// The number of the first statement of such a process.
    #[arg(long, hide = true)]
    begin: Option<u64>,
}

/// Runs the trial.
pub async fn run(args: HostileArgs) -> Result<Verdict> {
    let seed = args.seed.unwrap_or_else(|| Rng::from_os().below(1_000_000));
    // A process that this one starts must not choose a seed again.
    let chosen = args.seed.is_none().then_some(seed);
    let replay = args.replay.as_deref().map(again).transpose()?;
    let from = args.from;
    let all = replay.as_ref().map_or(from + args.statements, |list| list.len() as u64);
    let to = args.to.unwrap_or(all);
    let source = match replay {
        Some(list) => Source::Again(list),
        None => Source::Corpus(Corpus::new(seed, args.only, functions()?)),
    };
    if let Some(life) = args.inside {
        let begin = args.begin.unwrap_or(from);
        embedded::inside(source, begin, to, life).await?;
        return Ok(Verdict::new(
            format!("seed {seed}, the program ran the queries of statements {begin} to {to}"),
            true,
        ));
    }
    if args.embedded {
        println!("seed {seed}, statements {from} to {to}, queries in a program with small stacks");
        return embedded::run(&source, from, to, args.options.scratch()?.path(), chosen);
    }
    let program = args.options.program()?;
    let temp = args.namespace || run::fleet::enter(chosen)?;
    let scratch = args.options.scratch()?;
    let dir = scratch.path().to_owned();
    let suspects = args.suspects.unwrap_or_else(|| std::env::temp_dir().join(format!("hostile-{seed}.jsonl")));
    println!("seed {seed}, statements {from} to {to}; suspects go to {}", suspects.display());
    let machine = Machine::watch(&dir)?;
    let senders = args.senders.max(1);
    let settings = Settings {
        from,
        to,
        senders,
        writes: args.writes.max(1),
        kill_every: args.kill_every,
        reset_every: args.reset_every.max(1),
        limits: args.limits,
        stall_max: Duration::from_millis(args.stall_max),
        temp,
        program,
        dir,
    };
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
