//! `quorate-bench` compares Quorate with other systems under the same load on the same disk. `README.md` describes what
//! is measured and how, and which conclusions the figures do not allow.
//!
//! The measurements are in the package `harness`. This package contains the systems that share Quorate's SQLite, the
//! measurement of logs alone ([`wal`]), that of side-cars ([`side_car`]), that of Redis' commands ([`resp`]), and the
//! comparison of all systems ([`compare`]). hiqlite needs another version of SQLite, so it has a separate program that
//! takes the same arguments; [`peer`] builds that program and runs it.

#![forbid(unsafe_code)]

mod compare;
mod hrana;
mod http;
mod markdown;
mod peer;
mod plain;
mod quorate_node;
mod resp;
mod rqlite;
mod side_car;
mod wait;
mod wal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use quorate_bench_harness::{Measure, Result, SystemName, finish, run};

#[derive(Parser)]
#[command(name = "quorate-bench", about = "Compares Quorate with other systems under the same load on the same disk")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Measure(Measure),
    /// Appends to the log alone, compared with plain writes and another log.
    Wal(wal::Options),
    /// Inserts into plain SQLite files, with and without a side-car.
    SideCar(side_car::Options),
    /// Commands of Redis, beside Valkey.
    Resp(resp::Options),
    /// SETs of random keys at a fixed rate: the longest that one waits.
    RespSteady(resp::steady::Options),
    /// Measures all systems in turns and prints tables of the medians.
    Compare(compare::Options),
}

fn main() -> ExitCode {
    let succeeded = match Cli::parse().command {
        Command::Measure(measure) => match measure.system() {
            SystemName::Quorate => run::<quorate_node::QuorateNode>(&measure),
            SystemName::Rusqlite => run::<plain::PlainSqlite>(&measure),
            SystemName::Rqlite => run::<rqlite::Rqlite>(&measure),
            SystemName::Hrana => run::<hrana::Hrana>(&measure),
            SystemName::Hiqlite => finish(&measure, peer::become_hiqlite()),
        },
        Command::Wal(options) => report_error(wal::run(&options)),
        Command::SideCar(options) => report_error(side_car::run(&options)),
        Command::Resp(options) => report_error(resp::run(&options)),
        Command::RespSteady(options) => report_error(resp::steady::run(&options)),
        Command::Compare(options) => report_error(compare::run(&options)),
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report_error(done: Result<()>) -> bool {
    if let Err(error) = &done {
        eprintln!("{error}");
    }
    done.is_ok()
}
