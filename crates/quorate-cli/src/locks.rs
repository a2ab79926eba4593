//! `quorate locks`: shows, acquires and ends locks by hand. The printing is that of `quorate-shell`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use quorate::locks::Token;
use quorate_shell::locks::Action;
use quorate_shell::{Connection, Options, Shell};

use crate::access::Access;
use crate::error::{Error, Result};
use crate::options::{AccessArgs, PrintArgs, time};

/// Options of `quorate locks`.
#[derive(Args, Debug)]
pub struct LocksArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LocksCommand,
}

/// What to do with locks.
#[derive(Debug, Subcommand)]
pub enum LocksCommand {
    /// List who holds locks, and who waits for them
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  quorate locks ls                      all locks
  quorate locks ls job:                 those whose names start with 'job:'"
    )]
    Ls(LsArgs),
    /// Acquire a lock; nobody renews it, so it lasts as long as --ttl says
    #[command(after_help = "Examples:
  quorate locks acquire deploy --ttl 1h --note 'Ann deploys' --holder ann
  quorate locks acquire deploy --ttl 1h --holder ann     again: it lasts another hour
  quorate locks acquire deploy --wait 5m                 wait for its turn")]
    Acquire(AcquireArgs),
    /// Give a lock back, or end a wait
    #[command(after_help = "Example:
  quorate locks release deploy ann")]
    Release(ReleaseArgs),
    /// Take a lock from those who hold it: their tokens no longer count, and the next ones get it
    #[command(after_help = "Examples:
  quorate locks force deploy            all who hold it
  quorate locks force pool --token 786432    only the holder with this token")]
    Force(ForceArgs),
}

/// Options of `quorate locks ls`.
#[derive(Args, Debug)]
pub struct LsArgs {
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub print: PrintArgs,
    /// Only locks whose names start with this
    #[arg(value_name = "PREFIX", default_value = "")]
    pub prefix: OsString,
}

/// Options of `quorate locks acquire`.
#[derive(Args, Debug)]
pub struct AcquireArgs {
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub print: PrintArgs,
    /// Who is to hold it [default: a random name]
    #[arg(long, value_name = "NAME")]
    pub holder: Option<OsString>,
    /// How long it lasts, such as 5m or 1h30m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    pub ttl: Duration,
    /// How long to wait for it [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub wait: Option<Duration>,
    /// How many may hold it at a time; all must say the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub permits: u64,
    /// What others may read: who this is, and what for
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub note: OsString,
    /// The lock
    #[arg(value_name = "LOCK")]
    pub name: OsString,
}

/// Options of `quorate locks release`.
#[derive(Args, Debug)]
pub struct ReleaseArgs {
    #[command(flatten)]
    pub access: AccessArgs,
    /// The lock
    #[arg(value_name = "LOCK")]
    pub name: OsString,
    /// Who holds it, or waits for it
    #[arg(value_name = "HOLDER")]
    pub holder: OsString,
}

/// Options of `quorate locks force`.
#[derive(Args, Debug)]
pub struct ForceArgs {
    #[command(flatten)]
    pub access: AccessArgs,
    /// Take it only from the holder with this token
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<u64>,
    /// The lock
    #[arg(value_name = "LOCK")]
    pub name: OsString,
}

/// Runs the command.
pub async fn run(args: &LocksArgs) -> Result<()> {
    match &args.command {
        LocksCommand::Ls(ls) => act(&ls.access, ls.print.shell(), Action::List { prefix: bytes(&ls.prefix) }).await,
        LocksCommand::Acquire(acquire) => {
            let action = Action::Acquire {
                name: bytes(&acquire.name),
                holder: acquire.holder.as_ref().map(bytes),
                ttl: acquire.ttl,
                wait: acquire.wait.unwrap_or_default(),
                permits: acquire.permits,
                note: bytes(&acquire.note),
            };
            act(&acquire.access, acquire.print.shell(), action).await
        }
        LocksCommand::Release(release) => {
            let action = Action::Release { name: bytes(&release.name), holder: bytes(&release.holder) };
            act(&release.access, Options::default(), action).await
        }
        LocksCommand::Force(force) => {
            let action = Action::Force { name: bytes(&force.name), token: force.token.map(Token) };
            act(&force.access, Options::default(), action).await
        }
    }
}

async fn act(access: &AccessArgs, options: Options, action: Action) -> Result<()> {
    let access = Access::find(access).map_err(Error::of_connection)?;
    let client = Connection::connect(access.remote(), None).await?;
    let outcome = Shell::new(client.clone(), options).locks(action).await;
    client.close().await;
    Ok(outcome?)
}

fn bytes(text: &OsString) -> Vec<u8> {
    text.clone().into_vec()
}
