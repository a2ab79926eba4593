//! The loop that keeps a copy of a database up with the store until it is told to stop.
//!
//! A file with the next transaction is asked for by its name, which costs one request and no list. What that can't
//! find, such as a new generation or files that were merged meanwhile, is found by a survey.
//!
//! Invariants:
//! - A file is fetched and verified before the copy is locked.
//! - All waits are bounded: between tries by [`BACKOFF_MAX`], between surveys of an idle store by [`SURVEY_INTERVAL`].
//! - The log has a line when something changes, and none for a try that finds what the one before found.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_archive::ltx::Txids;
use quorate_archive::restore::{Plan, Target};
use quorate_archive::{ArchiveError, Objects};
use quorate_env::{Env, Instant, lock, sleep};

use crate::changes::Captured;
use crate::copy::{Copy, Position};
use crate::error::ReplicateError;
use crate::origin::Origin;
use crate::replicate::BACKOFF_MAX;
use crate::restore::restore_part;
use crate::spool::{Fetched, Spool, beside};

/// How often a store that seems to have nothing new is surveyed.
const SURVEY_INTERVAL: Duration = Duration::from_secs(10);

/// The shortest interval.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How a database is followed.
#[derive(Clone, Copy, Debug)]
pub struct FollowOptions {
    /// How often the store is asked for something new; at most ten times a second.
    pub interval: Duration,
    /// The archive; `None` for the only one in the store.
    pub cluster: Option<u128>,
}

/// Restores a database to `path`, unless it is there, and keeps it up with the store until `stop` is ready.
///
/// # Errors
///
/// Returns an error that does not pass by itself. What others read is then still the last state, unharmed.
pub async fn follow(
    env: &Env,
    objects: Arc<dyn Objects>,
    path: &Path,
    options: FollowOptions,
    stop: impl Future<Output = ()>,
) -> Result<(), ReplicateError> {
    let options = FollowOptions { interval: options.interval.max(INTERVAL_MIN), ..options };
    let spool = Spool::create(env, beside(path, "-fetched"))?;
    let shared = Shared::default();
    let mut following = Following {
        env: env.clone(),
        objects,
        path: path.to_owned(),
        options,
        spool,
        shared: Arc::clone(&shared),
        at: None,
    };
    let stopped = tokio::select! {
        biased;
        () = stop => Ok(()),
        error = following.run() => Err(error),
    };
    // A change that is being made is made to its end.
    env.blocking(move || drop(lock(&shared).take())).await;
    stopped?;
    match following.at {
        Some(At { position, .. }) => tracing::info!(copy = %path.display(), transaction = position.txid, "stops"),
        None => tracing::info!(copy = %path.display(), "stops before there is a copy"),
    }
    Ok(())
}

/// The copy, which a blocking thread changes; `None` while it is not open.
type Shared = Arc<Mutex<Option<Copy>>>;

/// What is known of the copy.
#[derive(Clone, Copy)]
struct At {
    origin: Origin,
    position: Position,
}

struct Following {
    env: Env,
    objects: Arc<dyn Objects>,
    path: PathBuf,
    options: FollowOptions,
    spool: Spool,
    shared: Shared,
    /// `None` until the copy has been opened for the first time.
    at: Option<At>,
}

impl Following {
    /// Goes on until there is an error that does not pass.
    async fn run(&mut self) -> ReplicateError {
        let mut backoff = self.options.interval;
        let (mut is_failing, mut is_current) = (false, false);
        let mut surveyed_at = None;
        loop {
            match self.round(&mut surveyed_at).await {
                Ok(is_changed) => {
                    if std::mem::take(&mut is_failing) {
                        tracing::info!(copy = %self.path.display(), "goes on");
                    }
                    backoff = self.options.interval;
                    if !is_changed {
                        if !std::mem::replace(&mut is_current, true) {
                            tracing::info!(copy = %self.path.display(), "is up to date, and follows");
                        }
                        sleep(self.options.interval).await;
                    }
                }
                Err(error) if self.may_pass(&error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::warn!(copy = %self.path.display(), %error, "can't follow now, and tries again");
                    }
                    if error.is_busy() {
                        // A reader has not ended. The store is not to blame, and the reader may end at any moment.
                        backoff = self.options.interval;
                    } else {
                        surveyed_at = None;
                    }
                    sleep(backoff).await;
                    backoff = backoff.saturating_mul(2).min(BACKOFF_MAX.max(self.options.interval));
                }
                Err(error) => return error,
            }
        }
    }

    /// Whether it is worth another try. What is missing before there is a copy is missing because of a wrong name.
    fn may_pass(&self, error: &ReplicateError) -> bool {
        let is_missing = matches!(error, ReplicateError::Archive(ArchiveError::Missing(_)));
        error.is_retryable() || (is_missing && self.at.is_some())
    }

    /// Does what there is to do next, and returns whether there was something.
    async fn round(&mut self, surveyed_at: &mut Option<Instant>) -> Result<bool, ReplicateError> {
        let at = self.opened().await?;
        let Position { generation, txid } = at.position;
        let replica = at.origin.replica(&*self.objects, generation);
        if surveyed_at.is_some_and(|at| at.elapsed() < SURVEY_INTERVAL) {
            let next = txid.saturating_add(1);
            let next = Txids::new(next, next).map_err(|_| ReplicateError::NoCopy)?;
            return self.apply_object(&replica.captured(next), at).await;
        }
        *surveyed_at = Some(Instant::now());
        let now = at.origin.generation(&*self.objects).await?;
        if now != generation {
            self.begin_anew(at.origin, "the archive has begun another generation").await?;
            return Ok(true);
        }
        let mut files = replica.continuing(&*self.objects, txid).await?;
        if files.is_none() {
            // While files are merged, a list may show neither them nor the merged one.
            files = replica.continuing(&*self.objects, txid).await?;
        }
        let Some(files) = files else {
            self.begin_anew(at.origin, "the files that continue the copy are not in the store").await?;
            return Ok(true);
        };
        for (key, _) in &files {
            let at = self.at.unwrap_or(at);
            if !self.apply_object(key, at).await? {
                return Err(ArchiveError::Missing(format!("the object '{key}' is gone")).into());
            }
        }
        Ok(!files.is_empty())
    }

    /// Opens the copy if it is not open, or restores it if there is none.
    async fn opened(&mut self) -> Result<At, ReplicateError> {
        let (env, path, shared) = (self.env.clone(), self.path.clone(), Arc::clone(&self.shared));
        let open = move || {
            let mut shared = lock(&shared);
            if shared.is_none() {
                *shared = Copy::open(&env, &path)?;
            }
            Ok(shared.as_ref().map(|copy| At { origin: copy.origin(), position: copy.position() }))
        };
        let found = self.blocking(open).await?;
        let at = match found {
            Some(at) => at,
            None => self.restore().await?,
        };
        if self.at.is_none() {
            if self.options.cluster.is_some_and(|named| at.origin != Origin::Archive(named)) {
                return Err(ReplicateError::NoCopy);
            }
            tracing::info!(copy = %self.path.display(), transaction = at.position.txid, "begins to follow");
        }
        self.at = Some(at);
        Ok(at)
    }

    /// Restores the copy for the first time.
    async fn restore(&mut self) -> Result<At, ReplicateError> {
        let found = Origin::find(&*self.objects, self.options.cluster).await?;
        let origin =
            found.ok_or_else(|| ArchiveError::Missing("there is nothing to follow at this place".to_owned()))?;
        let (part, plan) =
            restore_part(&self.env, &self.objects, (origin, Target::Latest), &self.path, Duration::ZERO).await?;
        let position = position(&plan);
        let (env, path, shared) = (self.env.clone(), self.path.clone(), Arc::clone(&self.shared));
        let create = move || {
            *lock(&shared) = Some(Copy::create(&env, part.path(), &path, origin, position)?);
            Ok(())
        };
        self.blocking(create).await?;
        Ok(At { origin, position })
    }

    /// Makes the copy the latest state of the store, whatever it is now, in one transaction.
    async fn begin_anew(&mut self, origin: Origin, why: &str) -> Result<(), ReplicateError> {
        tracing::warn!(copy = %self.path.display(), "{why}: restores the copy anew");
        let (part, plan) =
            restore_part(&self.env, &self.objects, (origin, Target::Latest), &self.path, Duration::ZERO).await?;
        let position = position(&plan);
        self.change(move |copy| copy.become_like(&part, position)).await?;
        let (generation, transaction) = (position.generation, position.txid);
        tracing::info!(copy = %self.path.display(), generation, transaction, "is restored anew");
        self.at = Some(At { origin, position });
        Ok(())
    }

    /// Fetches and applies a file. Returns `false` if there is none.
    async fn apply_object(&mut self, key: &str, at: At) -> Result<bool, ReplicateError> {
        let Some(fetched) = self.spool.fetch(&*self.objects, key).await? else { return Ok(false) };
        let key = key.to_owned();
        let position = self.change(move |copy| apply(copy, &key, fetched)).await?;
        self.at = Some(At { position, ..at });
        Ok(true)
    }

    /// Changes the copy. After an error it is opened again before the next change.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Copy) -> Result<T, ReplicateError> + Send + 'static,
    ) -> Result<T, ReplicateError> {
        let shared = Arc::clone(&self.shared);
        let work = move || {
            let mut shared = lock(&shared);
            let changed = shared.as_mut().map_or(Err(ReplicateError::Closed), change);
            if changed.is_err() {
                *shared = None;
            }
            changed
        };
        self.blocking(work).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ReplicateError> + Send + 'static,
    ) -> Result<T, ReplicateError> {
        self.env.blocking(work).await.ok_or(ReplicateError::Closed)?
    }
}

fn apply(copy: &mut Copy, key: &str, fetched: Fetched) -> Result<Position, ReplicateError> {
    let Position { generation, txid } = copy.position();
    let captured = Captured::open(key, fetched, txid)?;
    let position = Position { generation, txid: captured.txids().max() };
    copy.apply(&captured, position)?;
    Ok(position)
}

/// Returns the position of the database that a plan gives.
fn position(plan: &Plan) -> Position {
    Position { generation: plan.generation, txid: plan.files.last().map_or(0, |(_, file)| file.max) }
}
