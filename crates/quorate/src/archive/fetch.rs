//! Makes a backup of what is archived: the database at a boundary, and the entries after it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quorate_archive::entries::Segment;
use quorate_archive::restore::{Plan, Target, TellProgress, has_state, only_cluster};
use quorate_archive::{ArchiveError, Objects};
use quorate_consensus::{ClusterId, LoggedEntry};
use quorate_env::Env;
use quorate_model::{Entry, Payload, Position};
use quorate_sql::backup::{Backup, FileError, PARTIAL_SUFFIX, Replay, remove};
use quorate_sql::extensions::Extensions;

use super::record;

/// How often a plan is made again because the archive was tidied up meanwhile.
const PLANS_MAX: usize = 3;

/// The nanoseconds of a millisecond.
const NANOS_PER_MILLI: u64 = 1_000_000;

/// What [`fetch`] restores.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct FetchOptions {
    /// The cluster; `None` if the store has the archive of only one.
    pub cluster: Option<ClusterId>,
    /// The state; `None` for the last one.
    pub target: Option<Target>,
    /// Whether the result is a plain SQLite file, without the checksum of a backup.
    pub is_plain: bool,
    /// The functions and collations of the program, if entries use some.
    pub extensions: Extensions,
    /// How long reading bears that the store does not answer, instead of failing at once.
    pub outage_max: Duration,
    /// Called from time to time, while pages are read.
    pub progress: Option<TellProgress>,
}

/// A fetched state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The cluster.
    pub cluster: ClusterId,
    /// The position of the last entry in it.
    pub position: Position,
    /// The last entry in the boundary; the entries after it were applied.
    pub boundary: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
}

/// Why a state can't be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The archive can't be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The file can't be made.
    #[error(transparent)]
    File(#[from] FileError),
}

impl FetchError {
    /// Returns whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Archive(error) => error.is_retryable(),
            Self::File(error) => error.is_retryable(),
        }
    }
}

/// Makes `file` a backup of an archived state, which [`restore`](crate::restore()) takes. It must not exist.
///
/// # Errors
///
/// After an error there is no such file, but possibly a part of it under another name (`.partial`), with which the next
/// call goes on if it fetches the same state, and which it replaces otherwise.
pub async fn fetch(
    objects: &Arc<dyn Objects>,
    file: impl AsRef<Path>,
    options: &FetchOptions,
) -> Result<Fetched, FetchError> {
    let env = Env::current().unwrap_or_else(Env::real);
    let file = file.as_ref();
    let exists = env.disk().exists(file).map_err(ArchiveError::Disk)?;
    if exists {
        return Err(FileError::Exists(file.to_path_buf()).into());
    }
    let cluster = ClusterId(only_cluster(&**objects, options.cluster.map(|named| named.0)).await?);
    let partial = PathBuf::from([file.as_os_str(), PARTIAL_SUFFIX.as_ref()].join("".as_ref()));
    let target = options.target.unwrap_or(Target::Latest);
    let (plan, replay) = rebuild(&env, objects, (cluster, target), &partial, options).await?;
    let is_plain = options.is_plain;
    let finish = move || if is_plain { replay.finish_unsealed() } else { replay.finish() };
    let Backup { identity, applied, bytes } = blocking(&env, finish).await?;
    env.disk().rename(&partial, file).map_err(ArchiveError::Disk)?;
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    env.disk().sync_dir(dir).map_err(ArchiveError::Disk)?;
    let position = Position { epoch: identity.epoch, group: identity.group, index: applied.index() };
    Ok(Fetched { cluster: ClusterId(identity.cluster), position, boundary: plan.boundary(), bytes })
}

/// Makes `file` the database at the target, for [`restore`](quorate_sql::backup::restore()), which checks it and makes
/// it durable. A file that is there is replaced.
pub(crate) async fn fetch_unchecked(
    env: &Env,
    objects: &Arc<dyn Objects>,
    file: &Path,
    options: &FetchOptions,
) -> Result<Backup, FetchError> {
    let cluster = ClusterId(only_cluster(&**objects, options.cluster.map(|named| named.0)).await?);
    let target = options.target.unwrap_or(Target::Latest);
    let (_, replay) = rebuild(env, objects, (cluster, target), file, options).await?;
    blocking(env, move || replay.finish_unchecked()).await
}

/// Makes `file` the database at the target, and returns how.
pub(super) async fn rebuild(
    env: &Env,
    objects: &Arc<dyn Objects>,
    (cluster, target): (ClusterId, Target),
    file: &Path,
    options: &FetchOptions,
) -> Result<(Plan, Replay), FetchError> {
    let mut attempts = 1..=PLANS_MAX;
    loop {
        let mut plan = Plan::make(env, objects, cluster.0, target).await?;
        plan.outage_max = options.outage_max;
        match follow(env, objects, &plan, file, options).await {
            Err(FetchError::Archive(ArchiveError::Missing(_))) if attempts.next().is_some() => {}
            done => return done.map(|replay| (plan, replay)),
        }
    }
}

/// Reads what a plan says, and makes the file of it. One that is there is replaced, or goes on if it is of the same
/// plan.
async fn follow(
    env: &Env,
    objects: &Arc<dyn Objects>,
    plan: &Plan,
    file: &Path,
    options: &FetchOptions,
) -> Result<Replay, FetchError> {
    // While there is a state, nothing but pages was written.
    if !has_state(env.disk().as_ref(), file).map_err(ArchiveError::Disk)? {
        remove(env.disk().as_ref(), file).map_err(ArchiveError::Disk)?;
    }
    plan.write_file(env, objects, file, options.progress.clone()).await?;
    let (disk, path, extensions) = (Arc::clone(env.disk()), file.to_path_buf(), options.extensions.clone());
    let mut replay = blocking(env, move || Replay::open(&disk, &path, &extensions)).await?;
    let rejected = rejected(env, objects, plan).await?;
    let mut segments = plan.read_segments(env, objects);
    while let Some((object, segment)) = segments.next().await? {
        let entries = decode(&object.key, segment, &rejected, plan.target)?;
        let is_last = entries.len() as u64 <= object.last.saturating_sub(object.first);
        replay = blocking(env, move || replay.apply(&entries).map(|()| replay)).await?;
        if is_last {
            break;
        }
    }
    Ok(replay)
}

/// Returns the entries of the plan that a later one rejects. The archiver may have read one of them before that was
/// decided, at a node that the others could not reach.
async fn rejected(env: &Env, objects: &Arc<dyn Objects>, plan: &Plan) -> Result<BTreeSet<u64>, FetchError> {
    let mut rejected = BTreeSet::new();
    let mut segments = plan.read_segments(env, objects);
    while let Some((object, segment)) = segments.next().await? {
        rejected.extend(logged(&object.key, segment)?.iter().filter_map(LoggedEntry::rejects));
    }
    Ok(rejected)
}

fn logged(key: &str, segment: Segment) -> Result<Vec<LoggedEntry>, ArchiveError> {
    let decode = |(index, record)| record::decode(index, record);
    let damaged =
        || ArchiveError::Damaged { key: key.to_owned(), what: "it has an entry that can't be read".to_owned() };
    (segment.first..).zip(segment.entries).map(decode).collect::<Option<_>>().ok_or_else(damaged)
}

/// Decodes the entries of a segment, up to the target.
fn decode(key: &str, segment: Segment, rejected: &BTreeSet<u64>, target: Target) -> Result<Vec<Entry>, ArchiveError> {
    let mut entries = Vec::new();
    for mut logged in logged(key, segment)? {
        logged.is_rejected |= rejected.contains(&logged.log_id.index);
        let damaged = |error: quorate_model::DecodeError| ArchiveError::Damaged {
            key: key.to_owned(),
            what: format!("entry {}: {error}", logged.log_id.index),
        };
        let entry = logged.entry().map_err(damaged)?;
        if is_after(&entry, target) {
            break;
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn is_after(entry: &Entry, target: Target) -> bool {
    match (target, &entry.payload) {
        (Target::Entry(last), _) => entry.log_id.index > last,
        (Target::Time(time), Payload::Proposal(stamp, _) | Payload::Rejected(stamp, _)) => {
            stamp.now / NANOS_PER_MILLI > u64::try_from(time).unwrap_or(0)
        }
        _ => false,
    }
}

/// Runs work on files on another thread.
pub(super) async fn blocking<T: Send + 'static>(
    env: &Env,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FetchError> {
    Ok(env.blocking(work).await.ok_or(ArchiveError::Closed)??)
}
