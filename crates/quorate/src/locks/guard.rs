//! The guard of a lock that is held.
//!
//! A task renews the lease until the guard is dropped, and then gives the lock back. What it is sure of stands in a
//! channel: until when, or that the lock was lost.
//!
//! # Invariants
//!
//! - A guard that was not sure for a moment is never sure again.
//! - The lock is given back only after the guard was dropped or released, also if it was lost: until then its owner may
//!   believe in it.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use quorate_env::{Instant, sleep_until, timeout_at};
use quorate_model::FailureKind;
use quorate_model::locks::{Lease, LocksCommand, LocksReply, Token};
use tokio::sync::{oneshot, watch};

use super::acquire::{RENEWALS, nanos};
use super::{Locks, LocksCall};
use crate::error::Error;
use crate::steps;

/// A guard is sure for this part of the time that a lease lasts. The rest is for clocks of nodes that differ, because
/// the lease ends by the clock of whichever node leads then.
const SURE_OF_4: u32 = 3;

/// After a renewal that failed, the next one follows when this part of the lease has passed.
const RETRIES: u32 = 20;

/// Until when a guard is sure; `None` when it has lost the lock.
type Sure = Option<Instant>;

/// How the release went.
type Released = oneshot::Sender<Result<bool, Error>>;

/// A lock that is held. It is renewed until this is dropped, and then given back as soon as the cluster hears of it, or
/// else when its time ends.
///
/// What is done with a lock may take longer than a lease lasts: a process can stop for a while at any instant. So look
/// at [`LockGuard::is_sure`] before a step, let work end with [`LockGuard::lost`], and, where it must not go wrong, add
/// [`LockGuard::holds`] to the batch, or hand on the [`LockGuard::token`] to what can compare it.
#[derive(Debug)]
#[must_use = "the lock is given back when the guard is dropped"]
pub struct LockGuard {
    fence: Fence,
    sure: watch::Receiver<Sure>,
    stop: oneshot::Sender<Released>,
}

/// The grant that a guard stands for: it can be checked, and does not keep the lock.
#[derive(Clone, Debug)]
pub struct Fence {
    held: Held,
    token: Token,
}

/// A holder of a lock.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) locks: Locks,
    pub(super) name: Bytes,
    pub(super) holder: Bytes,
    pub(super) ttl: Duration,
}

impl LockGuard {
    /// Starts the renewals of a lock that was granted by a request that was sent then.
    pub(super) fn start(held: Held, sent: Instant, lease: Lease) -> Result<Self, Error> {
        let (stop, stopped) = oneshot::channel();
        let (certain, sure) = watch::channel(Some(sure_until(sent, lease)));
        let fence = Fence { held, token: lease.token };
        let keeper = Keeper { fence: fence.clone(), certain };
        fence.held.spawn(keeper.keep(sent, stopped));
        Ok(Self { fence, sure, stop })
    }

    /// Returns the token of the grant: higher than those of all grants before it.
    pub fn token(&self) -> Token {
        self.fence.token
    }

    /// Returns the name of the lock.
    pub fn name(&self) -> &Bytes {
        &self.fence.held.name
    }

    /// Returns the name of the holder.
    pub fn holder(&self) -> &Bytes {
        &self.fence.held.holder
    }

    /// Returns whether nobody else can hold the lock at this instant, as long as the clocks of the nodes differ by less
    /// than a quarter of the lease, and the monotonic clock of this machine goes on: it may stand still while the
    /// machine is suspended.
    pub fn is_sure(&self) -> bool {
        let until = *self.sure.borrow();
        // Without a sender nobody renews.
        self.sure.has_changed().is_ok()
            && until.is_some_and(|until| self.fence.held.now().is_some_and(|now| now < until))
    }

    /// Returns when the guard can no longer be sure that the lock is held: it was taken away, or could not be renewed
    /// in time. Dropping the future is harmless.
    pub async fn lost(&self) {
        let mut sure = self.sure.clone();
        // An error means that the runtime has ended, and with it the renewals.
        let _ = sure.wait_for(Option::is_none).await;
    }

    /// Returns a step that makes a batch fail unless the lock is held with this guard's token.
    pub fn holds(&self) -> LocksCall<Lease> {
        self.fence.holds()
    }

    /// Returns the grant, to be checked elsewhere.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Gives the lock back. Returns `false` if it was lost before.
    ///
    /// # Errors
    ///
    /// Those of [`Sql::execute`](crate::Sql::execute): the lock ends with its time at the latest.
    pub async fn release(self) -> Result<bool, Error> {
        let (answer, released) = oneshot::channel();
        let Self { stop, .. } = self;
        stop.send(answer).map_err(|_| Error::Closed)?;
        released.await.unwrap_or(Err(Error::Closed))
    }
}

impl Fence {
    /// Returns the token of the grant.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns a step that makes a batch fail unless the lock is held with this token.
    pub fn holds(&self) -> LocksCall<Lease> {
        self.held.locks.holds(self.held.name.clone(), self.token)
    }

    /// Gives the lock back. Returns `false` if it is no longer held with this token: the same holder may have got it
    /// again since.
    async fn release(&self) -> Result<bool, Error> {
        let released = self.held.locks.sql.batch(steps![self.holds(), self.held.release()]).await;
        match released {
            Err(Error::Failed(failure)) if failure.kind == FailureKind::NotHeld => Ok(false),
            released => released.map(|_| true),
        }
    }
}

impl Held {
    /// Returns the time; `None` after the end of the runtime.
    pub(super) fn now(&self) -> Option<Instant> {
        self.locks.sql.submitter.runtime().inside(Instant::now).ok()
    }

    /// Ends what the cluster has of it, as soon as that can be told.
    pub(super) fn end(self) {
        let release = self.release();
        self.spawn(async move { drop(release.await) });
    }

    /// Ends its wait, and no lease, as soon as that can be told.
    pub(super) fn end_wait(self) {
        let withdraw = self.withdraw();
        self.spawn(async move { drop(withdraw.await) });
    }

    pub(super) fn withdraw(&self) -> LocksCall<LocksReply> {
        self.locks.run(LocksCommand::Withdraw { name: self.name.clone(), holder: self.holder.clone() })
    }

    fn release(&self) -> LocksCall<bool> {
        self.locks.run(LocksCommand::Release { name: self.name.clone(), holder: self.holder.clone() })
    }

    /// Runs a task. After the end of the runtime there is nothing to run it, and no connection either.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let runtime = self.locks.sql.submitter.runtime();
        let _ = runtime.inside(|| drop(runtime.env().spawn(task)));
    }
}

/// Renews a lease.
struct Keeper {
    fence: Fence,
    certain: watch::Sender<Sure>,
}

impl Keeper {
    /// Renews the lease until the guard is dropped, and then gives the lock back.
    async fn keep(self, sent: Instant, mut stopped: oneshot::Receiver<Released>) {
        let renewing = pin!(self.renew(sent));
        let answer = match select(&mut stopped, renewing).await {
            Either::Left((answer, _)) => answer,
            // The lock was lost; the guard may not know it yet.
            Either::Right(_) => {
                self.certain.send_replace(None);
                stopped.await
            }
        };
        let released = self.fence.release().await;
        if let Ok(answer) = answer {
            // It is dropped if the caller no longer waits.
            let _ = answer.send(released);
        }
    }

    /// Returns when the lock is lost.
    async fn renew(&self, sent: Instant) {
        let ttl = self.fence.held.ttl;
        let mut due = sent + ttl / RENEWALS;
        loop {
            let until = *self.certain.borrow();
            let Some(until) = until else { return };
            sleep_until(due.min(until)).await;
            let sent = Instant::now();
            if sent >= until {
                return;
            }
            let reply = timeout_at(until, self.ask(until.saturating_duration_since(sent))).await;
            match reply {
                Ok(Ok(LocksReply::Held(lease))) if Instant::now() < until => {
                    self.certain.send_replace(Some(sure_until(sent, lease)));
                    due = sent + ttl / RENEWALS;
                }
                Ok(Ok(_)) => return,
                Ok(Err(_)) | Err(_) => due = Instant::now() + ttl / RETRIES,
            }
        }
    }

    async fn ask(&self, limit: Duration) -> Result<LocksReply, Error> {
        let Fence { held: Held { locks, name, holder, ttl }, token } = &self.fence;
        let (name, holder, ttl) = (name.clone(), holder.clone(), nanos(*ttl));
        locks.with_deadline(limit).run(LocksCommand::Renew { name, holder, token: *token, ttl }).await
    }
}

/// Returns until when a lease is certain, which the reply to a request of that time has told. It began later.
fn sure_until(sent: Instant, lease: Lease) -> Instant {
    sent + Duration::from_nanos(lease.left) / 4 * SURE_OF_4
}
