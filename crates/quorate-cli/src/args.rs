//! What may be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::backup::BackupArgs;
use crate::restore::RestoreArgs;
use crate::verify::VerifyArgs;

/// Where `quorate dev` keeps its cluster, and where the other commands look for one, unless told otherwise.
pub const DATA_DIR: &str = "quorate-data";

/// Nodes that `quorate dev` starts at most: more on one machine only cost time.
const NODES_MAX: i64 = 9;

/// SQLite you can kill: SQL replicated over a few nodes.
#[derive(Debug, Parser)]
#[command(name = "quorate", version, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a cluster of processes on this machine, to try things out; Ctrl-C stops it
    Dev(DevArgs),
    /// Run SQL, or open a prompt where no SQL is given
    Sql(SqlArgs),
    /// Show the members of a cluster: who leads, who lags, how large log and database are
    Status(StatusArgs),
    /// Keep a copy of the live database as a plain SQLite file
    Backup(BackupArgs),
    /// Make a cluster of a backup
    Restore(RestoreArgs),
    /// Compare what all nodes hold, at one position and while work goes on
    Verify(VerifyArgs),
    /// Run one node until it is told to stop
    #[command(hide = true)]
    Serve(ServeArgs),
}

/// Options of `quorate dev`.
#[derive(Args, Debug)]
pub struct DevArgs {
    /// How many nodes; a cluster that is already in the data directory keeps its number [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub nodes: Option<u16>,
    /// Where the cluster lives; what is there is taken up again
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// Start node N of the running cluster again
    #[arg(long, value_name = "N", conflicts_with = "nodes")]
    pub restart: Option<u64>,
    /// Stop when the standard input ends: with whoever holds its other end
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// How to reach a cluster.
#[derive(Args, Debug)]
pub struct AccessArgs {
    /// host:port of a node; without it any node of the cluster in the data directory
    #[arg(long, value_name = "ADDR")]
    pub node: Option<String>,
    /// The data directory of `quorate dev`
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// A file with the cluster's secret; without it QUORATE_SECRET, or what `quorate dev` made
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

/// Options of `quorate sql`.
#[derive(Args, Debug)]
pub struct SqlArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// What a read promises
    #[arg(long, value_enum, default_value_t = Level::Linearizable)]
    pub level: Level,
    /// Statements, separated by semicolons
    #[arg(value_name = "QUERY")]
    pub query: Option<String>,
}

/// Options of `quorate status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `quorate serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// The node's configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Stop when the standard input ends: with whoever holds its other end
    #[arg(long)]
    pub until_stdin_closes: bool,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people, cut to the width of the terminal
    Table,
    /// An array of objects
    Json,
    /// A header line, then a line for each row
    Csv,
}

/// What a read promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// What the node that answers has applied
    Local,
    /// All that was acknowledged before
    Linearizable,
}

impl From<Level> for quorate::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Local => Self::Local,
            Level::Linearizable => Self::Linearizable,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_options_fit_together() {
        Arguments::command().debug_assert();
    }
}
