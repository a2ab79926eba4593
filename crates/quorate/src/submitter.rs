//! What all handles share: sessions, retries, deadlines. Written once, over any [`Transport`].
//!
//! Invariants:
//! - Every attempt of a write carries the same bytes, and with them the same session and sequence: however many
//!   attempts arrive, one takes effect.
//! - An error other than [`Error::Unknown`] means that a write has no effect and will have none.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quorate_env::mutant::Mutant;
use quorate_env::{Instant, lock, sleep, timeout_at};
use quorate_model::{
    Command, CommandResult, ControlCommand, ControlReply, FailureKind, Outcome, Position, Proposal, SessionId, codec,
};
use tokio::sync::Notify;

use crate::error::Error;
use crate::level::Level;
use crate::results::Written;
use crate::runtime::Runtime;
use crate::snapshot::State;
use crate::transaction::TransactionHost;

mod backoff;
mod session;
mod ticket;
mod transport;

#[cfg(test)]
mod tests;

pub(crate) use backoff::Backoff;
use session::Session;
pub(crate) use ticket::Held;
pub(crate) use transport::{Attempt, Limits, NotDone, ReadAnswer, ReadRequest, Transport};

/// How long the first attempts of a write may take; after one that took so long the next may take twice as long.
const FIRST_ATTEMPT: Duration = Duration::from_secs(4);

/// The longest that an attempt may take.
const ATTEMPT_MAX: Duration = Duration::from_secs(64);

/// How long ending a session may take.
const END_MAX: Duration = Duration::from_millis(250);

const STOPPED: &str = "the node was stopped";

/// An attempt that is not the transport's own.
pub(crate) type FirstAttempt = BoxFuture<'static, Result<(Position, Outcome), Attempt>>;

/// What the clones of a handle share.
pub(crate) struct Submitter {
    runtime: Runtime,
    transport: Box<dyn Transport>,
    session: Mutex<Session>,
    /// The last write that was acknowledged, and when the last of them was.
    written: Mutex<Option<(Position, Instant)>>,
    /// Rung when a turn may have become free. Who takes one passes the ring on.
    freed: Notify,
}

impl Submitter {
    pub(crate) fn new(runtime: Runtime, transport: Box<dyn Transport>) -> Self {
        Self { runtime, transport, session: Mutex::default(), written: Mutex::default(), freed: Notify::new() }
    }

    /// Runs commands as one atomic entry, exactly once.
    pub(crate) async fn write(&self, commands: Vec<Command>, limit: Duration) -> Result<Written, Error> {
        let (position, outcome) = self.propose(Proposal::new(None, commands), limit).await?;
        Ok(Written { position, reply: outcome? })
    }

    /// Proposes what is no part of a session yet, exactly once. An outcome that is a failure is the last word on it.
    pub(crate) async fn propose(&self, mut proposal: Proposal, limit: Duration) -> Result<(Position, Outcome), Error> {
        proposal.check_limits()?;
        for (number, command) in proposal.commands.iter().enumerate() {
            self.transport.check(command).map_err(|failure| failure.at(number))?;
        }
        let sent = AtomicBool::new(false);
        let settled = self.runtime.run(async {
            let deadline = Instant::now() + limit;
            loop {
                let ticket = Held::take(self, deadline).await?;
                proposal.origin = Some(ticket.origin());
                let bytes = codec::encode_proposal(&proposal)?;
                sent.store(true, Ordering::Relaxed);
                if let Some((position, outcome)) = self.settle(&ticket, None, bytes, deadline).await? {
                    self.wrote(position);
                    return Ok((position, outcome));
                }
                sent.store(false, Ordering::Relaxed);
            }
        });
        settled.await.unwrap_or_else(|_| Err(gone(&sent)))
    }

    /// Begins an interactive transaction: the right to its one write, the place where its statements run, and since
    /// when.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<(Held<Arc<Self>>, Box<dyn TransactionHost>, Instant), Error> {
        // First, since opening a session is a write, which would wait for the transaction.
        let ticket = self.runtime.run(async { Held::take(Arc::clone(self), Instant::now() + limit).await });
        let ticket = ticket.await.unwrap_or(Err(Error::Closed))?;
        let host = self.until_served(limit, |deadline| self.transport.begin(limit, deadline)).await?;
        let begun = self.runtime.inside(Instant::now).map_err(|_| Error::Closed)?;
        Ok((ticket, host, begun))
    }

    /// Goes on with a proposal whose first attempt is this, until the outcome is known. `None` as for `settle`.
    pub(crate) async fn settle_begun(
        &self,
        ticket: &Held<Arc<Self>>,
        first: FirstAttempt,
        bytes: Bytes,
        limit: Duration,
    ) -> Result<Option<(Position, Outcome)>, Error> {
        let settled = self.runtime.run(async {
            let settled = self.settle(ticket, Some(first), bytes, Instant::now() + limit).await?;
            Ok(settled.inspect(|(position, _)| self.wrote(*position)))
        });
        settled.await.unwrap_or_else(|_| Err(Error::Unknown(STOPPED.to_owned())))
    }

    /// The level at which a read sees what this handle has written, besides what its own level promises.
    pub(crate) fn seeing_own_writes(&self, level: Level) -> Result<Level, Error> {
        let Some((position, when)) = *self.written() else { return Ok(level) };
        let since = self.runtime.inside(|| when.elapsed()).map_err(|_| Error::Closed)?;
        Ok(match level {
            Level::Local => Level::AtLeast(position),
            Level::AtLeast(other) => Level::AtLeast(other.max(position)),
            Level::Linearizable => Level::Linearizable,
            // A round that began later than the last write was acknowledged.
            Level::Bounded(age) => Level::Bounded(age.min(since)),
        })
    }

    fn wrote(&self, position: Position) {
        let mut written = self.written();
        let last = written.map_or(position, |(last, _)| last.max(position));
        *written = Some((last, Instant::now()));
    }

    fn written(&self) -> MutexGuard<'_, Option<(Position, Instant)>> {
        lock(&self.written)
    }

    /// Answers a read at its level.
    pub(crate) async fn read(&self, request: ReadRequest, limit: Duration) -> Result<ReadAnswer, Error> {
        self.until_served(limit, |deadline| self.transport.read(&request, deadline)).await
    }

    /// Opens a state of a level.
    pub(crate) async fn snapshot(&self, level: Level, limit: Duration) -> Result<Box<dyn State>, Error> {
        self.until_served(limit, |deadline| self.transport.snapshot(level, deadline)).await
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Tries what has no effect until somebody serves it.
    pub(crate) async fn until_served<'a, T>(
        &'a self,
        limit: Duration,
        attempt: impl Fn(Instant) -> BoxFuture<'a, Result<T, Error>>,
    ) -> Result<T, Error> {
        let trying = self.runtime.run(async {
            let deadline = Instant::now() + limit;
            let (mut backoff, mut overloaded) = (None, None);
            loop {
                let error = match attempt(deadline).await {
                    Err(error @ Error::Overloaded(_)) => overloaded.insert(error).clone(),
                    Err(error @ Error::Unavailable(_)) => error,
                    // Its time went by while it waited for its turn.
                    Err(Error::TimedOut(text)) => return Err(overloaded.unwrap_or(Error::TimedOut(text))),
                    result => return result,
                };
                let backoff = backoff.get_or_insert_with(|| self.backoff());
                if !self.pause(backoff, deadline).await {
                    return Err(error);
                }
            }
        });
        trying.await.unwrap_or(Err(Error::Closed))
    }

    /// Tells the cluster that the session is not needed any more. Nothing is lost if that fails.
    pub(crate) async fn end_session(&self) {
        let Some(session) = self.session().end() else { return };
        let proposal = Proposal::new(None, vec![ControlCommand::CloseSession(session).into()]);
        let Ok(bytes) = codec::encode_proposal(&proposal) else { return };
        let deadline = Instant::now() + END_MAX;
        let ending = async { timeout_at(deadline, self.transport.propose(bytes, deadline)).await };
        let _ = self.runtime.run(ending).await;
    }

    /// Proposes until the outcome is known. `None` when the session has expired and nothing was done.
    async fn settle<C: Deref<Target = Self>>(
        &self,
        ticket: &Held<C>,
        mut first: Option<FirstAttempt>,
        bytes: Bytes,
        deadline: Instant,
    ) -> Result<Option<(Position, Outcome)>, Error> {
        let mut doubt: Option<String> = None;
        let mut backoff = self.backoff();
        let mut attempt_limit = FIRST_ATTEMPT;
        loop {
            let attempt_deadline = deadline.min(Instant::now() + attempt_limit);
            let attempt = match first.take() {
                Some(first) => first,
                None => self.transport.propose(bytes.clone(), attempt_deadline),
            };
            let ended = attempt_until(attempt_deadline, attempt).await;
            if Instant::now() >= attempt_deadline {
                attempt_limit = attempt_limit.saturating_mul(2).min(ATTEMPT_MAX);
            }
            let why = match ended {
                Ok((position, Ok(reply))) => return Ok(Some((position, Ok(reply)))),
                Ok((position, Err(failure))) => match (failure.kind, doubt) {
                    (FailureKind::SessionExpired, doubt) if doubt.is_none() || Mutant::ExpiredIsNotDone.is_on() => {
                        self.session().expired(ticket.session());
                        return Ok(None);
                    }
                    // What was done must not come as a failure, behind which nothing was done.
                    (FailureKind::OutcomeTooBig, _) => return Err(Error::Unknown(failure.message)),
                    (FailureKind::SessionExpired | FailureKind::OutcomeForgotten, doubt) => {
                        self.session().expired(ticket.session());
                        return Err(Error::Unknown(doubt.unwrap_or(failure.message)));
                    }
                    // Not kept as this sequence's outcome: the attempt in doubt may still have another.
                    (FailureKind::WindowExceeded, Some(doubt)) => return Err(Error::Unknown(doubt)),
                    _ => return Ok(Some((position, Err(failure)))),
                },
                Err(Attempt::Refused(error)) => return Err(doubt.map_or(error, Error::Unknown)),
                Err(Attempt::NotDone(why)) => why,
                Err(Attempt::InDoubt(text)) if Mutant::RetryIsNew.is_on() => {
                    let is_tried = self.pause(&mut backoff, deadline).await;
                    return if is_tried { Ok(None) } else { Err(Error::Unknown(text)) };
                }
                Err(Attempt::InDoubt(text)) => {
                    doubt = Some(text.clone());
                    NotDone::NoLeader(text)
                }
            };
            if !self.pause(&mut backoff, deadline).await {
                return Err(doubt.map_or_else(|| why.into(), Error::Unknown));
            }
        }
    }

    /// Opens a session. Trying again may open another, which the cluster forgets in time.
    async fn open(&self, deadline: Instant) -> Result<SessionId, Error> {
        let bytes = codec::encode_proposal(&Proposal::new(None, vec![ControlCommand::OpenSession.into()]))?;
        let mut backoff = self.backoff();
        loop {
            let attempt_deadline = deadline.min(Instant::now() + FIRST_ATTEMPT);
            let why =
                match attempt_until(attempt_deadline, self.transport.propose(bytes.clone(), attempt_deadline)).await {
                    Ok((_, Ok(reply))) => match reply.results.as_slice() {
                        [CommandResult::Control(ControlReply::Session(session))] => return Ok(*session),
                        _ => return Err(Error::Unavailable("the cluster opened no session".to_owned())),
                    },
                    Ok((_, Err(failure))) => return Err(Error::Failed(failure)),
                    Err(Attempt::Refused(error)) => return Err(error),
                    Err(Attempt::NotDone(why)) => why,
                    Err(Attempt::InDoubt(text)) => NotDone::NoLeader(text),
                };
            if !self.pause(&mut backoff, deadline).await {
                return Err(why.into());
            }
        }
    }

    /// Pauses before another attempt; `false` at once if the deadline would come first.
    pub(crate) async fn pause(&self, backoff: &mut Backoff, deadline: Instant) -> bool {
        let pause = backoff.pause();
        if Instant::now() + pause >= deadline {
            return false;
        }
        sleep(pause).await;
        self.transport.note_retry();
        true
    }

    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.runtime.env().rng())
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        lock(&self.session)
    }
}

/// One attempt to propose, whose result stays in doubt if it does not come in time.
async fn attempt_until(
    deadline: Instant,
    attempt: BoxFuture<'_, Result<(Position, Outcome), Attempt>>,
) -> Result<(Position, Outcome), Attempt> {
    let in_time = timeout_at(deadline, attempt).await;
    in_time.unwrap_or_else(|_| Err(Attempt::InDoubt("there was no answer in time".to_owned())))
}

impl From<NotDone> for Error {
    fn from(why: NotDone) -> Self {
        match why {
            NotDone::Overloaded(text) => Self::Overloaded(text),
            NotDone::NoLeader(text) => Self::Unavailable(text),
        }
    }
}

fn gone(sent: &AtomicBool) -> Error {
    if sent.load(Ordering::Relaxed) { Error::Unknown(STOPPED.to_owned()) } else { Error::Closed }
}
