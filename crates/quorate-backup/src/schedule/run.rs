//! Runs a plan beside a node.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate::admin::Admin;
use quorate::types::ClusterId;
use quorate::{Level, Observer};
use quorate_env::{Env, Instant, lock, sleep, timeout};
use tokio::sync::Mutex as AsyncMutex;

use super::{ATTEMPTS_MAX, Last, Plan, State, WINDOW_MAX};
use crate::backups::{self, Claim, Made, NANOS, Options, blocking, env};
use crate::error::Error;
use crate::store::Store;

/// The longest sleep: the wall clock may jump meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(10);
/// How often a node looks whether it leads, once a time has come.
const LEAD_POLL: Duration = Duration::from_secs(1);
/// The pause after an attempt that failed, and while another node makes the backup.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// How long the removal of a claim may take when the node stops.
const RELEASE_MAX: Duration = Duration::from_secs(3);
/// The most bytes of a claim.
const CLAIM_BYTES_MAX: u64 = 1024;

/// Makes backups as planned, until `stop` is ready or the node ends. A failure is logged and seen in `state`.
pub async fn run(plan: Plan, observer: Observer, admin: Admin, state: Arc<State>, stop: impl Future<Output = ()>) {
    let env = env();
    let mark = format!("{:016x}", env.rng().next_u64());
    let runner = Runner { plan, observer, admin, state, env, mark, held: Mutex::default() };
    tokio::select! {
        () = runner.run() => {}
        () = stop => {}
    }
    runner.release().await;
}

struct Runner {
    plan: Plan,
    observer: Observer,
    admin: Admin,
    state: Arc<State>,
    env: Env,
    /// Tells the claims of this process from those of others.
    mark: String,
    /// The claim that this node holds, or has begun to create.
    held: Mutex<Option<Held>>,
}

/// A claim of this node.
#[derive(Clone)]
struct Held {
    store: Store,
    name: String,
    content: String,
    /// Locked while the store creates it.
    creating: Arc<AsyncMutex<()>>,
}

impl Held {
    /// Creates the claim in the store; returns `false` if there is one already. Goes on if the caller is dropped: a
    /// request that was begun may have its effect later, when the claim was already looked for in vain.
    async fn create(&self, env: &Env) -> Result<bool, Error> {
        let (claim, creating) = (self.clone(), Arc::clone(&self.creating).lock_owned().await);
        let created = env.spawn(async move {
            let _creating = creating;
            claim.store.put_new(&claim.name, claim.content.into()).await
        });
        created.await.unwrap_or(Err(Error::Closed))
    }

    /// Looks whether the claim that is in the store is this one.
    async fn is_there(&self) -> Result<bool, Error> {
        let content = async {
            let mut found = self.store.download(&self.name).await?;
            if found.bytes() > CLAIM_BYTES_MAX { Ok(None) } else { found.next().await }
        };
        match content.await {
            // The node that had claimed the time may remove its claim at any moment.
            Err(Error::Missing { .. }) => Ok(false),
            content => Ok(content?.is_some_and(|content| content == self.content)),
        }
    }

    /// Removes the claim if it is in the store, or is about to be there.
    async fn remove(&self) -> Result<(), Error> {
        let _created = self.creating.lock().await;
        if self.is_there().await? { self.store.delete(&self.name).await } else { Ok(()) }
    }
}

/// The node as it sees itself.
struct Place {
    name: String,
    cluster: ClusterId,
    leads: bool,
}

/// The result of an attempt.
enum Attempt {
    Made(Made),
    /// The backup of this time is there.
    There,
    /// Another node makes it, or has died while it did.
    Claimed,
}

impl Runner {
    async fn run(&self) {
        if let Err(error) = empty_dir(&self.env, &self.plan.scratch).await {
            tracing::warn!(event = "backup_scratch", %error, "cannot empty the directory for copies");
        }
        self.look(true).await;
        let mut after = self.now();
        loop {
            let Some(due) = self.plan.schedule.next_after(after) else {
                let schedule = &self.plan.schedule;
                tracing::warn!(event = "backup_schedule", %schedule, "the schedule has no more times");
                return std::future::pending().await;
            };
            self.state.change(|seen| seen.next = Some(due));
            wait_until(&self.env, due).await;
            if !self.at(due).await {
                return;
            }
            after = self.now().max(due);
        }
    }

    /// Sees that the backup of a time is made, within its window. Returns `false` if the node has ended.
    async fn at(&self, due: u64) -> bool {
        let next = self.plan.schedule.next_after(due).unwrap_or(u64::MAX);
        let end = next.min(due.saturating_add(WINDOW_MAX.as_secs()));
        let mut failures = 0;
        loop {
            let Some(place) = self.place().await else { return false };
            let mut pause = LEAD_POLL;
            if place.leads {
                pause = RETRY_PAUSE;
                match self.attempt(due, &place).await {
                    Ok(Attempt::Made(_) | Attempt::There) => return true,
                    Ok(Attempt::Claimed) => {}
                    Err(error) => {
                        failures += 1;
                        let is_last = failures >= ATTEMPTS_MAX || !error.is_retryable();
                        self.failed(due, &error, is_last);
                        if is_last {
                            return true;
                        }
                    }
                }
            }
            if self.until(end).is_zero() {
                break;
            }
            sleep(pause.min(self.until(end))).await;
        }
        self.look(false).await;
        true
    }

    async fn attempt(&self, due: u64, place: &Place) -> Result<Attempt, Error> {
        let begun = Instant::now();
        let store = self.plan.open()?;
        if !self.claim(&store, due, place).await? {
            return Ok(Attempt::Claimed);
        }
        let attempt = self.make(&store, due, place).await;
        self.release().await;
        if let Ok(Attempt::Made(made)) = &attempt {
            let seconds = begun.elapsed().as_secs_f64();
            let (name, bytes, database_bytes) = (made.name, made.bytes, made.database_bytes);
            let position = made.position();
            tracing::info!(
                event = "backup", %name, bytes, database_bytes, %position, seconds, location = %self.plan.location,
                "made a backup"
            );
            self.prune(&store).await;
        }
        attempt
    }

    /// Makes the backup of a time, which this node has claimed, unless it is there.
    async fn make(&self, store: &Store, due: u64, place: &Place) -> Result<Attempt, Error> {
        let there = backups::list(store).await?;
        let there = there.into_iter().find(|found| found.name.time() == due && found.name.cluster == place.cluster);
        if let Some(found) = there {
            let last = Some(Last { name: found.name, bytes: found.bytes });
            self.state.change(|seen| seen.last = last);
            return Ok(Attempt::There);
        }
        let (encryption, scratch) = (self.plan.encryption.clone(), self.plan.scratch.clone());
        let options = Options { encryption, level: Level::Linearizable, scratch, time: Some(due), progress: None };
        let made = backups::make(&self.admin, store, &options).await?;
        let last = Some(Last { name: made.name, bytes: made.bytes });
        self.state.change(|seen| (seen.last, seen.error) = (last, None));
        Ok(Attempt::Made(made))
    }

    /// Claims a time. Returns `false` if another node has claimed it.
    async fn claim(&self, store: &Store, due: u64, place: &Place) -> Result<bool, Error> {
        let name = Claim { time: due, cluster: place.cluster }.to_string();
        let content = format!("{} {}\n", place.name, self.mark);
        let claim = Held { store: store.clone(), name, content, creating: Arc::default() };
        // A stop may come before the answer, and has to remove the claim then.
        *lock(&self.held) = Some(claim.clone());
        let is_new = claim.create(&self.env).await?;
        // The answer to an earlier request may have been lost.
        let is_held = is_new || claim.is_there().await?;
        if !is_held {
            *lock(&self.held) = None;
        }
        Ok(is_held)
    }

    /// Removes the claim of this node, if it has one. It is forgotten only then, because a stop may end this.
    async fn release(&self) {
        let Some(claim) = lock(&self.held).clone() else { return };
        if let Ok(Err(error)) = timeout(RELEASE_MAX, claim.remove()).await {
            let name = claim.name;
            tracing::warn!(event = "backup_claim", %name, %error, "cannot remove a claim; it is removed after a day");
        }
        *lock(&self.held) = None;
    }

    async fn prune(&self, store: &Store) {
        match backups::prune(store, self.plan.keep).await {
            Ok(gone) if gone.is_empty() => {}
            Ok(gone) => tracing::info!(event = "backups_pruned", count = gone.len(), "deleted old backups"),
            Err(error) => tracing::warn!(event = "backups_not_pruned", %error, "cannot delete old backups"),
        }
    }

    fn failed(&self, due: u64, error: &Error, is_last: bool) {
        let time = backups::time_text(due);
        self.state.change(|seen| {
            seen.failures = seen.failures.saturating_add(1);
            seen.error = Some(error.to_string());
        });
        if is_last {
            tracing::error!(event = "backup_failed", %error, time, "no backup was made");
        } else {
            tracing::warn!(event = "backup_failed", %error, time, "cannot make a backup; will try again");
        }
    }

    /// Looks which backup is the newest in the store.
    async fn look(&self, says_why_not: bool) {
        let look = async {
            let Some(place) = self.place().await else { return Ok(()) };
            let found = backups::list(&self.plan.open()?).await?;
            let found = found.into_iter().rfind(|found| found.name.cluster == place.cluster);
            if let Some(found) = found {
                self.state.change(|seen| seen.last = Some(Last { name: found.name, bytes: found.bytes }));
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = look.await
            && says_why_not
        {
            tracing::warn!(event = "backups_unseen", %error, "cannot look for backups");
        }
    }

    /// Returns how the node sees itself; `None` once it has ended.
    async fn place(&self) -> Option<Place> {
        let observer = self.observer.clone();
        let (status, _) = self.env.blocking(move || observer.status()).await??;
        Some(Place { leads: status.leader == Some(status.node), name: status.name, cluster: status.cluster })
    }

    fn now(&self) -> u64 {
        self.env.unix_nanos() / NANOS
    }

    fn until(&self, time: u64) -> Duration {
        until(&self.env, time)
    }
}

/// Returns the time until a time of the wall clock, in seconds since 1970.
fn until(env: &Env, time: u64) -> Duration {
    Duration::from_nanos(time.saturating_mul(NANOS).saturating_sub(env.unix_nanos()))
}

/// Waits for a time of the wall clock, in seconds since 1970.
pub(crate) async fn wait_until(env: &Env, time: u64) {
    while !until(env, time).is_zero() {
        sleep(until(env, time).min(SLEEP_MAX)).await;
    }
}

/// Creates a directory, or empties it.
pub(crate) async fn empty_dir(env: &Env, path: &Path) -> Result<(), Error> {
    let (disk, named, path) = (Arc::clone(env.disk()), path.to_path_buf(), path.to_path_buf());
    let empty = move || {
        if disk.exists(&path)? {
            disk.remove_dir_all(&path)?;
        }
        disk.create_dir_all(&path)
    };
    blocking(env, move || empty().map_err(Error::disk(&named))).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use futures_util::FutureExt as _;

    use super::*;
    use crate::store::Location;

    /// What is dropped after one poll has begun the request, and has not seen its end.
    #[tokio::test]
    async fn a_claim_that_is_being_created_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&Location::dir(dir.path()).unwrap(), None).unwrap();
        for number in 0..50 {
            let (name, content) = (format!("{number}.claim"), "mine".to_owned());
            let claim = Held { store: store.clone(), name, content, creating: Arc::default() };
            assert!(claim.create(&env()).now_or_never().is_none());
            claim.remove().await.unwrap();
            assert!(!claim.is_there().await.unwrap());
        }
        assert_eq!(store.list().await.unwrap(), []);
    }
}
