//! The errors of reads and writes, and of starting a node.

use quorate_env::Cause;
use quorate_model::{Failure, Position, StoreFault};
use quorate_sql::query::RowError;
use quorate_sql::readers::ReadError;

use crate::config::ConfigError;

/// The error of a read or a write. Every error except [`Error::Unknown`] and [`Error::NotArchived`] means that the
/// write had no effect.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The statement failed or is not allowed. The same statement would fail again.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The outcome of the write is not known: it may have taken effect, or may still take effect. The handle could not
    /// find out, because the session has ended or the deadline has passed.
    #[error("the outcome of the write is not known: {0}; check the data before writing it again")]
    Unknown(#[source] Cause),
    /// The write was done, but it is not known to be archived yet: the deadline of a handle
    /// [with archived writes](crate::Sql::with_archived_writes) has passed. Writing again without a key writes twice;
    /// with the [key](crate::Sql::with_key) of the first call it waits again.
    #[error(
        "the write was done at position {position}, but is not known to be archived yet: {why}; don't write it again, \
         unless with the same key"
    )]
    NotArchived {
        /// The position at which the write was committed and applied.
        position: Position,
        /// Why it is not known.
        #[source]
        why: Cause,
    },
    /// The transaction conflicted in every attempt until the deadline: other writes changed what it had read.
    #[error("conflict: {0}")]
    Conflict(#[source] Cause),
    /// An interactive transaction was rolled back, because the leader was lost, the transaction's time limit was
    /// reached, or another entry was applied first.
    #[error("the transaction was aborted: {0}; it had no effect, run it again")]
    TransactionAborted(#[source] Cause),
    /// Too many requests were waiting, or all readers or snapshots were in use, until the deadline.
    #[error("overloaded: {0}; send less at a time, or try again later")]
    Overloaded(#[source] Cause),
    /// No leader with a majority, or no node at all, could be reached before the deadline.
    #[error("the cluster is not available: {0}; check that a majority of its nodes is up and reachable, and try again")]
    Unavailable(#[source] Cause),
    /// A read waited too long for its level, or ran for too long.
    #[error("the read took too long: {0}")]
    TimedOut(#[source] Cause),
    /// The result of a read exceeds the limit on rows or bytes.
    #[error("the result is too large: {0}")]
    TooLarge(#[source] Cause),
    /// The node no longer keeps the state that the snapshot reads. Either it was kept for too long, or an earlier query
    /// of the snapshot ran out of memory or disk space or could not read the database, and SQLite then ended the read
    /// transaction.
    #[error("the snapshot has ended (too old, or out of memory or disk); read again, in smaller steps")]
    SnapshotEnded,
    /// The rows can't be converted to the requested types.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The node can't use its database. Other nodes may still serve the request.
    #[error("this node can't serve: {0}")]
    Store(#[source] StoreFault),
    /// The node refuses this client: its secret is wrong, its role does not permit the request, or it belongs to
    /// another cluster or version.
    #[error("refused: {0}")]
    Forbidden(#[source] Cause),
    /// This node was removed from its cluster and no longer serves requests.
    #[error(transparent)]
    Removed(Cause),
    /// The node was stopped, or the handle's client was closed.
    #[error("closed: the node or this handle was stopped; start the node or connect again")]
    Closed,
}

impl Error {
    /// Returns whether the same call may succeed later. Retrying such a call never writes twice.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Conflict(_)
            | Self::TransactionAborted(_)
            | Self::Overloaded(_)
            | Self::Unavailable(_)
            | Self::TimedOut(_)
            | Self::SnapshotEnded => true,
            Self::Store(fault) => fault.is_retryable(),
            Self::Failed(_)
            | Self::Unknown(_)
            | Self::NotArchived { .. }
            | Self::TooLarge(_)
            | Self::Row(_)
            | Self::Forbidden(_)
            | Self::Removed(_)
            | Self::Closed => false,
        }
    }

    /// Returns the reason without the advice, for use inside another error that gives its own advice.
    pub(crate) fn reason(self) -> Cause {
        match self {
            Self::Unknown(why)
            | Self::NotArchived { why, .. }
            | Self::Conflict(why)
            | Self::TransactionAborted(why)
            | Self::Overloaded(why)
            | Self::Unavailable(why)
            | Self::TimedOut(why) => why,
            other => Cause::from(other),
        }
    }

    /// Returns the [`Failure`] of the statement, if this is [`Error::Failed`].
    pub fn failure(&self) -> Option<&Failure> {
        if let Self::Failed(failure) = self { Some(failure) } else { None }
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Failed(failure) => Self::Failed(failure),
            ReadError::Writes => Self::Failed(Failure::new(quorate_model::FailureKind::Refused, error.to_string())),
            ReadError::TooManyRows(_) | ReadError::TooManyBytes(_) => Self::TooLarge(Cause::from(error)),
            ReadError::Timeout(_) | ReadError::Cancelled => Self::TimedOut(Cause::from(error)),
            ReadError::SnapshotEnded => Self::SnapshotEnded,
            ReadError::Busy | ReadError::Overloaded(_) => Self::Overloaded(Cause::from(error)),
            ReadError::Fault(StoreFault::Closed) => Self::Closed,
            ReadError::Fault(fault) => Self::Store(fault),
            // The enum is non-exhaustive.
            _ => Self::Unavailable(Cause::from(error)),
        }
    }
}

/// The error of [`Client::connect`](crate::Client::connect).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The configuration can't be used.
    #[error("the configuration: {0}")]
    Config(#[from] ConfigError),
    /// No node could be reached, or none accepts this client.
    #[error(transparent)]
    Cluster(#[from] Error),
    /// The thread of the client could not be started.
    #[error("can't start a thread: {0}")]
    Thread(#[source] Cause),
}

impl ConnectError {
    /// Returns whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config(error) => error.is_retryable(),
            Self::Cluster(error) => error.is_retryable(),
            Self::Thread(_) => true,
        }
    }
}

/// The error of starting a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration can't be used.
    #[error("the configuration: {0}")]
    Config(#[from] ConfigError),
    /// Another running node uses the data directory.
    #[error("{0} is in use by another node; stop it, or give this node its own directory")]
    InUse(String),
    /// The data directory can't be used.
    #[error("{path}: {error}")]
    Disk {
        /// The directory.
        path: String,
        /// The error of the system.
        #[source]
        error: std::io::Error,
    },
    /// A restore into the data directory did not finish.
    #[error("a restore into {0} did not finish; run it again")]
    Unfinished(String),
    /// The first state of the new cluster ([`Config::first_state`](crate::Config::first_state)) can't be restored. The
    /// node founds no cluster without it.
    #[error(
        "the first state of the new cluster can't be restored: {0}; the node does not start without it. Correct \
         'archive.restore_from' and the keys beside it and start the node again, or take them out for an empty database"
    )]
    FirstState(#[source] Box<crate::restore::RestoreError>),
    /// The log, the store or the connection to the cluster could not be opened.
    #[error(transparent)]
    Consensus(#[from] quorate_consensus::StartError),
    /// The node's thread ended during the start.
    #[error("the node ended unexpectedly while it started")]
    Died,
}

impl StartError {
    /// Returns whether the same start may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config(error) => error.is_retryable(),
            Self::InUse(_) | Self::Disk { .. } => true,
            Self::Consensus(error) => error.is_retryable(),
            Self::FirstState(error) => error.is_retryable(),
            Self::Unfinished(_) | Self::Died => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_model::{Epoch, GroupId};

    use super::*;

    /// Covers every kind; `tests/errors/` provokes them.
    #[test]
    fn each_error_says_what_to_do() {
        let why = || Cause::from("this is why");
        let failure = Failure { row: Some(4), ..Failure::new(quorate_model::FailureKind::Sql, "this is why").at(1) };
        let cases = [
            (Error::Failed(failure), false, "statement 2: row 5: this is why"),
            (
                Error::Unknown(why()),
                false,
                "the outcome of the write is not known: this is why; check the data before writing it again",
            ),
            (
                Error::NotArchived {
                    position: Position { epoch: Epoch(1), group: GroupId::MAIN, index: 7 },
                    why: why(),
                },
                false,
                "the write was done at position 1.1.7, but is not known to be archived yet: this is why; don't write \
                 it again, unless with the same key",
            ),
            (Error::Conflict(why()), true, "conflict: this is why"),
            (
                Error::TransactionAborted(why()),
                true,
                "the transaction was aborted: this is why; it had no effect, run it again",
            ),
            (Error::Overloaded(why()), true, "overloaded: this is why; send less at a time, or try again later"),
            (
                Error::Unavailable(why()),
                true,
                "the cluster is not available: this is why; check that a majority of its nodes is up and reachable, \
                 and try again",
            ),
            (Error::TimedOut(why()), true, "the read took too long: this is why"),
            (Error::TooLarge(why()), false, "the result is too large: this is why"),
            (
                Error::SnapshotEnded,
                true,
                "the snapshot has ended (too old, or out of memory or disk); read again, in smaller steps",
            ),
            (
                Error::Row(RowError::NoColumn { column: "a".to_owned(), columns: "b, c".to_owned() }),
                false,
                "no column a: the result has b, c",
            ),
            (
                Error::Store(StoreFault::Full(why().to_string())),
                true,
                "this node can't serve: no space left for the database: this is why; free some, and the node \
                 continues by itself",
            ),
            (
                Error::Store(StoreFault::Io(why().to_string())),
                false,
                "this node can't serve: the database can't be read or written: this is why; see to the disk, then \
                 restart the node",
            ),
            (Error::Forbidden(why()), false, "refused: this is why"),
            (Error::Removed(why()), false, "this is why"),
            (Error::Closed, false, "closed: the node or this handle was stopped; start the node or connect again"),
        ];
        for (error, is_retryable, text) in cases {
            assert_eq!((error.is_retryable(), error.to_string().as_str()), (is_retryable, text));
        }
    }
}
