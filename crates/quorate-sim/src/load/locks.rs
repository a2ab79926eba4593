//! Clients that take turns at one lock and write its token under it, some of them too late.
//!
//! Invariant: each grant writes at most one row of `grants`, together with the check that its token is in force. So the
//! rows show in which order the grants were in force, whatever the clocks of the nodes showed. The entries that look at
//! the lock do so when it is settled, so they show who is to hold it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorate::{Error, FailureKind, Sql, keys::Replies, params, steps};
use quorate_env::{Rng, sleep};
use quorate_model::Position;
use quorate_model::locks::{LOCKS_LEVEL, LocksCommand, LocksReply};

use super::WRITE_LIMIT;
use crate::cluster::Cluster;
use crate::coverage::{FENCED, LOCK_HELD, LOCK_TIMED_OUT, RENEWED_LATE};
use crate::ledger::Ledger;

/// How many of them there are.
pub(super) const CLIENTS: u32 = 3;

/// The table of the tokens.
pub(super) const TABLE: &str = "CREATE TABLE grants (token INTEGER NOT NULL)";

/// The longest pauses, in milliseconds: between two turns, and within one.
const PAUSE_MILLIS: u64 = 1_500;
const TURN_MILLIS: u64 = 700;

/// How long a lease lasts, and how long a client waits for its turn.
const TTL: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_secs(6);

/// A turn begins with a look at the lock once in so many times.
const LOOK_ONE_IN: u64 = 3;

/// After a turn the client renews a grant that has ended once in so many times.
const LATE_ONE_IN: u64 = 4;

/// The lock.
const NAME: &str = "grants";

/// A client.
pub(super) struct LockClient {
    cluster: Cluster,
    ledger: Ledger,
    rng: Rng,
    stop: Arc<AtomicBool>,
    calm: u64,
}

impl LockClient {
    pub(super) fn new(cluster: &Cluster, ledger: &Ledger, stop: &Arc<AtomicBool>, calm: u32) -> Self {
        let (cluster, rng) = (cluster.clone(), cluster.world().rng().fork());
        Self { cluster, ledger: ledger.clone(), rng, stop: Arc::clone(stop), calm: calm.into() }
    }

    pub(super) async fn run(self) {
        while !self.stop.load(Ordering::Relaxed) {
            self.pause(PAUSE_MILLIS * self.calm).await;
            let names = self.cluster.names();
            let name = names.get(usize::try_from(self.rng.below(names.len() as u64)).unwrap_or(0));
            let Some(sql) = name.and_then(|name| self.cluster.sql(name)) else { continue };
            if self.cluster.statuses().iter().any(|status| status.format_level >= LOCKS_LEVEL) {
                let turn = self.turn(&sql.with_deadline(WRITE_LIMIT)).await;
                turn.unwrap_or_else(|error| self.failed(&error));
            }
        }
    }

    /// Waits for the lock, writes under it, and gives it back before or after that.
    async fn turn(&self, sql: &Sql) -> Result<(), Error> {
        if self.rng.below(LOOK_ONE_IN) == 0 {
            self.look(sql).await?;
        }
        let guard = sql.locks().acquire(NAME).ttl(TTL).wait(WAIT).await?;
        self.ledger.happened(LOCK_HELD);
        let (fence, mut kept) = (guard.fence(), Some(guard));
        if self.rng.below(4) == 0 {
            kept = None;
        }
        self.pause(TURN_MILLIS).await;
        let token = i64::try_from(fence.token().0).unwrap_or(i64::MAX);
        let insert = ("INSERT INTO grants (token) VALUES (?)", params![token]);
        let done = sql.batch(steps![fence.holds(), insert, sql.locks().inspect(NAME)]).await?;
        self.ledger.granted(token);
        self.saw(done.position, &done.replies, 2);
        match kept {
            Some(guard) if self.rng.below(2) == 0 => guard.release().await.map(drop)?,
            kept => drop(kept),
        }
        if self.rng.below(LATE_ONE_IN) == 0 { self.renew_late(sql).await } else { Ok(()) }
    }

    /// Loses a grant and gets another one by the same name. Then neither a renewal nor the end of the first guard may
    /// find the lock held with its token.
    async fn renew_late(&self, sql: &Sql) -> Result<(), Error> {
        let (locks, holder) = (sql.locks(), format!("late-{}", self.rng.next_u64()));
        let acquire = || locks.acquire(NAME).holder(holder.as_str()).ttl(TTL).wait(WAIT);
        let late = acquire().await?;
        let token = late.token();
        locks.force(NAME, Some(token)).await?;
        let guard = acquire().await?;
        let ttl = TTL.as_nanos().try_into().unwrap_or(u64::MAX);
        let renew = LocksCommand::Renew { name: NAME.into(), holder: holder.into(), token, ttl };
        let renewed = locks.run::<LocksReply>(renew).await?;
        let is_released = late.release().await?;
        if renewed != LocksReply::Missing || is_released {
            let text = format!("{token:?} has ended, but was renewed ({renewed:?}), or given back: {is_released}");
            self.cluster.history().violation(text);
        }
        self.ledger.happened(RENEWED_LATE);
        drop(guard);
        Ok(())
    }

    /// Looks at the lock. The first command, of a holder that does not exist, settles it.
    async fn look(&self, sql: &Sql) -> Result<(), Error> {
        let settle = LocksCommand::Withdraw { name: NAME.into(), holder: "nobody".into() };
        let done = sql.batch(steps![sql.locks().run::<bool>(settle), sql.locks().inspect(NAME)]).await?;
        self.saw(done.position, &done.replies, 1);
        Ok(())
    }

    /// Records what a step has shown of the lock.
    fn saw(&self, position: Position, replies: &Replies, step: usize) {
        if let Some(Some(lock)) = replies.of_lock(step) {
            self.ledger.saw_lock(position.index, lock);
        }
    }

    fn failed(&self, error: &Error) {
        match error {
            Error::Failed(failure) if failure.kind == FailureKind::NotHeld => self.ledger.happened(FENCED),
            Error::TimedOut(_) => self.ledger.happened(LOCK_TIMED_OUT),
            Error::Failed(failure) if failure.kind == FailureKind::Rejected && self.cluster.may_reject() => {}
            // Not all members understand it yet.
            Error::Failed(failure) if failure.kind == FailureKind::Unsupported => {}
            Error::Failed(_) | Error::Forbidden(_) | Error::Row(_) => {
                self.cluster.history().violation(format!("a command on locks failed: {error}"));
            }
            _ => {}
        }
    }

    async fn pause(&self, millis: u64) {
        sleep(Duration::from_millis(self.rng.below(millis))).await;
    }
}

/// Reads the tokens in the order in which they were written.
pub(super) async fn grants(sql: &Sql) -> Result<Vec<i64>, Error> {
    sql.query_as("SELECT token FROM grants ORDER BY rowid", ()).await
}
