//! The `quorate` binary: a local cluster to try things out (`dev`), a server (`init`, `serve`), and the commands that
//! use and manage a cluster. Each command has a module of the same name.
//!
//! The binary parses arguments, calls the libraries and prints. Errors are printed to standard error. The exit code of
//! an error is 1, that of wrong arguments 2; 3 means that an import skipped bad lines, or that `sql` can't reach the
//! cluster.

#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a binary runs on the real machine, never in the simulator"
)]

mod access;
mod archive;
mod args;
mod backup;
mod backups;
mod client;
mod cluster_file;
mod completions;
mod dev;
mod doctor;
mod error;
mod heap;
mod import;
mod init;
mod keys;
mod locks;
mod log;
mod login;
mod members;
mod migrate;
mod options;
mod output;
mod panics;
mod password;
mod profile;
mod progress;
mod proxy;
mod recover;
mod replicate;
mod restore;
mod serve;
mod settings;
mod sidecar;
mod sql;
mod status;
mod stop;
mod survey;
mod users;
mod utc;
mod verify;
mod wal_inspect;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Arguments, Command};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    heap::set_up();
    panics::set_up();
    let outcome = match &Arguments::parse().command {
        Command::Dev(args) => dev::run(args).await,
        Command::Sql(args) => sql::run(args).await,
        Command::Keys(args) => keys::run(args).await,
        Command::Locks(args) => locks::run(args).await,
        Command::Import(args) => match import::run(args).await {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Replicate(args) => match replicate::run(args).await {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Sidecar(args) => sidecar::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Backup(args) => backup::run(args).await,
        Command::Archive(args) => archive::run(args).await,
        Command::Backups(args) => backups::run(args).await,
        Command::Restore(args) => restore::run(args).await,
        Command::Migrate(args) => migrate::run(args).await,
        Command::Members(args) => members::run(args).await,
        Command::Users(args) => users::run(args).await,
        Command::Proxy(args) => proxy::run(args).await,
        Command::Recover(args) => recover::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Wal(args) => wal_inspect::run(args),
        Command::Serve(args) => serve::run(args).await,
        Command::Init(args) => init::run(args),
        Command::Completions(args) => completions::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quorate: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
