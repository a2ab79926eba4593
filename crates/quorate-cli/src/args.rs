//! The command line.

use clap::{Parser, Subcommand};

use crate::archive::ArchiveArgs;
use crate::backup::BackupArgs;
use crate::backups::BackupsArgs;
use crate::completions::CompletionsArgs;
use crate::dev::DevArgs;
use crate::doctor::DoctorArgs;
use crate::import::ImportArgs;
use crate::init::InitArgs;
use crate::keys::KeysArgs;
use crate::locks::LocksArgs;
use crate::members::MembersArgs;
use crate::migrate::MigrateArgs;
use crate::proxy::ProxyArgs;
use crate::recover::RecoverArgs;
use crate::replicate::ReplicateArgs;
use crate::restore::RestoreArgs;
use crate::serve::ServeArgs;
use crate::sidecar::SidecarArgs;
use crate::sql::SqlArgs;
use crate::status::StatusArgs;
use crate::users::UsersArgs;
use crate::verify::VerifyArgs;
use crate::wal_inspect::WalArgs;

/// SQLite you can kill: SQL replicated over a few nodes.
#[derive(Debug, Parser)]
#[command(name = "quorate", version, arg_required_else_help = true)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a cluster on this machine, to try things out; Ctrl-C stops it
    Dev(DevArgs),
    /// Run SQL, or open a prompt if no SQL is given
    Sql(SqlArgs),
    /// Read and change keys: ls, get, set, del, ttl
    Keys(KeysArgs),
    /// Show, acquire and end locks: ls, acquire, release, force
    Locks(LocksArgs),
    /// Load a CSV, TSV, NDJSON or SQLite file into a table; after an interruption, run it again to continue
    Import(ImportArgs),
    /// Run the pending migrations of a folder, each as one transaction
    Migrate(MigrateArgs),
    /// Show the members of a cluster: the leader, the lag, and the sizes of log and database
    Status(StatusArgs),
    /// Copy the live database to a plain SQLite file, or to an object store
    Backup(BackupArgs),
    /// List and delete the backups in an object store: list, prune
    Backups(BackupsArgs),
    /// Show what an archive holds, and whether it can be restored: list, verify
    Archive(ArchiveArgs),
    /// Create a cluster from a backup or from an archive
    Restore(RestoreArgs),
    /// Archive a SQLite database of another application while it is being written
    Replicate(ReplicateArgs),
    /// Ask a running `quorate replicate`: list, info, sync, stop, start, register, unregister
    Sidecar(SidecarArgs),
    /// List and change the members of a cluster: list, add, remove, replace, transfer
    Members(MembersArgs),
    /// List and change the users of a cluster: list, add, remove, role, passwd, token
    Users(UsersArgs),
    /// Serve SQL over HTTP to a cluster that runs elsewhere, for programs that can't reach its members
    Proxy(ProxyArgs),
    /// Make the decisions that a cluster can't make by itself
    Recover(RecoverArgs),
    /// Check what a node and its cluster depend on, and explain it: disk, clocks, network, limits, members
    Doctor(DoctorArgs),
    /// Compare the databases of all nodes at one position, while the cluster serves
    Verify(VerifyArgs),
    /// Inspect the log of a node
    Wal(WalArgs),
    /// Run one node of a cluster until it is stopped
    Serve(ServeArgs),
    /// Write commented configurations and a secret for the nodes of a new cluster
    Init(InitArgs),
    /// Print the completions of these commands for a shell
    Completions(CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::*;

    #[test]
    fn the_command_definition_is_valid() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_that_parse() {
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

    /// Splits a line into words as a shell does, up to the end of the command: an explanation or a redirection may
    /// follow.
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
