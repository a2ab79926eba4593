//! What may be typed.

use clap::{Parser, Subcommand};

use crate::backup::BackupArgs;
use crate::dev::DevArgs;
use crate::doctor::DoctorArgs;
use crate::import::ImportArgs;
use crate::init::InitArgs;
use crate::members::MembersArgs;
use crate::migrate::MigrateArgs;
use crate::recover::RecoverArgs;
use crate::restore::RestoreArgs;
use crate::serve::ServeArgs;
use crate::sql::SqlArgs;
use crate::status::StatusArgs;
use crate::verify::VerifyArgs;
use crate::wal_inspect::WalArgs;

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
