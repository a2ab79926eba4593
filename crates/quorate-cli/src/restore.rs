//! `quorate restore`: makes a backup the database of a new cluster, or of a stopped one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use quorate::{
    Config,
    restore::{Restoration, RestoreError, RestoreOptions},
    types::ClusterId,
};
use quorate_backup::backups::{self, Name};
use quorate_backup::states;
use quorate_backup::store::{Location, Store};
use quorate_env::Env;
use quorate_shell::format::size;

use crate::backups::{SealedArgs, time};
use crate::dev::Layout;
use crate::error::{Context as _, Error, Result};
use crate::options::DATA_DIR;
use crate::{output, settings};

pub mod archived;
mod followed;

/// The last state, as `--at` names it.
const LATEST: &str = "latest";

const EXAMPLE: &str = "\
Example:
  quorate restore monday.db                      into the stopped or new cluster of `quorate dev`
  quorate restore monday.db --config node.toml   into the data directory of that configuration
  quorate restore 's3://my-bucket/quorate?region=eu-central-1' --latest --identity key.txt --config node.toml
  quorate restore 's3://my-bucket/archive?region=eu-central-1' --at latest --config node.toml
  quorate restore file:///mnt/archive --at 2026-11-27T20:15:00Z -o before.db
  quorate restore file:///mnt/archive --at 1.1.4711 --dry-run
  quorate restore file:///mnt/archive --plain -o app.db               of `quorate replicate`, or of Litestream
  quorate restore file:///mnt/archive --plain --follow -o replica.db  and keep it up, for others to read
  quorate restore file:///mnt/backups/20261127T020000Z-00000000000000000000000000c0ffee-1.1.57.db.zst

The node is then the first voter of a new epoch. The other members of its configuration join it when they are started
with empty data directories; `quorate dev` does that by itself. No cluster may be running at the addresses of the
configuration.";

/// Options of `quorate restore`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct RestoreArgs {
    /// The configuration of the node to restore into
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub config: Option<PathBuf>,
    /// The data directory of `quorate dev`; all of its nodes start over
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// Move existing data aside, into `replaced-...` in each data directory
    #[arg(long)]
    pub replace: bool,
    /// The file is a SQLite database, but not a backup of Quorate; or the URL is that of an archive of
    /// `quorate replicate`, or of what Litestream has stored
    #[arg(long, conflicts_with_all = ["latest", "passphrase_file"])]
    pub plain: bool,
    /// Restore the newest backup at the URL, which names a place and not an object
    #[arg(long)]
    pub latest: bool,
    /// Restore from the archive at the URL, up to a position, the number of an entry, a time such as
    /// 2026-11-27T20:15:00Z, or latest
    #[arg(long, value_name = "STATE", conflicts_with_all = ["latest", "passphrase_file"])]
    pub at: Option<String>,
    /// The cluster, if there are archives of several at the URL
    #[arg(long, value_name = "ID")]
    pub cluster: Option<String>,
    /// Write the state of an archive to a plain SQLite file, and restore no node
    #[arg(short = 'o', long, value_name = "FILE", conflicts_with_all = ["config", "replace"])]
    pub output: Option<PathBuf>,
    /// With --plain and -o, keep the file up with the archive until Ctrl-C or SIGTERM; others may read it meanwhile
    #[arg(long, requires_all = ["plain", "output"], conflicts_with_all = ["at", "latest", "passphrase_file"])]
    pub follow: bool,
    /// How often --follow asks for something new: a number with s, min or h
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "follow", value_parser = time)]
    pub follow_interval: Duration,
    /// Show what would be read of the archive, and do nothing
    #[arg(long, requires = "at")]
    pub dry_run: bool,
    /// With --dry-run, print JSON
    #[arg(long, requires = "dry_run")]
    pub json: bool,
    /// Decrypt with the passphrase in this file
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<PathBuf>,
    /// Where a backup is downloaded to [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// The store.
    #[command(flatten)]
    pub store: SealedArgs,
    /// The backup: a file, the URL of an object in a store, or, with --latest, the URL of a place there
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
}

/// Runs the command.
pub async fn run(args: &RestoreArgs) -> Result<()> {
    let begun = Instant::now();
    if args.follow {
        return followed::run(args).await;
    }
    // Of pages in a store, the last state is restored unless another one was asked for.
    let is_stored = args.plain && args.source.to_str().is_some_and(Location::is_url);
    if let Some(at) = args.at.as_deref().or(is_stored.then_some(LATEST)) {
        return archived::run(args, at, begun).await;
    }
    if args.output.is_some() || args.cluster.is_some() {
        return Err(Error::new("-o and --cluster need --at, or --plain and a URL"));
    }
    let fetched = match args.source.to_str().filter(|text| Location::is_url(text)) {
        Some(url) => Some(fetch(args, url).await?),
        None if args.latest || !args.store.identity.is_empty() || args.passphrase_file.is_some() => {
            return Err(Error::new("--latest, --identity and --passphrase-file need a URL, such as file:///directory"));
        }
        None => None,
    };
    let file = fetched.as_ref().map_or(args.source.clone(), Scratch::file);
    into_node(args, file, begun).await
}

/// Makes a file the database of a node.
async fn into_node(args: &RestoreArgs, file: PathBuf, begun: Instant) -> Result<()> {
    let place = Place::find(args)?;
    let restored = quorate::restore(file, &place.config, &place.options(args)).await;
    let restored = restored.map_err(|error| failure(error, args.plain))?;
    output::print(&place.text(&restored, begun.elapsed().as_secs_f64()))
}

/// A directory for what is fetched, which is removed when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates it in `dir`, or in the directory for temporary files.
    pub fn create(dir: Option<&Path>) -> Result<Self> {
        let env = Env::real();
        let name = format!("quorate-restore-{}-{:016x}", std::process::id(), env.rng().next_u64());
        let dir = dir.map_or_else(std::env::temp_dir, Path::to_path_buf).join(name);
        // For the owner of this process only.
        env.disk().create_dir_all(&dir).context(|| format!("cannot create the directory {}", dir.display()))?;
        Ok(Self(dir))
    }

    /// Returns the file in it.
    pub fn file(&self) -> PathBuf {
        self.0.join("backup.db")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("quorate: {} stays: {error}", self.0.display());
        }
    }
}

/// Parses the id of a cluster.
pub fn cluster(text: &str) -> Result<ClusterId> {
    states::cluster(text).map_err(Error::of)
}

/// Fetches the backup that the arguments name.
async fn fetch(args: &RestoreArgs, url: &str) -> Result<Scratch> {
    let mut keys = args.store.keys()?;
    if let Some(file) = &args.passphrase_file {
        keys = keys.with_passphrase_file(file).map_err(Error::of)?;
    }
    let (store, name) = find(args, url).await.map_err(Error::of)?;
    let scratch = Scratch::create(args.scratch.as_deref())?;
    backups::fetch(&store, &name, keys, scratch.file()).await.map_err(Error::of)?;
    Ok(scratch)
}

async fn find(args: &RestoreArgs, url: &str) -> Result<(Store, Name), quorate_backup::Error> {
    let location: Location = url.parse()?;
    let credentials = args.store.store.credentials_file.as_deref();
    if args.latest {
        let store = Store::open(&location, credentials)?;
        let latest = backups::latest(&store).await?;
        return Ok((store, latest.name));
    }
    let (location, name) = location.split()?;
    let name = name.parse()?;
    Ok((Store::open(&location, credentials)?, name))
}

/// Where a backup is restored to.
struct Place {
    config: Config,
    others: Vec<PathBuf>,
    /// The command that starts the node, or all nodes.
    start: String,
    /// Held until the restore has ended, so that no `quorate dev` starts meanwhile.
    dev: Option<Layout>,
}

impl Place {
    fn find(args: &RestoreArgs) -> Result<Self> {
        match &args.config {
            Some(path) => Self::of_node(path),
            None => Self::of_dev(&args.data_dir),
        }
    }

    fn options(&self, args: &RestoreArgs) -> RestoreOptions {
        RestoreOptions { replace: args.replace, others: self.others.clone(), plain: args.plain }
    }

    fn of_node(path: &Path) -> Result<Self> {
        let config = settings::load(path)?.node;
        let start = format!("quorate serve --config {}", path.display());
        Ok(Self { config, others: Vec::new(), start, dev: None })
    }

    fn of_dev(dir: &Path) -> Result<Self> {
        let layout = Layout::open(dir, None)?;
        let ids: Vec<u64> = layout.nodes().map(|(id, _)| id).collect();
        let (first, rest) = ids.split_first().ok_or_else(|| Error::new(format!("{} has no nodes", dir.display())))?;
        let config = settings::load(&layout.config(*first))?.node;
        let others = rest.iter().map(|id| layout.node_dir(*id)).collect();
        let start = match dir == Path::new(DATA_DIR) {
            true => "quorate dev".to_owned(),
            false => format!("quorate dev --data-dir {}", dir.display()),
        };
        Ok(Self { config, others, start, dev: Some(layout) })
    }

    fn text(&self, restored: &Restoration, seconds: f64) -> String {
        let Restoration { cluster, position, from, bytes, aside } = restored;
        let from =
            from.map_or_else(String::new, |(cluster, position)| format!(" from position {position} of {cluster}"));
        let mut text = format!(
            "epoch {} of the new cluster {cluster} begins at position {position}: {}{from}, in {seconds:.1} s\n",
            position.epoch.0,
            size(*bytes)
        );
        for path in aside {
            text.push_str(&format!("the data that was there is now in {}\n", path.display()));
        }
        text.push_str(&format!("start it: {}\n", self.start));
        let others: Vec<&str> = self.config.members.keys().map(String::as_str).collect();
        let others: Vec<&str> = others.into_iter().filter(|name| *name != self.config.name).collect();
        if self.dev.is_none() && !others.is_empty() {
            text.push_str(&format!(
                "then start {} with empty data directories: move their data away, it is of another cluster now\n",
                others.join(", ")
            ));
        }
        text
    }
}

fn failure(error: RestoreError, plain: bool) -> Error {
    let hint = match &error {
        RestoreError::Holds(_) => " (--replace)",
        RestoreError::File(quorate::backup::FileError::Foreign { .. }) if !plain => {
            " (use --plain for a SQLite database that is not a backup)"
        }
        _ => "",
    };
    Error::caused(format!("{error}{hint}"), error)
}
