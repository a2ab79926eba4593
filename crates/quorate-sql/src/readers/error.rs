//! The errors of reads.

use std::time::Duration;

use quorate_apply::Trouble;
use quorate_model::{Failure, FailureKind, StoreFault};
use rusqlite::ffi;

use crate::classify::{Context, classify};
use crate::error::OpenError;
use crate::keys::Ended;

/// Why a read returned nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// SQLite or the authorizer refuses the statement, or its parameters do not match.
    #[error(transparent)]
    Failed(Failure),
    /// The statement writes.
    #[error("this statement writes, which a query can't; execute it instead")]
    Writes,
    /// The result has more rows than allowed.
    #[error("more than {0} rows; ask for fewer, raise the limit (with_limits), or stream them from a snapshot")]
    TooManyRows(usize),
    /// The result is larger than allowed.
    #[error("more than {0} bytes; ask for less, raise the limit (with_limits), or stream it from a snapshot")]
    TooManyBytes(usize),
    /// The query ran for longer than allowed.
    #[error(
        "the query did not end within {0:?}; make it cheaper, or raise its timeout (with_query_timeout) and the node's \
         ('sql.query_timeout')"
    )]
    Timeout(Duration),
    /// The caller cancelled the query or dropped it.
    #[error("the query was cancelled; run it again")]
    Cancelled,
    /// The read transaction reached its age limit (an old snapshot keeps the store from checkpointing), or SQLite
    /// rolled it back, as it does when a query runs out of memory or disk, or can't read the database.
    #[error("the snapshot has ended (too old, or out of memory or disk); read again, in smaller steps")]
    SnapshotEnded,
    /// All readers were in use for as long as the query may wait.
    #[error("all readers of the node are in use ('sql.readers' says how many it has)")]
    Busy,
    /// All queries together have reached their limit of memory or temporary disk space.
    #[error("{0}; run the query again when others have ended")]
    Overloaded(String),
    /// A fault of the node.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

impl ReadError {
    /// Whether the same read may succeed later without a change.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::SnapshotEnded | Self::Busy | Self::Overloaded(_) => true,
            Self::Fault(fault) => fault.is_retryable(),
            Self::Failed(_)
            | Self::Writes
            | Self::TooManyRows(_)
            | Self::TooManyBytes(_)
            | Self::Timeout(_)
            | Self::Cancelled => false,
        }
    }
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<OpenError> for ReadError {
    fn from(error: OpenError) -> Self {
        let is_damage = error.is_damage();
        Self::Fault(match error {
            OpenError::Fault(fault) => fault,
            other if is_damage => StoreFault::Damaged(other.to_string()),
            other => StoreFault::Io(other.to_string()),
        })
    }
}

impl<E: Into<Failure>> From<Ended<E>> for ReadError {
    fn from(ended: Ended<E>) -> Self {
        match ended {
            Ended::Failed(error) => Self::Failed(error.into()),
            Ended::Sqlite(error) => error.into(),
            Ended::Fault(fault) => Self::Fault(fault),
        }
    }
}

/// Separates faults of the node from failures of the statement. Interrupts and denials were translated earlier.
impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        let code = error.sqlite_error().map_or(ffi::SQLITE_ERROR, |error| error.extended_code);
        match code & 0xff {
            ffi::SQLITE_BUSY | ffi::SQLITE_PROTOCOL => return Self::Busy,
            ffi::SQLITE_LOCKED if code != ffi::SQLITE_LOCKED_VTAB => return Self::Busy,
            ffi::SQLITE_READONLY => return Self::Writes,
            // Another connection changed the schema, and the query can't be prepared under the new one.
            ffi::SQLITE_SCHEMA => return Failure::new(FailureKind::Sql, error.to_string()).into(),
            _ => {}
        }
        // A query writes only temporary files, so a full disk is a fault of the node.
        match classify(&error, Context { write_failed: true, refusal: None }) {
            Trouble::Failure(failure) => Self::Failed(failure),
            Trouble::Fault(fault) => Self::Fault(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_what_to_do() {
        let cases = [
            (ReadError::Writes, false, "this statement writes, which a query can't; execute it instead"),
            (ReadError::Cancelled, false, "the query was cancelled; run it again"),
            (
                ReadError::SnapshotEnded,
                true,
                "the snapshot has ended (too old, or out of memory or disk); read again, in smaller steps",
            ),
            (ReadError::Busy, true, "all readers of the node are in use ('sql.readers' says how many it has)"),
        ];
        for (error, is_retryable, text) in cases {
            assert_eq!((error.is_retryable(), error.to_string().as_str()), (is_retryable, text));
        }
    }
}
