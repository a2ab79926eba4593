//! The connection of a handle to the cluster, in this process or over the network.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use quorate_env::{Cause, Instant};
use quorate_model::events::EventsAnswer;
use quorate_model::keys::SpaceCommand;
use quorate_model::{Command, Failure, FailureKind, KeysReply, LocksReply, Outcome, Position, Read, Topic};
use quorate_sql::query::Rows;
use quorate_sql::readers::ReadLimits;
use quorate_wire::{CallError, FailureKind as CallFailureKind, NotSent};

use crate::error::Error;
use crate::level::Level;
use crate::snapshot::State;
use crate::transaction::TransactionHost;

/// The connection of a handle to the cluster. Each call is one attempt; the handle retries.
pub(crate) trait Transport: Send + Sync + 'static {
    /// Checks whether a command may be proposed, as far as this side can decide it.
    fn check(&self, command: &Command) -> Result<(), Failure>;

    /// Checks whether the cluster uses a format level, as far as this side can decide it.
    fn check_level(&self, _needed: u32) -> Result<(), Failure> {
        Ok(())
    }

    /// Called for each attempt after the first.
    fn note_retry(&self) {}

    /// Proposes once. The future may be dropped at any time; the outcome is then in doubt.
    fn propose(&self, proposal: Bytes, deadline: Instant) -> BoxFuture<'_, Result<(Position, Outcome), Attempt>>;

    /// Reads once.
    fn read<'a>(&'a self, request: &'a ReadRequest, deadline: Instant) -> BoxFuture<'a, Result<ReadAnswer, Error>>;

    /// Reads keys once, on one state; see [`Sql::read_each`](crate::Sql::read_each).
    fn read_keys<'a>(
        &'a self,
        _commands: &'a [SpaceCommand],
        _level: Level,
        _bytes_max: usize,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<Result<KeysReply, Failure>>, Error>> {
        let text = "reads of several keys on one state need a node in this process; read them one by one";
        ready(Err(Failure::new(FailureKind::Refused, text).into())).boxed()
    }

    /// Registers a waiter for a topic. The future that it returns ends when the waiter is woken, or when that can't be
    /// known any more.
    fn register(&self, _topic: Topic) -> BoxFuture<'_, Result<BoxFuture<'static, ()>, Error>> {
        Box::pin(async { Err(Error::Closed) })
    }

    /// Returns the last archived index once it is not lower than that of the position; without a position, once there
    /// is an archiver. Fails if no node archives.
    fn archived(&self, position: Option<Position>, deadline: Instant) -> BoxFuture<'_, Result<u64, Error>>;

    /// Makes one attempt to begin an interactive transaction that may take `lasting`.
    fn begin(&self, lasting: Duration, deadline: Instant) -> BoxFuture<'_, Result<Box<dyn TransactionHost>, Error>>;

    /// Makes one attempt to open a snapshot that meets a level.
    fn snapshot(&self, level: Level, deadline: Instant) -> BoxFuture<'_, Result<Box<dyn State>, Error>>;
}

/// Why an attempt to propose has no outcome.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attempt {
    /// Nothing was proposed, and nothing will be: it is safe to try again.
    NotDone(NotDone),
    /// It may have been proposed.
    InDoubt(Cause),
    /// Nothing was proposed, and another attempt can't succeed.
    Refused(Error),
}

/// Why nothing was proposed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NotDone {
    /// Too many requests are waiting.
    Overloaded(Cause),
    /// There is no leader, it can't be reached, or the called node does not lead.
    NoLeader(Cause),
}

/// A read, with its level and limits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadRequest {
    pub(crate) read: Read,
    pub(crate) level: Level,
    pub(crate) limits: Limits,
}

/// The answer to a [`Read`], of the same family.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReadAnswer {
    Sql(Rows),
    Keys(KeysReply),
    Locks(LocksReply),
    Events(EventsAnswer),
}

/// How much a query may return, and how long it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// The node's own limit applies too.
    pub(crate) timeout: Duration,
}

impl Limits {
    /// No limits other than those of the node.
    pub(crate) const NONE: Self = Self { rows: usize::MAX, bytes: usize::MAX, timeout: Duration::MAX };

    /// Converts the limits for the store's readers.
    pub(crate) fn for_read(self) -> ReadLimits {
        let Self { rows, bytes, timeout } = self;
        ReadLimits { rows, bytes, timeout, ..ReadLimits::default() }
    }

    /// Returns the same limits, with at most this time for a query.
    pub(crate) fn within(self, time: Duration) -> Self {
        Self { timeout: self.timeout.min(time), ..self }
    }
}

impl Attempt {
    /// Classifies a network call that has no reply.
    pub(crate) fn of_call(error: CallError, to: &str) -> Self {
        let cause = Cause::context(format!("{to}: {error}"), error.clone());
        match error {
            CallError::NotSent(NotSent::TooLarge { .. }) => {
                Self::Refused(Failure::new(FailureKind::TooBig, format!("{cause}; send less at once")).into())
            }
            CallError::NotSent(_) => Self::NotDone(NotDone::NoLeader(cause)),
            CallError::Broken | CallError::TimedOut => Self::InDoubt(cause),
            CallError::Failed(failure) => match failure.kind {
                CallFailureKind::Overloaded => Self::NotDone(NotDone::Overloaded(cause)),
                CallFailureKind::Unavailable => Self::NotDone(NotDone::NoLeader(cause)),
                CallFailureKind::Forbidden | CallFailureKind::Malformed | CallFailureKind::UnknownMethod => {
                    Self::Refused(Error::Forbidden(cause))
                }
                CallFailureKind::Internal | CallFailureKind::Abandoned => Self::InDoubt(cause),
            },
        }
    }
}
