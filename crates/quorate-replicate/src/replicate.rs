//! The loop that archives a database until it is told to stop.
//!
//! Invariants:
//! - What is asked of the store is a consequence of a change in the database, except for taking the archive over. An
//!   idle database costs no request.
//! - While the store works, or fails to, the database is still looked at, so its `-wal` does not grow. Only as long as
//!   the pages of a boundary are read, no checkpoint can be made.
//! - All waits are bounded: those between tries by [`BACKOFF_MAX`], and the end by [`STOP_MAX`] or, once a try has
//!   failed, by [`Options::stop_wait`].
//! - When it returns, no file of the database is open any more.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use quorate_archive::Objects;
use quorate_env::{Env, Instant, timeout};
use tokio::sync::watch;

use crate::error::ReplicateError;
use crate::following::{Following, Turns};
use crate::looks::{Behind, Looks};
use crate::uploads::Uploads;

/// The longest wait between two tries.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long the end may take although nothing says that the store fails.
pub const STOP_MAX: Duration = Duration::from_secs(120);

/// How long a look may take. If it takes longer, what it would find is not known.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// The shortest wait between two tries.
const BACKOFF_MIN: Duration = Duration::from_secs(1);

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
    /// How long the last boundary may be tried when the loop is told to stop and the store fails.
    pub stop_wait: Duration,
    /// The turns that this database takes with others of the process.
    pub turns: Turns,
    /// What asks for the changes to be archived at once.
    pub syncs: Syncs,
}

/// Asks a loop to archive at once what has changed, without waiting for the interval or for the next try. Clones share
/// it.
#[derive(Clone, Debug, Default)]
pub struct Syncs(watch::Sender<u64>);

impl Syncs {
    /// Asks, and returns the number of the request. When [`Status::synced`] has reached it, everything is in the store
    /// that was committed before.
    pub fn ask(&self) -> u64 {
        self.0.send_modify(|asked| *asked = asked.saturating_add(1));
        *self.0.borrow()
    }
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
            turns: Turns::default(),
            syncs: Syncs::default(),
        }
    }
}

/// How far the archive is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The archive.
    pub cluster: Option<u128>,
    /// How often the database is looked at.
    pub interval: Duration,
    /// Since when the database has had changes that are not archived, or may have had them because looks fail.
    pub behind_since: Option<Instant>,
    /// The bytes of the pages, at most, that have changed and are not archived.
    pub behind_bytes: u64,
    /// When a look at the database succeeded last.
    pub looked_at: Option<Instant>,
    /// The number of the last boundary that was taken; 0 if none was since the start.
    pub taken: u64,
    /// The number of the last boundary that is archived; 0 if none was since the start.
    pub boundary: u64,
    /// Its time, in milliseconds since 1970.
    pub time: i64,
    /// The number of the generation that holds the last boundary; 0 if there is none.
    pub generation: u32,
    /// How many boundaries were archived since the start, and how many bytes.
    pub boundaries: u64,
    /// The bytes of these.
    pub bytes: u64,
    /// How often files were merged and old ones deleted since the start, as far as that was necessary.
    pub tidied: u64,
    /// The number of the last request of [`Syncs`] after which all changes were archived.
    pub synced: u64,
    /// How many tries have failed since the start.
    pub errors: u64,
    /// Why the last try failed; `None` if it did not.
    pub error: Option<String>,
}

impl Status {
    /// Returns for how long the database has had changes that are not archived, or may have had them because it could
    /// not be looked at; zero if there are none. It grows as long as nothing helps.
    pub fn lag(&self) -> Duration {
        let is_late = |at: &Instant| at.elapsed() > self.interval.saturating_add(LOOK_MAX);
        let since = self.behind_since.or(self.looked_at.filter(is_late));
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Archives a database until `stop` is ready, and then once more. `status` may have been used before: then its counts
/// and its lag go on.
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
    let mut stop = Stop { requested: pin!(stop), requested_at: None, wait: options.stop_wait.min(STOP_MAX) };
    let following = Following::new(env, database.to_owned(), options.turns.clone());
    let mut replica = Replica::new(env, database, following.clone(), objects, options, status);
    let result = replica.run(&mut stop).await;
    drop(replica);
    following.end().await;
    result
}

/// The request to stop.
struct Stop<'a, F> {
    requested: Pin<&'a mut F>,
    requested_at: Option<Instant>,
    /// How long a store that fails may delay the end.
    wait: Duration,
}

impl<F: Future<Output = ()>> Stop<'_, F> {
    /// Waits for the request, or for this time. Returns whether there is a request.
    async fn is_requested_within(&mut self, time: Duration) -> bool {
        if self.requested_at.is_none() && timeout(time, &mut self.requested).await.is_ok() {
            self.requested_at = Some(Instant::now());
        }
        self.requested_at.is_some()
    }

    /// Waits for the request, or for this time; a shorter one if there is a request.
    async fn wait(&mut self, time: Duration) {
        if self.requested_at.is_some() {
            quorate_env::sleep(time.min(BACKOFF_MIN)).await;
        }
        self.is_requested_within(time).await;
    }

    /// Whether a store that fails may no longer delay the end.
    fn is_over(&self) -> bool {
        self.lasts_since(self.wait)
    }

    /// Whether nothing may delay the end any longer.
    fn is_spent(&self) -> bool {
        self.lasts_since(STOP_MAX)
    }

    fn lasts_since(&self, time: Duration) -> bool {
        self.requested_at.is_some_and(|at| at.elapsed() >= time)
    }
}

struct Replica {
    database: PathBuf,
    looks: Looks,
    uploads: Uploads,
    behind: Behind,
    status: Arc<watch::Sender<Status>>,
    /// The number of the last request to archive at once.
    asked: watch::Receiver<u64>,
    /// The number of the last one for which no wait was waited for.
    hurried: u64,
    interval: Duration,
    backoff: Duration,
    /// Before when the store is left alone.
    retry_at: Option<Instant>,
    /// When something was archived last: the next boundary is taken after the interval.
    uploaded_at: Option<Instant>,
}

impl Replica {
    fn new(
        env: &Env,
        database: &Path,
        following: Following,
        objects: Arc<dyn Objects>,
        options: Options,
        status: watch::Sender<Status>,
    ) -> Self {
        let interval = options.interval;
        let (asked, hurried) = (options.syncs.0.subscribe(), status.borrow().synced);
        status.send_modify(|status| status.interval = interval);
        let behind = Behind::from(&status.borrow());
        let status = Arc::new(status);
        let looks = Looks::new(following.clone(), behind.clone(), &options);
        let uploads = Uploads::new(env, following, objects, options, behind.clone(), Arc::clone(&status));
        let database = database.to_owned();
        let (backoff, retry_at, uploaded_at) = (BACKOFF_MIN, None, None);
        Self { database, looks, uploads, behind, status, asked, hurried, interval, backoff, retry_at, uploaded_at }
    }

    /// Goes on until it is told to stop, and then once more.
    async fn run<F: Future<Output = ()>>(&mut self, stop: &mut Stop<'_, F>) -> Result<(), ReplicateError> {
        loop {
            let result = self.round(stop).await;
            self.record(result)?;
            let pause = self.pause();
            tokio::select! {
                is_requested = stop.is_requested_within(pause) => if is_requested { break },
                // The sender is among the options, which the uploads have.
                Ok(()) = self.asked.changed() => {}
            }
        }
        loop {
            // From now on, no try is put off.
            self.hurry();
            let Err(error) = self.round(stop).await else { return Ok(()) };
            if !error.is_retryable() || stop.is_over() {
                return Err(error);
            }
            self.record(Err(error))?;
            quorate_env::sleep(BACKOFF_MIN.min(self.interval)).await;
        }
    }

    /// Waits neither for the next try nor for the interval.
    fn hurry(&mut self) {
        (self.retry_at, self.backoff, self.uploaded_at) = (None, BACKOFF_MIN, None);
    }

    /// Looks at the database, and then archives what has changed and tidies up, if it is time.
    async fn round<F: Future<Output = ()>>(&mut self, stop: &mut Stop<'_, F>) -> Result<(), ReplicateError> {
        let asked = *self.asked.borrow_and_update();
        if asked > self.hurried {
            self.hurried = asked;
            self.hurry();
        }
        self.look().await?;
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        let is_early = self.uploaded_at.is_some_and(|at| at.elapsed() < self.interval);
        if !is_early && self.upload(stop).await? {
            self.uploaded_at = Some(Instant::now());
            self.look().await?;
        }
        self.succeed();
        if !is_early {
            self.status.send_if_modified(|status| asked > std::mem::replace(&mut status.synced, asked));
        }
        Ok(())
    }

    /// Returns how long to wait until the next round.
    fn pause(&self) -> Duration {
        let to_upload = self.uploaded_at.map(|at| self.interval.saturating_sub(at.elapsed()));
        let to_upload = to_upload.filter(|left| !left.is_zero()).unwrap_or(self.interval);
        let pause = self.looks.pause().min(to_upload);
        self.retry_at.map_or(pause, |at| pause.min(at.saturating_duration_since(Instant::now())))
    }

    async fn look(&mut self) -> Result<(), ReplicateError> {
        let looked = self.looks.look().await;
        self.status.send_modify(|status| self.behind.show(status));
        looked
    }

    /// Uses the store if there is something to do, and returns whether there was. Meanwhile, the database is looked at.
    async fn upload<F: Future<Output = ()>>(&mut self, stop: &mut Stop<'_, F>) -> Result<bool, ReplicateError> {
        let Self { looks, uploads, behind, status, .. } = self;
        let looking = async {
            loop {
                stop.wait(looks.pause()).await;
                // An upload may last, unless it seems that the store fails.
                let failure = status.borrow().error.clone().filter(|_| stop.is_over());
                let spent = || stop.is_spent().then(|| format!("the store did not answer within {STOP_MAX:?}"));
                if let Some(failure) = failure.or_else(spent) {
                    return ReplicateError::Late(failure);
                }
                let looked = looks.look().await;
                status.send_modify(|status| behind.show(status));
                // An error that may pass does not end an upload. The next round finds it again.
                if let Some(error) = looked.err().filter(|error| !error.is_retryable()) {
                    return error;
                }
            }
        };
        // Both have to go on at the same time, because each may wait for a turn that the other one has.
        tokio::select! {
            biased;
            done = uploads.step() => done,
            error = looking => Err(error),
        }
    }

    fn succeed(&mut self) {
        self.backoff = BACKOFF_MIN;
        self.retry_at = None;
        if self.status.send_if_modified(|status| status.error.take().is_some()) {
            tracing::info!(database = %self.database.display(), "the database is archived again");
        }
    }

    /// Records the result of a round. Returns an error that will not pass.
    fn record(&mut self, result: Result<(), ReplicateError>) -> Result<(), ReplicateError> {
        let Err(error) = result else { return Ok(()) };
        // A look that fails does not wait for the next try. It is not told again and again.
        let is_told = self.retry_at.is_some_and(|at| Instant::now() < at);
        self.status.send_modify(|status| {
            status.errors = status.errors.saturating_add(u64::from(!is_told));
            status.error = Some(error.to_string());
        });
        if !error.is_retryable() {
            return Err(error);
        }
        if is_told {
            return Ok(());
        }
        let database = self.database.display();
        tracing::warn!(%database, %error, retry_in = ?self.backoff, "the database could not be archived");
        self.retry_at = Instant::now().checked_add(self.backoff);
        self.backoff = self.backoff.saturating_mul(2).min(BACKOFF_MAX);
        Ok(())
    }
}
