//! What may be typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use quorate::limits::BUDGET_MAX;

use crate::backup::BackupArgs;
use crate::doctor::DoctorArgs;
use crate::format::Mode;
use crate::import::ImportOptions;
use crate::init::InitArgs;
use crate::members::MembersArgs;
use crate::migrate::MigrateArgs;
use crate::recover::RecoverArgs;
use crate::restore::RestoreArgs;
use crate::serve::ServeArgs;
use crate::verify::VerifyArgs;
use crate::wal_inspect::WalArgs;

/// The longest `--timeout`: a day.
const TIMEOUT_SECONDS_MAX: f64 = 86_400.0;

/// The time that an option gives in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=TIMEOUT_SECONDS_MAX).contains(seconds));
    let wrong = || format!("a number of seconds from 0.001 to {TIMEOUT_SECONDS_MAX}, not '{text}'");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// Where `quorate dev` keeps its cluster, and where the other commands look for one, unless told otherwise.
pub const DATA_DIR: &str = "quorate-data";

/// Nodes that `quorate dev` starts at most: more on one machine only cost time.
const NODES_MAX: i64 = 9;

/// What `quorate import --help` ends with.
const IMPORT_EXAMPLES: &str = "\
Examples:
  quorate import flights.csv flights                     types from the file, or from the table if there is one
  quorate import --dry-run flights.csv flights           show what would be done
  quorate import --no-header --columns id,,name a.csv t  name the fields; leave the second out
  quorate import --null NA --on-conflict ignore a.tsv t  NA is NULL; rows that are there already stay
  quorate import events.ndjson events                    an object on each line
  quorate import old.db users                            a table of a SQLite file, with types and primary key
  zcat a.csv.gz | quorate import --format csv - t        the standard input; can't go on after an interruption

Exit code: 0 all lines are in the table; 1 it stopped, and goes on when it is run again; 3 it came to its end, but some
lines were bad.";

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
    /// Load a file of CSV, TSV, NDJSON or SQLite into a table; interrupted and run again, it goes on where it stopped
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Run the migrations of a folder that were not run yet, each as one transaction
    Migrate(MigrateArgs),
    /// Show the members of a cluster: who leads, who lags, how large log and database are
    Status(StatusArgs),
    /// Keep a copy of the live database as a plain SQLite file
    Backup(BackupArgs),
    /// Make a cluster of a backup
    Restore(RestoreArgs),
    /// Look at the members of a cluster and change them: list, add, remove, replace, transfer
    Members(MembersArgs),
    /// Decide what a cluster can't decide by itself
    Recover(RecoverArgs),
    /// Measure what a node and its cluster depend on, and explain it: disk, clocks, network, limits, members
    Doctor(DoctorArgs),
    /// Compare what all nodes hold, at one position and while work goes on
    Verify(VerifyArgs),
    /// Look into the log of a node
    Wal(WalArgs),
    /// Run one node of a cluster until it is told to stop
    Serve(ServeArgs),
    /// Write commented configurations and a secret for the nodes of a new cluster
    Init(InitArgs),
}

/// Options of `quorate dev`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate dev                                  # three nodes; what to type next is printed
  kill -KILL $(quorate dev --pid leader)       # in another terminal: lose the leader
  quorate dev --restart                        # start it again")]
pub struct DevArgs {
    /// How many nodes; a cluster that is already in the data directory keeps its number [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub nodes: Option<u16>,
    /// Where the cluster lives; what is there is taken up again
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// Start node N of the running cluster again; without N all whose process has ended
    #[arg(long, value_name = "N", conflicts_with = "nodes", num_args = 0..=1)]
    pub restart: Option<Option<u64>>,
    /// Print the process id of node N of the running cluster, or of the one that leads
    #[arg(long, value_name = "N|leader", conflicts_with_all = ["nodes", "restart"])]
    pub pid: Option<Which>,
    /// Stop when the standard input ends: with whoever holds its other end
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// A node of `quorate dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// By its number.
    Node(u64),
    /// The one that leads.
    Leader,
}

impl std::str::FromStr for Which {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "leader" => Ok(Self::Leader),
            number => number.parse().map(Self::Node).map_err(|_| "write the number of a node, or leader"),
        }
    }
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
    /// The configuration of one of the cluster's nodes: it names all members, and the secret
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A file with the cluster's secret; without it that of --config, QUORATE_SECRET, or what `quorate dev` made
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
  quorate sql --timeout 2 'SELECT count(*) FROM users'    fail rather than wait longer
  quorate sql --budget 1000000000 'CREATE INDEX i ON t (a)'  a long write, during which no other takes effect

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
    /// How long each statement may take [default: 60]; a query never runs longer than the node's sql.query_timeout
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// How many steps of SQLite a write may take, for an index of a large table and the like [default: 25,000,000]
    #[arg(long, value_name = "STEPS", value_parser = value_parser!(u64).range(1..=BUDGET_MAX))]
    pub budget: Option<u64>,
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

/// Options of `quorate import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// What to import.
    #[command(flatten)]
    pub options: ImportOptions,
    /// How long each batch of rows may take, changes of the leader included [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
}

/// Options of `quorate status`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate status
  quorate status --json --config cluster/a.toml")]
pub struct StatusArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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
    use clap::{Command, CommandFactory as _};

    use super::*;

    #[test]
    fn the_options_fit_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_help_of_every_command_has_examples_that_can_be_typed() {
        let mut command = Arguments::command();
        command.build();
        let mut commands = vec![command];
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().filter(|sub| sub.get_name() != "help").cloned());
            if !command.has_subcommands() {
                check_examples(&command);
            }
        }
    }

    fn check_examples(command: &Command) {
        let name = command.get_bin_name().unwrap_or_default();
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.lines().filter_map(|line| match line.split_once("$(") {
            Some((_, inner)) => inner.split(')').next(),
            None => line.find("quorate ").map(|at| line.split_at(at).1),
        });
        let examples: Vec<&str> = examples.filter(|example| example.starts_with(name)).collect();
        assert!(help.starts_with("Example") && !examples.is_empty(), "{name}: {help}");
        for example in examples {
            let parsed = Arguments::try_parse_from(words(example));
            assert!(parsed.is_ok(), "{example}: {}", parsed.map_or_else(|error| error.to_string(), |_| String::new()));
        }
    }

    /// The words of a line as a shell takes them, up to what is no part of the command: an explanation, a redirection.
    fn words(line: &str) -> Vec<String> {
        let command = line.split("  ").next().unwrap_or_default();
        let quoted = command.split('\'').enumerate();
        let words = quoted.flat_map(|(place, text)| match place % 2 {
            0 => text.split_whitespace().map(str::to_owned).collect(),
            _ => vec![text.to_owned()],
        });
        words.take_while(|word| !["<", ">", "|", "&"].contains(&word.as_str())).collect()
    }
}
