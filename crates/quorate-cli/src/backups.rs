//! `quorate backups`: lists and deletes the backups in an object store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use quorate::archive::Objects;
use quorate_backup::backups::{self, Keep, Stored};
use quorate_backup::store::{Sealed, Store};
use quorate_backup::{Encryption, Keys};
use quorate_shell::format::size;
use serde_json::json;

use crate::error::{Error, Result};
use crate::output;

/// How to open a store.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// A file with the credentials of the store, as lines NAME=value [default: the environment, or the machine's role]
    #[arg(long, value_name = "FILE")]
    pub credentials_file: Option<PathBuf>,
}

impl StoreArgs {
    /// Opens the store that a URL names.
    pub fn open(&self, url: &str) -> Result<Store> {
        let opened = url.parse().and_then(|location| Store::open(&location, self.credentials_file.as_deref()));
        opened.map_err(Error::of)
    }
}

/// How to read from a store whose objects may be encrypted.
#[derive(Args, Debug)]
pub struct SealedArgs {
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Decrypt with the identities of age in this file; can be given more than once
    #[arg(long, value_name = "FILE")]
    pub identity: Vec<PathBuf>,
}

impl SealedArgs {
    /// Reads the identities.
    pub fn keys(&self) -> Result<Keys> {
        let read = self.identity.iter().try_fold(Keys::none(), |keys, file| keys.with_identity_file(file));
        read.map_err(Error::of)
    }

    /// Opens an archive, to read it.
    pub fn open(&self, url: &str) -> Result<Arc<dyn Objects>> {
        self.seal(url, Encryption::None)
    }

    /// Opens an archive, to change it too. What is written is encrypted if what is there is.
    pub fn open_to_change(&self, url: &str, recipients: &[String]) -> Result<Arc<dyn Objects>> {
        match (recipients.is_empty(), self.identity.is_empty()) {
            (true, true) => self.open(url),
            (true, false) => Err(Error::new("what is changed is encrypted too: give --recipient beside --identity")),
            (false, _) => self.seal(url, Encryption::to(recipients).map_err(Error::of)?),
        }
    }

    fn seal(&self, url: &str, encryption: Encryption) -> Result<Arc<dyn Objects>> {
        let sealed = Sealed::new(Arc::new(self.store.open(url)?), encryption, self.keys()?);
        Ok(Arc::new(sealed.map_err(Error::of)?))
    }
}

/// Options of `quorate backups`.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct BackupsArgs {
    #[command(subcommand)]
    command: BackupsCommand,
}

#[derive(Debug, Subcommand)]
enum BackupsCommand {
    /// List the backups, the oldest first
    List(ListArgs),
    /// Delete old backups; the newest of each cluster is never deleted
    Prune(PruneArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate backups list 's3://my-bucket/quorate?region=eu-central-1'
  quorate backups list file:///mnt/backups --json")]
struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a directory
    url: String,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate backups prune 's3://my-bucket/quorate?region=eu-central-1' --keep-for 30d --keep-min 3
  quorate backups prune file:///mnt/backups --keep-min 10

A backup is kept if one of the two says so. Each cluster with backups there counts by itself. Other objects stay.")]
struct PruneArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Keep backups that are not older than this: a number with s, min, h, d or w
    #[arg(long, value_name = "TIME", value_parser = time, required_unless_present = "keep_min")]
    keep_for: Option<Duration>,
    /// Keep at least this many of each cluster
    #[arg(long, value_name = "N")]
    keep_min: Option<usize>,
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a directory
    url: String,
}

/// Runs the command.
pub async fn run(args: &BackupsArgs) -> Result<()> {
    match &args.command {
        BackupsCommand::List(args) => list(args).await,
        BackupsCommand::Prune(args) => prune(args).await,
    }
}

async fn list(args: &ListArgs) -> Result<()> {
    let store = args.store.open(&args.url)?;
    let found = backups::list(&store).await.map_err(Error::of)?;
    if args.json {
        let found: Vec<_> = found.iter().map(as_json).collect();
        return output::print(&format!("{:#}\n", json!(found)));
    }
    if found.is_empty() {
        return output::print(&format!("{} holds no backups\n", store.location()));
    }
    let line = |Stored { name, bytes }: &Stored| format!("{name}  {}\n", size(*bytes));
    output::print(&found.iter().map(line).collect::<String>())
}

fn as_json(found: &Stored) -> serde_json::Value {
    let Stored { name, bytes } = found;
    json!({
        "name": name.to_string(),
        "time": name.time_text(),
        "cluster": name.cluster.to_string(),
        "position": name.position.to_string(),
        "encrypted": name.is_encrypted,
        "bytes": bytes,
    })
}

async fn prune(args: &PruneArgs) -> Result<()> {
    let store = args.store.open(&args.url)?;
    let keep = Keep { lasting: args.keep_for, at_least: args.keep_min.unwrap_or(1).max(1) };
    let gone = backups::prune(&store, keep).await.map_err(Error::of)?;
    let mut text: String = gone.iter().map(|name| format!("deleted {name}\n")).collect();
    if gone.is_empty() {
        text.push_str("nothing to delete\n");
    }
    output::print(&text)
}

/// Parses a time such as `30d`.
pub fn time(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 5] = [("s", 1), ("min", 60), ("h", 3_600), ("d", 86_400), ("w", 604_800)];
    let wrong = || format!("expected a number with s, min, h, d or w, such as 30d, not '{text}'");
    let (number, unit) =
        text.find(|c: char| !c.is_ascii_digit()).and_then(|at| text.split_at_checked(at)).ok_or_else(wrong)?;
    let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(*seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time("30d"), Ok(Duration::from_secs(2_592_000)));
        assert_eq!(time("2 w"), Ok(Duration::from_secs(1_209_600)));
        for wrong in ["", "30", "d", "-1d", "30y", "99999999999999999999d", "9999999999999999999d"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
