//! Acquiring a lock: the options, and the wait.
//!
//! A waiter is a row of the cluster that lasts as long as a lease and is renewed as often. Whoever waits is woken by
//! the entry that grants it the lock, and asks in any case when its wait is to be renewed: so a message that is lost
//! delays it, and nothing else.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, select};
use quorate_env::{Instant, sleep};
use quorate_model::locks::{Lease, LocksCommand, LocksReply};
use quorate_model::{Failure, FailureKind};

use super::guard::{Fence, Held, LockGuard};
use super::{Locks, other_answer};
use crate::error::Error;
use crate::keys::IntoBytes;

/// How long a lease lasts unless [`Acquire::ttl`] says something else: several times as long as a change of the leader
/// usually takes.
pub const TTL_DEFAULT: Duration = Duration::from_secs(10);

/// A lease, or a wait, is renewed this many times while it lasts.
pub(super) const RENEWALS: u32 = 4;

/// A request to acquire a lock. Awaited, it waits for its turn and returns a guard. If its future is dropped, the wait
/// ends; what the cluster does not hear of ends with the time of the lease.
///
/// # Errors
///
/// [`Error::TimedOut`] if the lock was not granted within [`Acquire::wait`], [`Error::Overloaded`] if as many wait as
/// may ([`limits::WAITERS_MAX`](super::limits::WAITERS_MAX)), and [`Error::Failed`] with
/// [`FailureKind::InvalidValue`] if the lock has another number of permits at present. Otherwise those of
/// [`Sql::execute`](crate::Sql::execute).
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired until it is awaited"]
pub struct Acquire {
    locks: Locks,
    name: Bytes,
    holder: Option<Bytes>,
    ttl: Duration,
    permits: u64,
    wait: Option<Duration>,
    note: Bytes,
}

impl Acquire {
    pub(super) fn new(locks: Locks, name: Bytes) -> Self {
        let note = Bytes::new();
        Self { locks, name, holder: None, ttl: TTL_DEFAULT, permits: 1, wait: None, note }
    }

    /// Sets how long the lease lasts without a renewal: after a crash of this process, others get the lock so much
    /// later. The guard renews it four times in that time. The default is [`TTL_DEFAULT`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// Sets how many may hold the lock at a time: with more than 1 it is a semaphore. All who acquire it must say the
    /// same.
    pub fn permits(self, permits: u64) -> Self {
        Self { permits, ..self }
    }

    /// Waits at most so long. The default is to wait for ever.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Sets a text that others can read: who this is, and what for.
    pub fn note(self, note: impl IntoBytes) -> Self {
        Self { note: note.into_bytes(), ..self }
    }

    /// Sets the name of the holder, which is random by default. Who acquires a lock that the same holder has already
    /// gets it at once, with the same token: so a process that was restarted takes over what it held. Two guards of
    /// the same holder are one to the cluster: the first that is dropped gives the lock back.
    pub fn holder(self, holder: impl IntoBytes) -> Self {
        Self { holder: Some(holder.into_bytes()), ..self }
    }

    /// Acquires the lock if a permit is free.
    ///
    /// # Errors
    ///
    /// See [`Acquire`].
    pub async fn attempt(self) -> Result<Option<LockGuard>, Error> {
        let pending = self.begin();
        for _ in 0..RENEWALS {
            let (sent, reply) = pending.ask(None).await?;
            match reply {
                LocksReply::Held(lease) if pending.is_fresh(sent) => return pending.guard(sent, lease).map(Some),
                LocksReply::Held(_) => {}
                // A holder that waits elsewhere keeps its place.
                LocksReply::Busy(_) | LocksReply::Waiting(_) => {
                    pending.forget();
                    return Ok(None);
                }
                other => return Err(pending.refused(other)),
            }
        }
        Err(Error::TimedOut("the cluster answers too late for a lease of this time; choose a longer one (ttl)".into()))
    }

    /// Waits for the lock, runs a future while it is held, and gives it back. Returns `None` if the lock was lost
    /// before the future had ended: it is dropped then, at its next point of waiting. For a leader among many: all run
    /// this in a loop.
    ///
    /// # Errors
    ///
    /// See [`Acquire`].
    pub async fn lead<T, F: Future<Output = T>>(self, body: impl FnOnce(Fence) -> F) -> Result<Option<T>, Error> {
        let guard = self.await?;
        let done = match select(pin!(body(guard.fence())), pin!(guard.lost())).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        };
        // If it can't be given back, it ends with its time.
        let _ = guard.release().await;
        Ok(done)
    }

    fn begin(self) -> Pending {
        let rng = self.locks.sql.submitter.runtime().env().rng();
        let random = || Bytes::from(format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64()));
        let holder = self.holder.clone().unwrap_or_else(random);
        let held = Held { locks: self.locks.clone(), name: self.name.clone(), holder, ttl: self.ttl };
        Pending { asked: self, held: Some(held) }
    }

    async fn run(self) -> Result<LockGuard, Error> {
        let runtime = self.locks.sql.submitter.runtime().clone();
        runtime.run(self.wait_for_turn()).await.unwrap_or(Err(Error::Closed))
    }

    async fn wait_for_turn(self) -> Result<LockGuard, Error> {
        let pending = self.begin();
        let begun = Instant::now();
        loop {
            // Registered before the question, so that no grant is missed.
            let woken = pending.register().await;
            let (sent, reply) = pending.ask(Some(pending.asked.ttl)).await?;
            match reply {
                LocksReply::Held(lease) if pending.is_fresh(sent) => return pending.guard(sent, lease),
                LocksReply::Held(_) => {}
                LocksReply::Waiting(_) => {
                    let left = pending.asked.wait.map_or(Duration::MAX, |wait| wait.saturating_sub(begun.elapsed()));
                    let pause = sleep(left.min(pending.asked.ttl / RENEWALS));
                    match woken {
                        Some(woken) => drop(select(woken, pin!(pause)).await),
                        None => pause.await,
                    }
                }
                other => return Err(pending.refused(other)),
            }
            if pending.asked.wait.is_some_and(|wait| begun.elapsed() >= wait) {
                return pending.withdraw().await;
            }
        }
    }
}

impl IntoFuture for Acquire {
    type Output = Result<LockGuard, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

/// A request that is under way. If it is dropped before it has become a guard, what the cluster has of it is ended.
struct Pending {
    asked: Acquire,
    /// Taken when there is nothing to end.
    held: Option<Held>,
}

impl Pending {
    fn held(&self) -> Result<&Held, Error> {
        self.held.as_ref().ok_or(Error::Closed)
    }

    /// Whether an answer came early enough for a guard that is sure for a while: it counts from when it was asked. A
    /// later answer is asked for again, because a grant begins anew with each request.
    fn is_fresh(&self, sent: Instant) -> bool {
        let now = self.held.as_ref().and_then(Held::now);
        now.is_some_and(|now| now.saturating_duration_since(sent) < self.asked.ttl / RENEWALS)
    }

    async fn register(&self) -> Option<BoxFuture<'static, ()>> {
        let Held { locks, name, holder, ttl } = self.held.as_ref()?;
        locks.register(name, holder, *ttl / RENEWALS).await
    }

    /// Asks for the lock; returns when the request was sent.
    async fn ask(&self, wait: Option<Duration>) -> Result<(Instant, LocksReply), Error> {
        let Acquire { permits, ref note, .. } = self.asked;
        let Held { name, holder, ttl, .. } = self.held()?;
        let (ttl, wait) = (nanos(*ttl), wait.map(nanos));
        let (name, holder, note) = (name.clone(), holder.clone(), note.clone());
        self.send(LocksCommand::Acquire { name, holder, ttl, permits, wait, note }).await
    }

    /// Ends the wait, unless the lock was granted in the meantime.
    async fn withdraw(self) -> Result<LockGuard, Error> {
        let Held { name, holder, .. } = self.held()?;
        let (name, holder) = (name.clone(), holder.clone());
        match self.send(LocksCommand::Withdraw { name, holder }).await? {
            (sent, LocksReply::Held(lease)) => self.guard(sent, lease),
            (_, LocksReply::Withdrawn | LocksReply::Missing) => {
                let waited = self.asked.wait.unwrap_or_default();
                self.forget();
                Err(Error::TimedOut(
                    format!("the lock was not free for {waited:?}; wait longer, or see who holds it").into(),
                ))
            }
            _ => Err(other_answer()),
        }
    }

    async fn send(&self, command: LocksCommand) -> Result<(Instant, LocksReply), Error> {
        let held = self.held()?;
        let sent = held.now().ok_or(Error::Closed)?;
        Ok((sent, held.locks.run(command).await?))
    }

    fn guard(mut self, sent: Instant, lease: Lease) -> Result<LockGuard, Error> {
        LockGuard::start(self.held.take().ok_or(Error::Closed)?, sent, lease)
    }

    /// Returns the error for a reply that grants nothing and begins no wait.
    fn refused(self, reply: LocksReply) -> Error {
        self.forget();
        refusal(reply)
    }

    /// Leaves the cluster's rows as they are.
    fn forget(mut self) {
        self.held = None;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.end();
        }
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn refusal(reply: LocksReply) -> Error {
    match reply {
        LocksReply::Full(_) => Error::Overloaded("as many wait for the lock as may; try again later".into()),
        LocksReply::OtherPermits(permits) => {
            let text = format!("the lock has {permits} permits as long as somebody holds it or waits; ask for as many");
            Failure::new(FailureKind::InvalidValue, text).into()
        }
        _ => other_answer(),
    }
}
