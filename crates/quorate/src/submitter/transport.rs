//! How a handle reaches the cluster: in this process, or over the network.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quorate_env::Instant;
use quorate_model::{Command, Failure, FailureKind, Outcome, Position, Read};
use quorate_sql::query::Rows;
use quorate_sql::readers::ReadLimits;
use quorate_wire::{CallError, FailureKind as CallFailureKind, NotSent};

use crate::error::Error;
use crate::level::Level;
use crate::snapshot::State;
use crate::transaction::TransactionHost;

/// How a handle reaches the cluster. Each call is one attempt; the retries are the handle's.
pub(crate) trait Transport: Send + Sync + 'static {
    /// Says whether a command may be proposed, as far as this end can tell.
    fn check(&self, command: &Command) -> Result<(), Failure>;

    /// Told of each attempt after the first.
    fn note_retry(&self) {}

    /// Proposes once. May be dropped at any time, which leaves the outcome in doubt.
    fn propose(&self, proposal: Bytes, deadline: Instant) -> BoxFuture<'_, Result<(Position, Outcome), Attempt>>;

    /// Reads once.
    fn read<'a>(&'a self, request: &'a ReadRequest, deadline: Instant) -> BoxFuture<'a, Result<ReadAnswer, Error>>;

    /// Begins, once, an interactive transaction that may last so long.
    fn begin(&self, lasting: Duration, deadline: Instant) -> BoxFuture<'_, Result<Box<dyn TransactionHost>, Error>>;

    /// Opens, once, the state that a level asks for.
    fn snapshot(&self, level: Level, deadline: Instant) -> BoxFuture<'_, Result<Box<dyn State>, Error>>;
}

/// Why an attempt to propose has no outcome.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attempt {
    /// Nothing was proposed, and nothing will be: another attempt is free.
    NotDone(NotDone),
    /// It may have been proposed.
    InDoubt(String),
    /// Nothing was proposed, and no other attempt will fare better.
    Refused(Error),
}

/// Why nothing was proposed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NotDone {
    /// Too much is waiting.
    Overloaded(String),
    /// There is no leader, it can't be reached, or it is another than the one that was asked.
    NoLeader(String),
}

/// A read, and how it is to be served.
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
}

/// How much a query may return, and how long it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// Never longer than the node lets one run.
    pub(crate) timeout: Duration,
}

impl Limits {
    /// None but those of the node.
    pub(crate) const NONE: Self = Self { rows: usize::MAX, bytes: usize::MAX, timeout: Duration::MAX };

    /// For readers.
    pub(crate) fn for_read(self) -> ReadLimits {
        let Self { rows, bytes, timeout } = self;
        ReadLimits { rows, bytes, timeout, ..ReadLimits::default() }
    }

    /// The same, and no query runs longer than this.
    pub(crate) fn within(self, time: Duration) -> Self {
        Self { timeout: self.timeout.min(time), ..self }
    }
}

impl Attempt {
    /// What a call over the network that has no reply leaves behind.
    pub(crate) fn of_call(error: CallError, to: &str) -> Self {
        let text = format!("{to}: {error}");
        match error {
            CallError::NotSent(NotSent::TooLarge { .. }) => {
                Self::Refused(Failure::new(FailureKind::TooBig, format!("{text}; send less at once")).into())
            }
            CallError::NotSent(_) => Self::NotDone(NotDone::NoLeader(text)),
            CallError::Broken | CallError::TimedOut => Self::InDoubt(text),
            CallError::Failed(failure) => match failure.kind {
                CallFailureKind::Overloaded => Self::NotDone(NotDone::Overloaded(text)),
                CallFailureKind::Unavailable => Self::NotDone(NotDone::NoLeader(text)),
                CallFailureKind::Forbidden | CallFailureKind::Malformed | CallFailureKind::UnknownMethod => {
                    Self::Refused(Error::Forbidden(text))
                }
                CallFailureKind::Internal | CallFailureKind::Abandoned => Self::InDoubt(text),
            },
        }
    }
}
