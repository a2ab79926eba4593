//! What may be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::format::Mode;

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

/// What `quorate sql --help` ends with.
const SQL_EXAMPLES: &str = "\
Examples:
  quorate sql                                             a prompt; .help lists what it knows
  quorate sql 'SELECT count(*) FROM users'                one statement, or several with semicolons
  quorate sql < schema.sql                                a script; it stops at the first error
  quorate sql -f schema.sql -f data.sql --keep-going      scripts, errors only told
  quorate sql --format csv 'SELECT * FROM users' > u.csv  results of any size
  quorate sql .dump > backup.sql                          all as SQL, at one position
  quorate sql --node 10.0.0.2:7001 --level local .status  what one node has

Exit code: 0 done; 1 a statement failed; 2 typed wrongly; 3 the cluster can't be reached, lets nobody in or did not
answer in time (a message says if a write may have been done).";

/// Options of `quorate sql`.
#[derive(Args, Debug)]
#[command(after_help = SQL_EXAMPLES)]
pub struct SqlArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// How results are printed: table, line, csv, tsv, json, ndjson, markdown, list, quote, or insert=TABLE
    #[arg(long, visible_alias = "mode", value_name = "MODE", default_value = "table", value_parser = Mode::parse)]
    pub format: Mode,
    /// What a read promises
    #[arg(long, value_enum, default_value_t = Level::Linearizable)]
    pub level: Level,
    /// Run what a file holds; `-` is the standard input. May be given several times
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "query")]
    pub files: Vec<PathBuf>,
    /// Go on after a statement that fails, and end with 1
    #[arg(long)]
    pub keep_going: bool,
    /// Statements, separated by semicolons, or a command that starts with a dot
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

/// What a read promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// What the node that answers has applied
    Local,
    /// All that was acknowledged before
    Linearizable,
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
