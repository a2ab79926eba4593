//! `quorate-bench`: Quorate beside its peers, under the same load on the same disk. `README.md` says what is measured,
//! how, and what not to conclude.
//!
//! The measurements are in the package `harness`; here are the systems that share Quorate's SQLite, the logs alone
//! ([`wal`]), and the tables that put it all side by side ([`compare`]). hiqlite brings another SQLite, so it is a
//! program of its own that speaks the same arguments; [`peer`] builds it and hands over to it.

#![forbid(unsafe_code)]

mod compare;
mod peer;
mod plain;
mod quorate_node;
mod rqlite;
mod wal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use quorate_bench_harness::{Measure, Result, SystemName, finish, run};

#[derive(Parser)]
#[command(name = "quorate-bench", about = "Measures Quorate beside its peers, under the same load on the same disk")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Measure(Measure),
    /// Appends to the log alone, beside plain writes and another log.
    Wal(wal::Options),
    /// Many measurements of all systems, in turns, and a table of their medians.
    Compare(compare::Options),
}

fn main() -> ExitCode {
    let good = match Cli::parse().command {
        Command::Measure(measure) => match measure.system() {
            SystemName::Quorate => run::<quorate_node::QuorateNode>(&measure),
            SystemName::Rusqlite => run::<plain::PlainSqlite>(&measure),
            SystemName::Rqlite => run::<rqlite::Rqlite>(&measure),
            SystemName::Hiqlite => finish(&measure, peer::become_hiqlite()),
        },
        Command::Wal(options) => told(wal::run(&options)),
        Command::Compare(options) => told(compare::run(&options)),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn told(done: Result<()>) -> bool {
    if let Err(error) = &done {
        eprintln!("{error}");
    }
    done.is_ok()
}
