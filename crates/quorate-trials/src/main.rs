//! Long trials of the `quorate` binary, each a subcommand with a module of the same name: real processes run under
//! faults, kills, hostile statements and load.
//!
//! ```sh
//! cargo build --release -p quorate-cli                      # the binary that the trials run
//! cargo run --release -p quorate-trials -- chaos --minutes 60
//! ```
//!
//! A trial runs the binary `quorate` next to its own executable, or the one that `--quorate` names. It does not build
//! it: after a change, both commands are needed.
//!
//! Contract of every trial:
//! - The last line on standard output is its verdict, with its figures.
//! - The exit code is 0 only if what the trial proves holds. Otherwise it is 1, also if the trial could not run to its
//!   end; a wrong command line gives 2.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "trials run real processes on the real machine, and may panic"
)]

mod archive;
mod chaos;
mod clients;
mod differential;
mod disaster;
mod failover;
mod harness;
mod hostile;
mod redis;
mod reseed;
mod restart_time;
mod rolling;
mod upgrade;
mod verdict;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::archive::ArchiveArgs;
use crate::chaos::ChaosArgs;
use crate::clients::ClientsArgs;
use crate::differential::DifferentialArgs;
use crate::disaster::DisasterArgs;
use crate::failover::FailoverArgs;
use crate::hostile::HostileArgs;
use crate::redis::RedisArgs;
use crate::reseed::ReseedArgs;
use crate::restart_time::RestartTimeArgs;
use crate::rolling::RollingArgs;
use crate::upgrade::UpgradeArgs;
use crate::verdict::Verdict;

/// Long trials of the quorate binary. The last line of each is its verdict; the exit code is 0 only if that is good.
#[derive(Debug, Parser)]
#[command(name = "quorate-trials", arg_required_else_help = true)]
struct Arguments {
    /// The trial to run.
    #[command(subcommand)]
    trial: Trial,
}

/// The trials.
#[derive(Debug, Subcommand)]
enum Trial {
    /// Restore what was archived under kills at a thousand entries and every boundary, and compare each state
    Archive(ArchiveArgs),
    /// Run nodes under faults for an hour, and check the histories of their clients
    Chaos(ChaosArgs),
    /// Run clients of other languages on a cluster with TLS and users whose leaders are killed
    Clients(ClientsArgs),
    /// Run the same SQL on nodes that are killed and on plain SQLite, and compare every answer
    Differential(DifferentialArgs),
    /// Destroy all machines of a cluster, and restore it from its archive
    Disaster(DisasterArgs),
    /// Try to stop a cluster by hostile statements
    Hostile(HostileArgs),
    /// Measure how long writes wait when the leader is killed
    Failover(FailoverArgs),
    /// Send random commands to a cluster and to a Valkey, and compare every reply
    Redis(RedisArgs),
    /// Measure how long writes wait while a node that lost its data comes back
    Reseed(ReseedArgs),
    /// Measure how long writes wait during a rolling restart
    Rolling(RollingArgs),
    /// Upgrade a cluster of an older build under load, and try to downgrade it
    Upgrade(UpgradeArgs),
    /// Measure how long a killed node takes to serve again
    RestartTime(RestartTimeArgs),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let ended = match Arguments::parse().trial {
        Trial::Archive(args) => archive::run(args).await,
        Trial::Chaos(args) => chaos::run(args).await,
        Trial::Clients(args) => clients::run(args).await,
        Trial::Differential(args) => differential::run(args).await,
        Trial::Hostile(args) => hostile::run(args).await,
        Trial::Disaster(args) => disaster::run(args).await,
        Trial::Failover(args) => failover::run(args).await,
        Trial::Redis(args) => redis::run(args).await,
        Trial::Reseed(args) => reseed::run(args).await,
        Trial::Rolling(args) => rolling::run(args).await,
        Trial::Upgrade(args) => upgrade::run(args).await,
        Trial::RestartTime(args) => restart_time::run(args).await,
    };
    ended.unwrap_or_else(|error| Verdict::failed(&*error)).print()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_definition_is_valid() {
        Arguments::command().debug_assert();
    }
}
