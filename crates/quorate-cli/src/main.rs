//! The `quorate` binary: a cluster to try things out (`dev`), SQL (`sql`), how a cluster does (`status`), copies of its
//! database (`backup`) and clusters made of them (`restore`), whether all nodes hold the same (`verify`).
//!
//! It parses, calls the library and prints. An error goes to the standard error with exit code 1; what was typed
//! wrongly, with exit code 2.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a binary: it belongs to the machine, not to the simulated world"
)]

mod access;
mod args;
mod backup;
mod client;
mod cluster_file;
mod dev;
mod error;
mod format;
mod output;
mod prompt;
mod restore;
mod serve;
mod sql;
mod statements;
mod status;
mod stop;
mod verify;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Arguments, Command};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match &Arguments::parse().command {
        Command::Dev(args) => dev::run(args).await,
        Command::Sql(args) => sql::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Backup(args) => backup::run(args).await,
        Command::Restore(args) => restore::run(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Serve(args) => serve::run(args).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quorate: {error}");
            ExitCode::FAILURE
        }
    }
}
