//! `quorate recover`: the decisions of an operator for a cluster that can't continue by itself.

use std::time::Duration;

use clap::{Args, Subcommand};
use quorate::Admin;
use quorate::types::GroupId;
use tokio::time::{Instant, sleep};

use crate::error::{Context as _, Error, Result};
use crate::members::connect;
use crate::options::AccessArgs;
use crate::output;

/// How long the command waits for the cluster to decide.
const DECIDED_WITHIN: Duration = Duration::from_secs(10);

/// How often it checks.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Options of `quorate recover`.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    #[command(subcommand)]
    command: RecoverCommand,
}

#[derive(Debug, Subcommand)]
enum RecoverCommand {
    /// Reject the entry at which the leader waits for voters that can't be reached
    ///
    /// `quorate status` shows the entry. A majority of the voters can't apply it, and the others can't be asked whether
    /// they have. If one of them has, and told a caller so, that write is lost: that node takes a copy of the others'
    /// data when it comes back. Start the missing voters instead, if you can.
    #[command(after_help = "Example:\n  quorate recover reject-entry 4711 --config a.toml")]
    RejectEntry(RejectEntryArgs),
}

/// Options of `quorate recover reject-entry`.
#[derive(Args, Debug)]
struct RejectEntryArgs {
    /// The index of the entry
    #[arg(value_name = "INDEX")]
    index: u64,
    /// The group of the entry; 1 is that of the database
    #[arg(long, value_name = "GROUP", default_value_t = GroupId::MAIN.0)]
    group: u32,
    #[command(flatten)]
    access: AccessArgs,
}

/// Runs the command.
pub async fn run(args: &RecoverArgs) -> Result<()> {
    match &args.command {
        RecoverCommand::RejectEntry(RejectEntryArgs { index, group, access }) => {
            let (admin, group) = (connect(access).await?, GroupId(*group));
            admin.reject_entry(group, *index).await.context(|| format!("entry {index} was not rejected"))?;
            let deadline = Instant::now() + DECIDED_WITHIN;
            while still_waits(&admin, group, *index).await? {
                if Instant::now() >= deadline {
                    return Err(Error::new(format!(
                        "the leader still waits at entry {index}: it rejects the entry once a majority can't apply it; \
                         check with `quorate status`, and run this command again if another node leads by then"
                    )));
                }
                sleep(ASK_EVERY).await;
            }
            output::print(&format!("the cluster is past entry {index}\n"))
        }
    }
}

/// Returns whether the leader still waits before the entry.
async fn still_waits(admin: &Admin, group: GroupId, index: u64) -> Result<bool> {
    let status = admin.members().await.context(|| "can't find out whether the entry was rejected")?;
    let others = status.groups.iter().map(|group| group.applied);
    let applied = others.chain([status.applied]).find(|applied| applied.group == group);
    Ok(applied.is_none_or(|applied| applied.index < index))
}
