//! `quorate backup`: a copy of the live database, as one plain SQLite file or in an object store.
//!
//! Invariant: what was to be encrypted is encrypted, or not written.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use quorate::Client;
use quorate::backup::{BackupError, BackupOptions, BackupProgress, FileError};
use quorate_backup::Encryption;
use quorate_backup::backups::{self, Options};
use quorate_backup::store::Location;
use quorate_shell::format::size;

use crate::access::Access;
use crate::backups::StoreArgs;
use crate::error::{Error, Result};
use crate::options::{AccessArgs, Level, seconds};
use crate::output;
use crate::progress::Line;

const EXAMPLE: &str = "\
Example:
  quorate backup monday.db              from any node of the cluster in the data directory
  quorate backup monday.db --node 10.0.0.2:7001 --secret-file secret
  sqlite3 monday.db 'SELECT count(*) FROM users'
  quorate backup 's3://my-bucket/quorate?region=eu-central-1' --recipient age1...
  quorate backup file:///mnt/backups

By default the backup holds everything that was acknowledged before. It is verified before it gets its name. In a store
it is one object, compressed, named by its time; docs/backups.md says where credentials come from. `quorate restore`
creates a cluster from either.";

/// Options of `quorate backup`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct BackupArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// How current the backup must be; `local` needs no majority
    #[arg(long, value_enum, default_value_t = Level::Linearizable)]
    pub level: Level,
    /// How long to try to reach a node, and to wait until it is current enough [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Encrypt with age to this public key, age1...; can be given more than once
    #[arg(long, value_name = "RECIPIENT", conflicts_with = "passphrase_file")]
    pub recipient: Vec<String>,
    /// Encrypt with age and the passphrase in this file
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
    /// Where the database is copied before it is uploaded [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The file to write, or a URL: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///directory
    #[arg(value_name = "DESTINATION")]
    pub destination: PathBuf,
}

/// Runs the command.
pub async fn run(args: &BackupArgs) -> Result<()> {
    match args.destination.to_str().filter(|text| Location::is_url(text)) {
        Some(url) => to_store(args, url).await,
        None => to_file(args).await,
    }
}

fn encryption(args: &BackupArgs) -> Result<Encryption> {
    let encryption = match &args.passphrase_file {
        Some(file) => Encryption::with_passphrase_file(file),
        None if args.recipient.is_empty() => Ok(Encryption::None),
        None => Encryption::to(&args.recipient),
    };
    encryption.map_err(Error::of)
}

async fn to_store(args: &BackupArgs, url: &str) -> Result<()> {
    let begun = Instant::now();
    let (store, encryption) = (args.store.open(url)?, encryption(args)?);
    let mut config = Access::find(&args.access)?.remote();
    config.deadline = args.timeout.unwrap_or(config.deadline);
    let client = Client::connect(config).await.map_err(Error::of)?;
    let line = Line::begin();
    let progress = line.teller(bytes);
    let scratch = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let options = Options { encryption, level: args.level.into(), scratch, time: None, progress };
    let made = backups::make(&client.admin(), &store, &options).await;
    drop(line);
    client.close().await;
    let made = made.map_err(Error::of)?;
    output::print(&format!(
        "{}: {} in {}, up to position {} of cluster {}, verified, {}, in {:.1} s\n",
        made.name,
        size(made.bytes),
        store.location(),
        made.position(),
        made.name.cluster,
        if made.name.is_encrypted { "encrypted" } else { "not encrypted" },
        begun.elapsed().as_secs_f64()
    ))
}

async fn to_file(args: &BackupArgs) -> Result<()> {
    if !args.recipient.is_empty() || args.passphrase_file.is_some() || args.store.credentials_file.is_some() {
        let text =
            "a plain file is not encrypted and needs no credentials: write to a store, such as file:///directory";
        return Err(Error::new(text));
    }
    let begun = Instant::now();
    let mut config = Access::find(&args.access)?.remote();
    config.deadline = args.timeout.unwrap_or(config.deadline);
    let line = Line::begin();
    let progress = line.teller(bytes);
    let options = BackupOptions { replace: args.force, level: args.level.into(), progress };
    let made = quorate::backup(config, &args.destination, &options).await;
    drop(line);
    let backup = made.map_err(failure)?;
    output::print(&format!(
        "{}: {} up to position {} of cluster {}, verified, in {:.1} s\n",
        backup.file.display(),
        size(backup.bytes),
        backup.position,
        backup.cluster,
        begun.elapsed().as_secs_f64()
    ))
}

fn failure(error: BackupError) -> Error {
    match error {
        BackupError::File(FileError::Exists(path)) => {
            Error::new(format!("{} exists: choose another name, or replace it with --force", path.display()))
        }
        error => Error::of(error),
    }
}

fn bytes(progress: BackupProgress) -> (u64, u64) {
    (progress.bytes, progress.expected)
}
