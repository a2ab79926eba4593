//! `quorate recover`: what an operator decides where a cluster can't go on by itself.

use clap::{Args, Subcommand};

use crate::error::{Result, Told as _};
use crate::members::connect;
use crate::options::AccessArgs;
use crate::output;

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
    #[command(after_help = "Example:\n  quorate recover reject-entry 4711")]
    RejectEntry(RejectEntryArgs),
}

/// Options of `quorate recover reject-entry`.
#[derive(Args, Debug)]
struct RejectEntryArgs {
    /// The index of the entry
    #[arg(value_name = "INDEX")]
    index: u64,
    #[command(flatten)]
    access: AccessArgs,
}

/// Runs the command.
pub async fn run(args: &RecoverArgs) -> Result<()> {
    match &args.command {
        RecoverCommand::RejectEntry(RejectEntryArgs { index, access }) => {
            let admin = connect(access).await?;
            admin.reject_entry(*index).await.told(|| format!("entry {index} is not rejected"))?;
            output::print(&format!("the leader rejects entry {index}\n"))
        }
    }
}
