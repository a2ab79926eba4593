//! The loop that archives a database until it is told to stop.
//!
//! Invariants:
//! - What is asked of the store is a consequence of a change in the database, except for taking the archive over. An
//!   idle database costs no request.
//! - While the store fails, the database is still followed and checkpointed, so its `-wal` does not grow.
//! - All waits are bounded: those between tries by [`BACKOFF_MAX`], the end by [`Options::stop_wait`].

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use quorate_archive::{Archiver, Identity, Objects, Put};
use quorate_env::{Env, Instant, timeout};
use tokio::sync::watch;

use crate::error::ReplicateError;
use crate::follower::Follower;
use crate::place;

/// The longest wait between two tries.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The shortest wait between two tries.
const BACKOFF_MIN: Duration = Duration::from_secs(1);

/// How long to wait after a checkpoint that has not led to a restart of the `-wal`.
const CHECKPOINT_RETRY: Duration = Duration::from_secs(5);

/// How a database is archived.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often a boundary is taken, if something has changed.
    pub interval: Duration,
    /// The frames in the `-wal` from which on a checkpoint is made.
    pub checkpoint_frames: u32,
    /// For how long nothing has changed when what is left in the `-wal` is copied.
    pub checkpoint_idle: Duration,
    /// How often files are merged and old ones are deleted.
    pub tidy_interval: Duration,
    /// For how long states can be restored; `None` keeps all.
    pub keep: Option<Duration>,
    /// The archive that is continued; `None` for the only one in the store, or a new one.
    pub cluster: Option<u128>,
    /// How long the last boundary may be tried when the loop is told to stop.
    pub stop_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            checkpoint_frames: 1000,
            checkpoint_idle: Duration::from_secs(10),
            tidy_interval: Duration::from_secs(300),
            keep: None,
            cluster: None,
            stop_wait: Duration::from_secs(10),
        }
    }
}

/// How far the archive is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The archive.
    pub cluster: Option<u128>,
    /// For how long the database has had changes that are not archived; zero if there are none.
    pub lag: Duration,
    /// The number of the last boundary that is archived; 0 if none was since the start.
    pub boundary: u64,
    /// Its time, in milliseconds since 1970.
    pub time: i64,
    /// How many boundaries were archived since the start, and how many bytes.
    pub boundaries: u64,
    /// The bytes of these.
    pub bytes: u64,
    /// How many tries have failed since the start.
    pub errors: u64,
    /// Why the last try failed; `None` if it did not.
    pub error: Option<String>,
}

/// Archives a database until `stop` is ready, and then once more.
///
/// # Errors
///
/// Returns an error that is not retryable as soon as it occurs. After `stop`, returns the last error if the last
/// boundary could not be stored in time.
pub async fn replicate(
    env: &Env,
    database: &Path,
    objects: Arc<dyn Objects>,
    options: Options,
    status: watch::Sender<Status>,
    stop: impl Future<Output = ()>,
) -> Result<(), ReplicateError> {
    let mut replica = Replica::new(env, database, objects, options, status);
    let mut stop = pin!(stop);
    loop {
        let result = replica.step().await;
        replica.record(result)?;
        if timeout(replica.options.interval, &mut stop).await.is_ok() {
            break;
        }
    }
    let deadline = Instant::now() + replica.options.stop_wait;
    loop {
        replica.retry_at = None;
        let Err(error) = replica.step().await else { return Ok(()) };
        if !error.is_retryable() || Instant::now() >= deadline {
            return Err(error);
        }
        quorate_env::sleep(BACKOFF_MIN.min(replica.options.interval)).await;
    }
}

struct Replica {
    env: Env,
    database: PathBuf,
    objects: Arc<dyn Objects>,
    options: Options,
    status: watch::Sender<Status>,
    /// `None` before it has begun, and while it works.
    follower: Option<Follower>,
    archiver: Option<Archiver>,
    backoff: Duration,
    /// Before when the store is left alone.
    retry_at: Option<Instant>,
    /// Since when something has changed that is not archived.
    behind_since: Option<Instant>,
    changed_at: Instant,
    tidied_at: Instant,
    /// When a checkpoint was made last, and how many frames there were.
    checkpointed: Option<(Instant, u32)>,
}

impl Replica {
    fn new(
        env: &Env,
        database: &Path,
        objects: Arc<dyn Objects>,
        options: Options,
        status: watch::Sender<Status>,
    ) -> Self {
        let now = Instant::now();
        Self {
            env: env.clone(),
            database: database.to_owned(),
            objects,
            options,
            status,
            follower: None,
            archiver: None,
            backoff: BACKOFF_MIN,
            retry_at: None,
            behind_since: None,
            changed_at: now,
            tidied_at: now,
            checkpointed: None,
        }
    }

    /// Looks at the database, archives what has changed, and tidies up, each if it is time.
    async fn step(&mut self) -> Result<(), ReplicateError> {
        let has_news = self.follow(Follower::has_news).await?;
        let now = Instant::now();
        if has_news {
            self.behind_since.get_or_insert(now);
            self.changed_at = now;
        }
        let lag = self.behind_since.map(|since| now.saturating_duration_since(since));
        self.status.send_modify(|status| status.lag = lag.unwrap_or_default());
        // First of all, so that a store that fails does not keep the `-wal` long.
        self.checkpoint(now).await?;
        if self.retry_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        // A boundary whose storing was not answered is no longer news, but must be stored.
        let archived = if self.behind_since.is_some() { self.archive().await } else { Ok(()) };
        let tidied = if archived.is_ok() { self.tidy(now).await } else { Ok(()) };
        archived.and(tidied)?;
        self.succeed();
        Ok(())
    }

    /// Makes a checkpoint if the `-wal` is long, or if nothing has happened for a while.
    async fn checkpoint(&mut self, now: Instant) -> Result<(), ReplicateError> {
        let (frames, left) = self.follow(Follower::wal_frames).await?;
        let is_idle = now.saturating_duration_since(self.changed_at) >= self.options.checkpoint_idle;
        let is_due = frames >= self.options.checkpoint_frames || (is_idle && left > 0);
        // Without a restart since the last one, there is either nothing to do or somebody in the way.
        self.checkpointed = self.checkpointed.filter(|(_, then)| frames >= *then);
        let is_early = |at: Instant| now.saturating_duration_since(at) < CHECKPOINT_RETRY;
        let is_done = self.checkpointed.is_some_and(|(at, _)| left == 0 || is_early(at));
        if is_due && !is_done {
            self.follow(Follower::checkpoint).await?;
            self.checkpointed = Some((now, frames));
        }
        Ok(())
    }

    /// Stores a boundary.
    async fn archive(&mut self) -> Result<(), ReplicateError> {
        if self.archiver.is_none() {
            self.archiver = Some(self.take().await?);
        }
        let Some(mut archiver) = self.archiver.take() else { return Ok(()) };
        let archived = self.archive_with(&mut archiver).await;
        self.archiver = Some(archiver);
        archived
    }

    async fn archive_with(&mut self, archiver: &mut Archiver) -> Result<(), ReplicateError> {
        let index = archiver.next_index().await?;
        let Some(boundary) = self.follow(move |follower| follower.boundary(index)).await? else { return Ok(()) };
        let time = boundary.time();
        let bytes = match archiver.put_pages(boundary).await? {
            Put::File(bytes) | Put::Generation(bytes) => bytes,
            Put::Unchanged => 0,
        };
        // What was written meanwhile is found at the next look.
        self.behind_since = None;
        self.status.send_modify(|status| {
            (status.boundary, status.time, status.lag) = (index, time, Duration::ZERO);
            status.boundaries = status.boundaries.saturating_add(1);
            status.bytes = status.bytes.saturating_add(bytes);
        });
        Ok(())
    }

    /// Takes the archive over.
    async fn take(&mut self) -> Result<Archiver, ReplicateError> {
        let cluster = match self.options.cluster {
            Some(cluster) => cluster,
            None => place::find_or_name(&self.env, &*self.objects).await?,
        };
        // What was named once stays, even if the store fails now.
        self.options.cluster = Some(cluster);
        let identity = Identity { cluster, epoch: place::EPOCH, node: self.env.rng().next_u64(), token: 0 };
        let archiver = Archiver::take_next(&self.env, Arc::clone(&self.objects), identity).await?;
        tracing::info!(cluster = format!("{cluster:032x}"), token = archiver.manifest().token, "took the archive over");
        self.status.send_modify(|status| status.cluster = Some(cluster));
        Ok(archiver)
    }

    async fn tidy(&mut self, now: Instant) -> Result<(), ReplicateError> {
        let Some(archiver) = &mut self.archiver else { return Ok(()) };
        if now.saturating_duration_since(self.tidied_at) < self.options.tidy_interval {
            return Ok(());
        }
        archiver.tidy(place::millis(&self.env), self.options.keep).await?;
        self.tidied_at = now;
        Ok(())
    }

    /// Lets the follower work, and begins it if there is none.
    async fn follow<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Follower) -> Result<T, ReplicateError> + Send + 'static,
    ) -> Result<T, ReplicateError> {
        let (env, database, follower) = (self.env.clone(), self.database.clone(), self.follower.take());
        let done = self.env.blocking(move || {
            let mut follower = match follower {
                Some(follower) => follower,
                None => Follower::begin(&env, &database)?,
            };
            let result = work(&mut follower);
            Ok::<_, ReplicateError>((follower, result))
        });
        let (follower, result) = done.await.ok_or(ReplicateError::Closed)??;
        // Of a file without a name, nobody wants an archive.
        self.follower = (!matches!(result, Err(ReplicateError::Replaced))).then_some(follower);
        result
    }

    fn succeed(&mut self) {
        self.backoff = BACKOFF_MIN;
        self.retry_at = None;
        self.status.send_if_modified(|status| status.error.take().is_some());
    }

    /// Records the result of a step. Returns an error that will not pass.
    fn record(&mut self, result: Result<(), ReplicateError>) -> Result<(), ReplicateError> {
        let Err(error) = result else { return Ok(()) };
        self.status.send_modify(|status| {
            status.errors = status.errors.saturating_add(1);
            status.error = Some(error.to_string());
        });
        if !error.is_retryable() {
            return Err(error);
        }
        tracing::warn!(%error, retry_in = ?self.backoff, "the database could not be archived");
        self.retry_at = Instant::now().checked_add(self.backoff);
        self.backoff = self.backoff.saturating_mul(2).min(BACKOFF_MAX);
        Ok(())
    }
}
