//! `quorate archive`: what an archive holds, and whether it can be restored.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use quorate::archive::{self, FetchOptions, Generation, Manifest, Objects, Plan, Target};
use quorate_env::Env;
use quorate_shell::format::size;
use serde_json::json;

use crate::access::Access;
use crate::backups::{self, SealedArgs};
use crate::error::{Error, Result};
use crate::options::AccessArgs;
use crate::progress::Line;
use crate::restore::Scratch;
use crate::restore::archived::bytes;
use crate::{output, utc};

mod holdings;

/// The milliseconds of a second.
const MILLIS: u64 = 1000;

/// Options of `quorate archive`.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct ArchiveArgs {
    #[command(subcommand)]
    command: ArchiveCommand,
}

#[derive(Debug, Subcommand)]
enum ArchiveCommand {
    /// Show the clusters that are archived at a place, and which states of each can be restored
    #[command(after_help = "Examples:
  quorate archive list 's3://my-bucket/quorate?region=eu-central-1'
  quorate archive list file:///mnt/archive --json")]
    List(ListArgs),
    /// Show what each archive at a place holds: its archiver, its generations, its objects and their size
    #[command(after_help = "Examples:
  quorate archive status 's3://my-bucket/quorate?region=eu-central-1'
  quorate archive status file:///mnt/archive --json")]
    Status(ListArgs),
    /// Give up the states of an archive that are older than a time, and delete what only they need
    Prune(PruneArgs),
    /// Restore the last state into a scratch directory, check it, and remove it
    Verify(VerifyArgs),
    /// Restore the state that a running cluster has now, and compare each table with those of its nodes
    Rehearse(RehearseArgs),
}

#[derive(Args, Debug)]
struct ListArgs {
    #[command(flatten)]
    store: SealedArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a directory
    url: String,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate archive prune 's3://my-bucket/quorate?region=eu-central-1' --keep-for '30 d' --dry-run
  quorate archive prune file:///mnt/archive --cluster 00000000000000000000000000c0ffee --keep-for '7 d'

The latest state is never given up. An archiver that is at work goes on. It keeps what 'archive.keep_for' says, so
this is for a cluster that is gone, or for once.")]
struct PruneArgs {
    #[command(flatten)]
    store: SealedArgs,
    /// The cluster, if there are several at the URL
    #[arg(long, value_name = "ID")]
    cluster: Option<String>,
    /// How far back states stay, such as '30 d' or '12 h'
    #[arg(long, value_name = "DURATION", value_parser = backups::time)]
    keep_for: Duration,
    /// Encrypt what is changed with age to this public key, as 'archive.recipients' does; can be given more than once
    #[arg(long, value_name = "KEY")]
    recipient: Vec<String>,
    /// Show what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a directory
    url: String,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate archive verify 's3://my-bucket/quorate?region=eu-central-1'
  quorate archive verify file:///mnt/archive --scratch /mnt/scratch")]
struct VerifyArgs {
    #[command(flatten)]
    store: SealedArgs,
    /// The cluster, if there are several at the URL
    #[arg(long, value_name = "ID")]
    cluster: Option<String>,
    /// Where the state is restored to [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a directory
    url: String,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate archive rehearse 's3://my-bucket/quorate?region=eu-central-1' --config a.toml
  quorate archive rehearse file:///mnt/archive --scratch /mnt/scratch")]
struct RehearseArgs {
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    store: SealedArgs,
    /// Where the state is restored to [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Where the cluster archives to
    url: String,
}

/// Runs the command.
pub async fn run(args: &ArchiveArgs) -> Result<()> {
    match &args.command {
        ArchiveCommand::List(args) => list(args).await,
        ArchiveCommand::Status(args) => holdings::status(args).await,
        ArchiveCommand::Prune(args) => holdings::prune(args).await,
        ArchiveCommand::Verify(args) => verify(args).await,
        ArchiveCommand::Rehearse(args) => rehearse(args).await,
    }
}

/// What can be restored of a cluster.
struct Archived {
    manifest: Manifest,
    /// How to restore the last state, unless there is none yet.
    last: Option<Plan>,
}

async fn list(args: &ListArgs) -> Result<()> {
    let objects = args.store.open(&args.url)?;
    let found = Archived::find_all(&objects).await?;
    if args.json {
        let found: Vec<_> = found.iter().map(Archived::as_json).collect();
        return output::print(&format!("{:#}\n", json!(found)));
    }
    if found.is_empty() {
        return output::print(&format!("{} holds no archives\n", args.url));
    }
    output::print(&found.iter().map(Archived::as_text).collect::<String>())
}

impl Archived {
    async fn find_all(objects: &Arc<dyn Objects>) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for cluster in archive::clusters(&**objects).await.map_err(Error::of)? {
            let Some(manifest) = archive::manifest(&**objects, cluster).await.map_err(Error::of)? else { continue };
            let last = match manifest.current() {
                Some(_) => {
                    let plan = Plan::make(&Env::real(), objects, cluster, Target::Latest).await;
                    Some(plan.map_err(Error::of)?)
                }
                None => None,
            };
            found.push(Self { manifest, last });
        }
        Ok(found)
    }

    fn first(&self) -> Option<(&Generation, &archive::File)> {
        self.manifest.generations.iter().find_map(|generation| Some((generation, generation.begin()?)))
    }

    /// The last file of pages.
    fn boundary(&self) -> Option<&archive::File> {
        self.last.as_ref()?.files.last().map(|(_, file)| file)
    }

    fn as_text(&self) -> String {
        let Self { manifest, last } = self;
        let (Some(last), Some((generation, first))) = (last, self.first()) else {
            return format!("{}  no whole database yet\n", manifest.cluster);
        };
        format!(
            "{}  from {}.1.{} ({}) to {}.1.{}  {} to read\n",
            manifest.cluster,
            generation.epoch,
            first.index,
            time(first.time),
            last.epoch,
            last.last(),
            size(last.bytes())
        )
    }

    fn as_json(&self) -> serde_json::Value {
        let Self { manifest, last } = self;
        let first = self.first().map(|(generation, first)| {
            json!({"position": format!("{}.1.{}", generation.epoch, first.index), "time": time(first.time)})
        });
        let last = last.as_ref().map(|plan| {
            let boundary = plan.boundary();
            let requests = plan.files.len().saturating_add(plan.segments.len());
            json!({
                "position": format!("{}.1.{}", plan.epoch, plan.last()), "boundary": boundary,
                "bytes": plan.bytes(), "objects": requests,
            })
        });
        json!({
            "cluster": manifest.cluster, "token": manifest.token, "node": manifest.node, "first": first, "last": last,
        })
    }
}

fn time(millis: i64) -> String {
    utc::seconds_text(u64::try_from(millis).unwrap_or(0) / MILLIS)
}

async fn verify(args: &VerifyArgs) -> Result<()> {
    let objects = args.store.open(&args.url)?;
    let scratch = Scratch::create(args.scratch.as_deref())?;
    let mut options = FetchOptions::default();
    options.cluster = args.cluster.as_deref().map(crate::restore::cluster).transpose()?;
    let line = Line::begin();
    options.progress = line.teller(bytes);
    let fetched = archive::fetch(&objects, scratch.file(), &options).await;
    drop(line);
    let fetched = fetched.map_err(Error::of)?;
    output::print(&format!(
        "{} of {}: {} restored, and its checksums and structure are right\n",
        fetched.position,
        fetched.cluster,
        size(fetched.bytes)
    ))
}

async fn rehearse(args: &RehearseArgs) -> Result<()> {
    let begun = Instant::now();
    let client = Access::find(&args.access)?.remote();
    let objects = args.store.open(&args.url)?;
    let scratch = Scratch::create(args.scratch.as_deref())?;
    let line = Line::begin();
    let mut options = FetchOptions::default();
    options.progress = line.teller(bytes);
    let rehearsed = archive::rehearse(client, &objects, scratch.file(), &options).await;
    drop(line);
    crate::verify::show(&rehearsed.map_err(Error::of)?, begun)
}
