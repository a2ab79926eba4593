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
use quorate_model::locks::{Lease, LocksCommand, LocksReply, Token};
use quorate_model::{Failure, FailureKind, Position};

use super::guard::{Fence, Held, LockGuard};
use super::{Locks, LocksCall, other_answer};
use crate::error::Error;
use crate::keys::IntoBytes;

/// How long a lease lasts unless [`Acquire::ttl`] says something else: several times as long as a change of the leader
/// usually takes.
pub const TTL_DEFAULT: Duration = Duration::from_secs(10);

/// A lease, or a wait, is renewed this many times while it lasts.
pub(super) const RENEWALS: u32 = 4;

/// A request to acquire a lock. Awaited, it waits for its turn and returns a guard. If its future is dropped, the wait
/// ends; what the cluster does not hear of ends with the time of the lease. It takes no notice of a key of its handle
/// ([`Sql::with_key`](crate::Sql::with_key)).
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
    pub(super) fn new(locks: &Locks, name: Bytes) -> Self {
        // With a key, the first answer would be given again, though its lease may have ended since.
        let (locks, note) = (Locks::with(locks.sql.without_key()), Bytes::new());
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
    /// gets it at once, with the same token: so a process that was restarted takes over what it held. Two guards with
    /// the same token are one to the cluster: the first that is dropped gives the lock back.
    pub fn holder(self, holder: impl IntoBytes) -> Self {
        Self { holder: Some(holder.into_bytes()), ..self }
    }

    /// Acquires the lock if a permit is free.
    ///
    /// # Errors
    ///
    /// See [`Acquire`].
    pub async fn attempt(self) -> Result<Option<LockGuard>, Error> {
        let granted = self.begin().attempt().await?;
        granted.map(Granted::guard).transpose()
    }

    /// Acquires the lock without a guard: nobody renews the lease, or gives it back. This is for programs that hand it
    /// on to others, such as a door. Waits at most so long, [`Duration::ZERO`] for not at all; `None` if the lock was
    /// not granted by then.
    ///
    /// If the future is dropped, or fails, the wait ends. A holder with a name ([`Acquire::holder`]) keeps a lease that
    /// the cluster has granted, so it can ask again.
    ///
    /// # Errors
    ///
    /// See [`Acquire`].
    pub async fn grant(self, wait: Duration) -> Result<Option<Grant>, Error> {
        let keeps_lease = self.holder.is_some();
        let mut pending = self.wait(wait).begin();
        pending.keeps_lease = keeps_lease;
        let granted = if wait.is_zero() { pending.attempt().await } else { pending.wait().await }?;
        granted.map(Granted::bare).transpose()
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
        Pending { asked: self, held: Some(held), keeps_lease: false }
    }

    async fn run(self) -> Result<LockGuard, Error> {
        let waited = self.wait.unwrap_or_default();
        let granted = self.begin().wait().await?;
        let late = || {
            let text = format!("the lock was not free for {waited:?}; wait longer, or see who holds it");
            Error::TimedOut(text.into())
        };
        granted.ok_or_else(late)?.guard()
    }
}

impl IntoFuture for Acquire {
    type Output = Result<LockGuard, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

/// A lock that was granted to a holder, and that nobody renews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The holder.
    pub holder: Bytes,
    /// The token of the grant.
    pub token: Token,
    /// How long the lease lasts at least from now on.
    pub left: Duration,
    /// Where the request stands in the log.
    pub position: Position,
}

/// The answer to a request.
struct Answer {
    /// When it was sent.
    sent: Instant,
    reply: LocksReply,
    position: Position,
}

/// A request that is under way. If it is dropped before it was granted, what the cluster has of it is ended.
struct Pending {
    asked: Acquire,
    /// Taken when there is nothing to end.
    held: Option<Held>,
    /// Whether only a wait is ended, and no lease.
    keeps_lease: bool,
}

impl Pending {
    async fn attempt(self) -> Result<Option<Granted>, Error> {
        for _ in 0..RENEWALS {
            let answer = self.ask(None).await?;
            match answer.reply {
                LocksReply::Held(lease) if self.is_fresh(&answer) => return self.granted(&answer, lease).map(Some),
                LocksReply::Held(_) => {}
                // A holder that waits elsewhere keeps its place.
                LocksReply::Busy(_) | LocksReply::Waiting(_) => {
                    self.forget();
                    return Ok(None);
                }
                other => return Err(self.refused(other)),
            }
        }
        Err(too_late())
    }

    /// Returns `None` if the lock was not granted in the time of the wait.
    async fn wait(self) -> Result<Option<Granted>, Error> {
        let runtime = self.asked.locks.sql.submitter.runtime().clone();
        runtime.run(self.wait_for_turn()).await.unwrap_or(Err(Error::Closed))
    }

    async fn wait_for_turn(self) -> Result<Option<Granted>, Error> {
        let (begun, mut late) = (Instant::now(), 0);
        loop {
            // Registered before the question, so that no grant is missed.
            let woken = self.register().await;
            let answer = self.ask(Some(self.asked.ttl)).await?;
            match answer.reply {
                LocksReply::Held(lease) if self.is_fresh(&answer) => return self.granted(&answer, lease).map(Some),
                LocksReply::Held(_) => {
                    late += 1;
                    if late == RENEWALS {
                        return Err(too_late());
                    }
                }
                LocksReply::Waiting(_) => {
                    late = 0;
                    let left = self.asked.wait.map_or(Duration::MAX, |wait| wait.saturating_sub(begun.elapsed()));
                    let pause = sleep(left.min(self.asked.ttl / RENEWALS));
                    match woken {
                        Some(woken) => drop(select(woken, pin!(pause)).await),
                        None => pause.await,
                    }
                }
                other => return Err(self.refused(other)),
            }
            if self.asked.wait.is_some_and(|wait| begun.elapsed() >= wait) {
                return self.withdraw().await;
            }
        }
    }

    fn held(&self) -> Result<&Held, Error> {
        self.held.as_ref().ok_or(Error::Closed)
    }

    /// Whether an answer came early enough for a guard that is sure for a while: it counts from when it was asked. A
    /// later answer is asked for again, because a grant begins anew with each request.
    fn is_fresh(&self, answer: &Answer) -> bool {
        let now = self.held.as_ref().and_then(Held::now);
        now.is_some_and(|now| now.saturating_duration_since(answer.sent) < self.asked.ttl / RENEWALS)
    }

    async fn register(&self) -> Option<BoxFuture<'static, ()>> {
        let Held { locks, name, holder, ttl } = self.held.as_ref()?;
        locks.register(name, holder, *ttl / RENEWALS).await
    }

    /// Asks for the lock.
    async fn ask(&self, wait: Option<Duration>) -> Result<Answer, Error> {
        let Acquire { permits, ref note, .. } = self.asked;
        let Held { locks, name, holder, ttl } = self.held()?;
        let (ttl, wait) = (nanos(*ttl), wait.map(nanos));
        let (name, holder, note) = (name.clone(), holder.clone(), note.clone());
        self.send(locks.run(LocksCommand::Acquire { name, holder, ttl, permits, wait, note })).await
    }

    /// Ends the wait, unless the lock was granted in the meantime.
    async fn withdraw(self) -> Result<Option<Granted>, Error> {
        let answer = self.send(self.held()?.withdraw()).await?;
        match answer.reply {
            // Part of this lease may have passed already, so it begins anew.
            LocksReply::Held(_) => self.attempt().await,
            LocksReply::Withdrawn | LocksReply::Missing => {
                self.forget();
                Ok(None)
            }
            _ => Err(other_answer()),
        }
    }

    async fn send(&self, call: LocksCall<LocksReply>) -> Result<Answer, Error> {
        let sent = self.held()?.now().ok_or(Error::Closed)?;
        let (reply, position) = call.with_position().await?;
        Ok(Answer { sent, reply, position: position.ok_or_else(other_answer)? })
    }

    fn granted(mut self, answer: &Answer, lease: Lease) -> Result<Granted, Error> {
        let held = self.held.take().ok_or(Error::Closed)?;
        Ok(Granted { held, sent: answer.sent, lease, position: answer.position })
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

fn too_late() -> Error {
    Error::TimedOut("the cluster answers too late for a lease of this time; choose a longer one (ttl)".into())
}

impl Drop for Pending {
    fn drop(&mut self) {
        match self.held.take() {
            Some(held) if self.keeps_lease => held.end_wait(),
            Some(held) => held.end(),
            None => {}
        }
    }
}

/// A lock that was granted, from when the request for it was sent.
struct Granted {
    held: Held,
    sent: Instant,
    lease: Lease,
    position: Position,
}

impl Granted {
    fn guard(self) -> Result<LockGuard, Error> {
        LockGuard::start(self.held, self.sent, self.lease)
    }

    fn bare(self) -> Result<Grant, Error> {
        let Self { held, sent, lease, position } = self;
        let passed = held.now().ok_or(Error::Closed)?.saturating_duration_since(sent);
        let left = Duration::from_nanos(lease.left).saturating_sub(passed);
        Ok(Grant { holder: held.holder, token: lease.token, left, position })
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
