//! The part that all handles share: sessions, retries and deadlines, over any [`Transport`].
//!
//! Invariants:
//! - Every attempt of a write sends the same bytes, and therefore the same session and sequence. However many attempts
//!   arrive, one takes effect.
//! - An error other than [`Error::Unknown`] and [`Error::NotArchived`] means that a write has no effect and will have
//!   none.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quorate_env::mutant::Mutant;
use quorate_env::{Cause, Instant, lock, sleep, timeout_at};
use quorate_model::keys::{KeysReply, SpaceCommand};
use quorate_model::limits::BASE_LEVEL;
use quorate_model::{
    Command, CommandResult, ControlCommand, ControlReply, Failure, FailureKind, Outcome, Position, Proposal, SessionId,
    Topic, codec,
};
use tokio::sync::Notify;

use crate::error::Error;
use crate::level::Level;
use crate::results::Written;
use crate::runtime::Runtime;
use crate::snapshot::State;
use crate::transaction::TransactionHost;

mod archived;
mod backoff;
mod session;
mod ticket;
mod transport;

#[cfg(test)]
mod tests;

use archived::Archiving;
pub(crate) use archived::{Acknowledge, Archived};
pub(crate) use backoff::Backoff;
use session::Session;
pub(crate) use ticket::Held;
pub(crate) use transport::{Attempt, Limits, NotDone, ReadAnswer, ReadRequest, Transport};

/// The time limit of the first attempts of a write; it is doubled after each attempt that reaches it.
const FIRST_ATTEMPT: Duration = Duration::from_secs(4);

/// The longest time limit of an attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(64);

/// The time limit for ending a session.
const END_MAX: Duration = Duration::from_millis(250);

/// How long a write waits for the format level that it needs, which follows the founding of a cluster or the upgrade of
/// its last node: usually within about a second, but only after an election and a few syncs of the log.
const LEVEL_MAX: Duration = Duration::from_secs(20);

/// The pause before such a write is tried again.
const LEVEL_PAUSE: Duration = Duration::from_millis(100);

const STOPPED: &str = "the node was stopped";

/// A first attempt that is not made by the transport.
pub(crate) type FirstAttempt = BoxFuture<'static, Result<(Position, Outcome), Attempt>>;

/// The state that the clones of a handle share.
pub(crate) struct Submitter {
    runtime: Runtime,
    transport: Box<dyn Transport>,
    session: Mutex<Session>,
    /// The last position that was acknowledged, and the time of the latest acknowledgement.
    written: Mutex<Option<(Position, Instant)>>,
    /// Notified when a ticket may be available. A task that takes a ticket notifies the next one.
    freed: Notify,
    archiving: Archiving,
}

impl Submitter {
    pub(crate) fn new(runtime: Runtime, transport: Box<dyn Transport>) -> Self {
        let (session, written, archiving) = (Mutex::default(), Mutex::default(), Archiving::default());
        Self { runtime, transport, session, written, freed: Notify::new(), archiving }
    }

    /// Runs commands as one atomic entry, exactly once.
    pub(crate) async fn write(&self, commands: Vec<Command>, limit: Duration) -> Result<Written, Error> {
        let (position, outcome) = self.propose(Proposal::new(None, commands), limit).await?;
        Ok(Written { position, reply: outcome? })
    }

    /// Runs a proposal that has no session yet, exactly once. An outcome that is a failure is final. The position is
    /// that of the entry that had the effect; it may be an earlier one if the proposal has a key.
    ///
    /// A proposal that needs a higher format level waits a little for it.
    pub(crate) async fn propose(&self, mut proposal: Proposal, limit: Duration) -> Result<(Position, Outcome), Error> {
        if proposal.level_needed() == BASE_LEVEL {
            return self.propose_now(&mut proposal, limit).await;
        }
        let latest = self.runtime.inside(Instant::now).map_err(|_| Error::Closed)? + LEVEL_MAX.min(limit);
        loop {
            match self.propose_now(&mut proposal, limit).await {
                Err(Error::Failed(failure)) if failure.kind == FailureKind::Unsupported => {
                    let pause = async {
                        sleep(LEVEL_PAUSE).await;
                        Instant::now() < latest
                    };
                    if !self.runtime.run(pause).await.unwrap_or(false) {
                        return Err(failure.into());
                    }
                }
                proposed => return proposed,
            }
        }
    }

    async fn propose_now(&self, proposal: &mut Proposal, limit: Duration) -> Result<(Position, Outcome), Error> {
        proposal.check_limits()?;
        for (number, command) in proposal.commands.iter().enumerate() {
            self.transport.check(command).map_err(|failure| failure.at(number))?;
        }
        self.transport.check_level(proposal.level_needed())?;
        let sent = AtomicBool::new(false);
        let settled = self.runtime.run(async {
            let deadline = Instant::now() + limit;
            loop {
                let ticket = Held::take(self, deadline).await?;
                proposal.origin = Some(ticket.origin());
                let bytes = codec::encode_proposal(proposal)?;
                sent.store(true, Ordering::Relaxed);
                if let Some((position, outcome)) = self.settle(&ticket, None, bytes, deadline).await? {
                    let position = position_of(position, &outcome)?;
                    self.wrote(position);
                    return Ok((position, outcome));
                }
                sent.store(false, Ordering::Relaxed);
            }
        });
        settled.await.unwrap_or_else(|_| Err(runtime_ended(&sent)))
    }

    /// Begins an interactive transaction. Returns the ticket for its write, the host of its statements, and the time of
    /// its beginning.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<(Held<Arc<Self>>, Box<dyn TransactionHost>, Instant), Error> {
        // The ticket is taken first: it may require opening a session, which is a write and would wait for the
        // transaction.
        let ticket = self.runtime.run(async { Held::take(Arc::clone(self), Instant::now() + limit).await });
        let ticket = ticket.await.unwrap_or(Err(Error::Closed))?;
        let host = self.until_served(limit, |deadline| self.transport.begin(limit, deadline)).await?;
        let begun = self.runtime.inside(Instant::now).map_err(|_| Error::Closed)?;
        Ok((ticket, host, begun))
    }

    /// Continues a proposal with this first attempt until the outcome is known. Returns `None` in the same case as
    /// `settle`.
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
        settled.await.unwrap_or_else(|_| Err(Error::Unknown(STOPPED.into())))
    }

    /// Returns the level at which a read sees the writes of this handle, in addition to what its own level requires.
    pub(crate) fn seeing_own_writes(&self, level: Level) -> Result<Level, Error> {
        let Some((position, when)) = *self.written() else { return Ok(level) };
        let since = self.runtime.inside(|| when.elapsed()).map_err(|_| Error::Closed)?;
        Ok(match level {
            Level::Local => Level::AtLeast(position),
            Level::AtLeast(other) => Level::AtLeast(other.max(position)),
            Level::Linearizable => Level::Linearizable,
            // The quorum round must begin after the last write was acknowledged.
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

    /// Answers reads of keys on one state that meets a level.
    pub(crate) async fn read_keys(
        &self,
        commands: &[SpaceCommand],
        level: Level,
        bytes_max: usize,
        limit: Duration,
    ) -> Result<Vec<Result<KeysReply, Failure>>, Error> {
        self.until_served(limit, |deadline| self.transport.read_keys(commands, level, bytes_max, deadline)).await
    }

    /// Opens a snapshot that meets a level.
    pub(crate) async fn snapshot(&self, level: Level, limit: Duration) -> Result<Box<dyn State>, Error> {
        self.until_served(limit, |deadline| self.transport.snapshot(level, deadline)).await
    }

    /// Registers a waiter for a topic. The caller must look for what it waits for after this has returned, and again
    /// when the future ends that it returns.
    pub(crate) async fn register(&self, topic: Topic, limit: Duration) -> Result<BoxFuture<'static, ()>, Error> {
        self.until_served(limit, |_| self.transport.register(topic)).await
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Repeats an operation without effects until a node serves it.
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
                    // The time went by while the operation waited for its turn.
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

    /// Closes the session in the cluster. If this fails, nothing is lost.
    pub(crate) async fn end_session(&self) {
        let Some(session) = self.session().end() else { return };
        let proposal = Proposal::new(None, vec![ControlCommand::CloseSession(session).into()]);
        let Ok(bytes) = codec::encode_proposal(&proposal) else { return };
        let deadline = Instant::now() + END_MAX;
        let ending = async { timeout_at(deadline, self.transport.propose(bytes, deadline)).await };
        let _ = self.runtime.run(ending).await;
    }

    /// Proposes until the outcome is known. Returns `None` if the session has expired and nothing was done.
    async fn settle<C: Deref<Target = Self>>(
        &self,
        ticket: &Held<C>,
        mut first: Option<FirstAttempt>,
        bytes: Bytes,
        deadline: Instant,
    ) -> Result<Option<(Position, Outcome)>, Error> {
        let mut doubt: Option<Cause> = None;
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
                    // The write took effect, so this must not be returned as a failure, which would mean that nothing
                    // was done.
                    (FailureKind::OutcomeTooBig, _) => return Err(Error::Unknown(failure.message.into())),
                    (FailureKind::SessionExpired | FailureKind::OutcomeForgotten, doubt) => {
                        self.session().expired(ticket.session());
                        return Err(Error::Unknown(doubt.unwrap_or_else(|| failure.message.into())));
                    }
                    // This is not the outcome of the sequence: the attempt in doubt may still be applied with another
                    // one.
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

    /// Opens a session. A repeated attempt may open a second one, which the cluster forgets after some time.
    async fn open(&self, deadline: Instant) -> Result<SessionId, Error> {
        let bytes = codec::encode_proposal(&Proposal::new(None, vec![ControlCommand::OpenSession.into()]))?;
        let mut backoff = self.backoff();
        loop {
            let attempt_deadline = deadline.min(Instant::now() + FIRST_ATTEMPT);
            let why =
                match attempt_until(attempt_deadline, self.transport.propose(bytes.clone(), attempt_deadline)).await {
                    Ok((_, Ok(reply))) => match reply.results.as_slice() {
                        [CommandResult::Control(ControlReply::Session(session))] => return Ok(*session),
                        _ => return Err(Error::Unavailable("the cluster opened no session".into())),
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

    /// Pauses before another attempt; returns `false` at once if the deadline would come first.
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

/// Makes one attempt to propose; it is in doubt if no answer comes in time.
async fn attempt_until(
    deadline: Instant,
    attempt: BoxFuture<'_, Result<(Position, Outcome), Attempt>>,
) -> Result<(Position, Outcome), Attempt> {
    let in_time = timeout_at(deadline, attempt).await;
    in_time.unwrap_or_else(|_| Err(Attempt::InDoubt("there was no answer in time".into())))
}

/// Returns the position of the entry whose outcome this is. Fails if there was no room for the key of the proposal.
fn position_of(answered: Position, outcome: &Outcome) -> Result<Position, Error> {
    match outcome {
        Ok(reply) => Ok(Position { index: reply.first.unwrap_or(answered.index), ..answered }),
        Err(failure) if failure.kind == FailureKind::KeysFull => Err(Error::Overloaded(failure.message.clone().into())),
        Err(_) => Ok(answered),
    }
}

impl From<NotDone> for Error {
    fn from(why: NotDone) -> Self {
        match why {
            NotDone::Overloaded(text) => Self::Overloaded(text),
            NotDone::NoLeader(text) => Self::Unavailable(text),
        }
    }
}

fn runtime_ended(sent: &AtomicBool) -> Error {
    if sent.load(Ordering::Relaxed) { Error::Unknown(STOPPED.into()) } else { Error::Closed }
}
