//! Why a call failed, and what the caller may conclude from it.

use quorate_env::Cause;
use quorate_model::{Failure, StoreFault};
use quorate_sql::query::RowError;
use quorate_sql::readers::ReadError;

use crate::config::ConfigError;

/// Why a read or a write failed. But for [`Error::Unknown`], nothing of a write was done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The statement failed, or is not allowed. The same statement would fail again.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The write may have been done, or may still be. No retry could tell: the session that would know is gone, or the
    /// deadline came first.
    #[error("the outcome of the write is not known: {0}; look before writing it again")]
    Unknown(#[source] Cause),
    /// Each time until the deadline, another write had changed what the transaction had read.
    #[error("conflict: {0}")]
    Conflict(#[source] Cause),
    /// An interactive transaction was rolled back: its leader was lost, its time was up, or other entries came in
    /// between.
    #[error("the transaction was aborted: {0}; nothing of it was done, run it again")]
    TransactionAborted(#[source] Cause),
    /// Too much was waiting until the deadline.
    #[error("overloaded: {0}; send less at a time, or try again later")]
    Overloaded(#[source] Cause),
    /// No leader with a majority, or no node at all, could be reached until the deadline.
    #[error("the cluster is not available: {0}; see that a majority of its nodes is up and reachable, and try again")]
    Unavailable(#[source] Cause),
    /// A read took too long: to wait for its level, or to run.
    #[error("the read took too long: {0}")]
    TimedOut(#[source] Cause),
    /// The result of a read has more rows or bytes than it may.
    #[error("the result is too large: {0}")]
    TooLarge(#[source] Cause),
    /// A read lasted for longer than one state can be kept, or a query before it in its snapshot ran out of memory or
    /// disk, or could not read the database: SQLite ends the read transaction then.
    #[error("the snapshot has ended (too old, or out of memory or disk); read again, in smaller steps")]
    SnapshotEnded,
    /// The rows are not what the program expects.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The node's own trouble with its database; other nodes may serve.
    #[error("this node can't serve: {0}")]
    Store(#[source] StoreFault),
    /// The server refuses this client: a wrong secret, a role that may not do this, another cluster or version.
    #[error("refused: {0}")]
    Forbidden(#[source] Cause),
    /// This node was removed from its cluster and serves nothing any more.
    #[error(transparent)]
    Removed(Cause),
    /// The node, or the handle, was closed.
    #[error("closed: the node, or this handle, was stopped; start the node, or connect, again")]
    Closed,
}

impl Error {
    /// Whether the same call may succeed later, without the risk of writing twice.
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
            | Self::TooLarge(_)
            | Self::Row(_)
            | Self::Forbidden(_)
            | Self::Removed(_)
            | Self::Closed => false,
        }
    }

    /// Why, without what to do: where another error says that.
    pub(crate) fn reason(self) -> Cause {
        match self {
            Self::Unknown(why)
            | Self::Conflict(why)
            | Self::TransactionAborted(why)
            | Self::Overloaded(why)
            | Self::Unavailable(why)
            | Self::TimedOut(why) => why,
            other => Cause::from(other),
        }
    }

    /// The failure of the statement, if that is what it is.
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
            // Kinds that later versions of the readers add.
            _ => Self::Unavailable(Cause::from(error)),
        }
    }
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration can't be used.
    #[error("the configuration: {0}")]
    Config(#[from] ConfigError),
    /// Another running node uses the data directory.
    #[error("{0} is in use by another node; stop it, or give this one a directory of its own")]
    InUse(String),
    /// The data directory can't be used.
    #[error("{path}: {error}")]
    Disk {
        /// The directory.
        path: String,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
    /// A restore into the data directory did not come to its end.
    #[error("a restore into {0} did not come to its end; run it again")]
    Unfinished(String),
    /// The node could not take its part in the cluster.
    #[error(transparent)]
    Consensus(#[from] quorate_consensus::StartError),
    /// The node went down while it started.
    #[error("the node went down while it started")]
    Died,
}

impl StartError {
    /// Whether the same start may succeed later without help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config(error) => error.is_retryable(),
            Self::InUse(_) | Self::Disk { .. } => true,
            Self::Consensus(error) => error.is_retryable(),
            Self::Unfinished(_) | Self::Died => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind; what leads to it is in `tests/errors/`.
    #[test]
    fn each_error_says_what_to_do() {
        let why = || Cause::from("this is why");
        let failure = Failure { row: Some(4), ..Failure::new(quorate_model::FailureKind::Sql, "this is why").at(1) };
        let cases = [
            (Error::Failed(failure), false, "statement 2: row 5: this is why"),
            (
                Error::Unknown(why()),
                false,
                "the outcome of the write is not known: this is why; look before writing it again",
            ),
            (Error::Conflict(why()), true, "conflict: this is why"),
            (
                Error::TransactionAborted(why()),
                true,
                "the transaction was aborted: this is why; nothing of it was done, run it again",
            ),
            (Error::Overloaded(why()), true, "overloaded: this is why; send less at a time, or try again later"),
            (
                Error::Unavailable(why()),
                true,
                "the cluster is not available: this is why; see that a majority of its nodes is up and reachable, and \
                 try again",
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
            (Error::Closed, false, "closed: the node, or this handle, was stopped; start the node, or connect, again"),
        ];
        for (error, is_retryable, text) in cases {
            assert_eq!((error.is_retryable(), error.to_string().as_str()), (is_retryable, text));
        }
    }
}
