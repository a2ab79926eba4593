//! Restores from an archive.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat};
use quorate::archive::{self, FetchOptions, Fetched, Objects, Plan, Progress, Target};
use quorate::restore::from_archive;
use quorate::types::ClusterId;
use quorate_backup::states;
use quorate_env::Env;
use quorate_replicate::Restored;
use quorate_server::{LogConfig, LogLevel};
use quorate_shell::format::size;
use serde_json::json;

use super::{Place, RestoreArgs, Scratch, cluster, failure, into_node};
use crate::error::{Error, Result};
use crate::progress::Line;
use crate::{log, output};

/// How long a restore waits for a store that does not answer: it may have read for an hour already.
const OUTAGE_MAX: Duration = Duration::from_secs(600);

/// Restores the state that `at` names, or says what would be read.
pub async fn run(args: &RestoreArgs, at: &str, begun: Instant) -> Result<()> {
    let url = args.source.to_str().ok_or_else(|| Error::new("the URL of the archive is not UTF-8"))?;
    let objects = args.store.open(url)?;
    // A restore that waits for the store says so.
    log::begin(LogConfig { level: LogLevel::Warn, ..LogConfig::default() })?;
    let mut options = FetchOptions::default();
    options.target = Some(states::target(at).map_err(Error::of)?);
    options.outage_max = OUTAGE_MAX;
    options.cluster = args.cluster.as_deref().map(cluster).transpose()?;
    if args.dry_run {
        let plan = plan(&objects, &options).await?;
        return output::print(&if args.json { as_json(&plan) } else { as_text(&plan) });
    }
    if args.plain {
        return plain(args, &objects, &options, begun).await;
    }
    let line = Line::begin();
    options.progress = line.teller(bytes);
    if let Some(file) = &args.output {
        options.is_plain = true;
        let fetched = archive::fetch(&objects, file, &options).await;
        drop(line);
        return output::print(&fetched_text(file, &fetched.map_err(Error::of)?, begun));
    }
    let place = Place::find(args)?;
    let restored = from_archive(&objects, &options, &place.config, &place.options(args)).await;
    drop(line);
    let restored = restored.map_err(|error| failure(error, args.plain))?;
    output::print(&place.text(&restored, begun.elapsed().as_secs_f64()))
}

async fn plan(objects: &Arc<dyn Objects>, options: &FetchOptions) -> Result<Plan> {
    let cluster = archive::only_cluster(&**objects, options.cluster.map(|named| named.0)).await.map_err(Error::of)?;
    let target = options.target.unwrap_or(Target::Latest);
    Plan::make(&Env::real(), objects, cluster, target).await.map_err(Error::of)
}

fn as_text(plan: &Plan) -> String {
    let mut text = format!(
        "cluster {}, epoch {}: the database after entry {}, and the entries up to {}\n",
        ClusterId(plan.cluster),
        plan.epoch,
        plan.boundary(),
        plan.last()
    );
    for (key, file) in &plan.files {
        text.push_str(&format!("{key}  {}\n", size(file.length)));
    }
    for segment in &plan.segments {
        text.push_str(&format!("{}  {}\n", segment.key, size(segment.length)));
    }
    let objects = plan.files.len().saturating_add(plan.segments.len());
    text.push_str(&format!("{objects} objects, {}\n", size(plan.bytes())));
    text
}

fn as_json(plan: &Plan) -> String {
    let files = plan.files.iter().map(|(key, file)| json!({"key": key, "bytes": file.length}));
    let segments = plan.segments.iter().map(
        |segment| json!({"key": segment.key, "bytes": segment.length, "first": segment.first, "last": segment.last}),
    );
    let plan = json!({
        "cluster": ClusterId(plan.cluster).to_string(), "epoch": plan.epoch, "boundary": plan.boundary(),
        "last": plan.last(), "bytes": plan.bytes(), "files": files.collect::<Vec<_>>(),
        "segments": segments.collect::<Vec<_>>(),
    });
    format!("{plan:#}\n")
}

fn fetched_text(file: &Path, fetched: &Fetched, begun: Instant) -> String {
    let Fetched { cluster, position, bytes, .. } = fetched;
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = size(*bytes);
    format!("{}: {bytes}, the database of {cluster} at position {position}, in {seconds:.1} s\n", file.display())
}

/// Returns how many bytes were read, and how many are to be read.
pub fn bytes(progress: Progress) -> (u64, u64) {
    (progress.read, progress.expected)
}

/// Restores a state of an archive that has only pages.
async fn plain(args: &RestoreArgs, objects: &Arc<dyn Objects>, options: &FetchOptions, begun: Instant) -> Result<()> {
    let target = options.target.unwrap_or(Target::Latest);
    let cluster = options.cluster.map(|cluster| cluster.0);
    let env = Env::real();
    let restore = async |file: &Path| {
        let restored = quorate_replicate::restore_pages(&env, objects, (cluster, target), file, OUTAGE_MAX).await;
        restored.map_err(Error::of)
    };
    let Some(file) = &args.output else {
        let scratch = Scratch::create(args.scratch.as_deref())?;
        restore(&scratch.file()).await?;
        return into_node(args, scratch.file(), begun).await;
    };
    let Restored { boundary, time, bytes, .. } = restore(file).await?;
    let time = DateTime::from_timestamp_millis(time).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true);
    let (file, bytes) = (file.display(), size(bytes));
    output::print(&format!("{file}: {bytes}, the database at boundary {boundary}, {time}\n"))
}
