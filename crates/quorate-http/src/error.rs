//! Why a request, or a statement of it, failed, and what the answer says about it.
//!
//! Invariant: an error that a client may retry without writing twice has status 503 or a code that says so; an outcome
//! that is not known has the code `OUTCOME_UNKNOWN` and never one of those.

use hyper::StatusCode;
use quorate::keys::Version;
use quorate::users::Denied;
use quorate::{Error, Failure, FailureKind};
use quorate_env::Cause;

use crate::codes;

/// Why a request, or a statement of it, failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// The library could not do it.
    #[error(transparent)]
    Sql(#[from] Error),
    /// The body or a parameter of the request can't be read.
    #[error("the request can't be read: {0}")]
    Malformed(#[source] Cause),
    /// The arguments of a statement do not match its parameters.
    #[error("{0}")]
    Arguments(String),
    /// The stream was closed, or not used for too long, or another server has it.
    #[error("the stream has expired, was closed, or belongs to another server; open a new one")]
    StreamExpired,
    /// The baton was used before, or was never given.
    #[error("the baton was used before or was never given; use the one of the latest answer")]
    BatonInvalid,
    /// All streams are in use.
    #[error("all {0} streams are in use; close some, or try again later")]
    TooManyStreams(usize),
    /// A request after `close` on the same stream.
    #[error("the stream is closed; open a new one")]
    StreamClosed,
    /// A cursor that is not open.
    #[error("no cursor is open under this id; its batch may have failed, or its stream was closed")]
    CursorClosed,
    /// All cursors are in use.
    #[error("all {0} cursors of the connection are in use; close some")]
    TooManyCursors(usize),
    /// The handshake of another version of WebSocket.
    #[error("only version 13 of WebSocket is spoken")]
    WebSocketVersion,
    /// A stored SQL text that is not there, is there already, or is too much.
    #[error("{0}")]
    StoredText(String),
    /// The transaction of the stream was lost. Its statements had no effect.
    #[error("the transaction was lost: {0}; ROLLBACK, and run it again")]
    TransactionLost(#[source] Cause),
    /// A statement that begins or ends transactions where that is not possible.
    #[error("{0}")]
    Transaction(&'static str),
    /// The doors do not offer it.
    #[error("{0}")]
    NotOffered(&'static str),
    /// The statement would write in a transaction that only reads.
    #[error("the transaction only reads, and the statement would write; begin one without READONLY")]
    ReadOnly,
    /// Refused after `PRAGMA foreign_keys = OFF`.
    #[error(
        "foreign keys are always enforced here, so after PRAGMA foreign_keys = OFF a statement that changes or removes \
         rows could also remove rows that refer to them; run it without that PRAGMA if this is wanted"
    )]
    ForeignKeysOff,
    /// The key, or the field, is missing.
    #[error("the key, or the field, does not exist")]
    NoKey,
    /// The key, or the field, has another version than the request depends on; none if it is missing.
    #[error("a precondition does not hold; read the present state, and decide again")]
    Precondition(Option<Version>),
    /// No table has the name.
    #[error("no table has this name: it has no elements, or never had any")]
    NoTable,
    /// A field that is added to is not an integer, or the sum is not.
    #[error("the field, or the sum, is not an integer of 64 bits")]
    NotInteger,
    /// A parameter, or the body, that the request needs is missing.
    #[error("'{0}' is missing")]
    NoParameter(&'static str),
    /// All permits of the lock are held.
    #[error("others hold the lock: ask again, wait for it (wait=30s), or see who they are (GET)")]
    LockBusy,
    /// The lease has ended.
    #[error("the lock is not held by this holder with this token; acquire it again")]
    LockLost,
    /// Nobody holds the lock or waits for it, or not this holder.
    #[error("nobody holds the lock or waits for it, or not this holder")]
    NoLock,
    /// A request of a web page that is not allowed.
    #[error("web pages of {0} may not use this server; allow their origin in its options")]
    Origin(String),
    /// The body is larger than allowed.
    #[error("the body has more than {0} bytes; send less at a time")]
    BodyTooLarge(usize),
    /// Nobody is let in with these credentials, or the user may not do this.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Other machines could do everything.
    #[error(
        "the cluster has no users, and other machines can reach this port: add an administrator with `quorate users \
         add`, then log in"
    )]
    Open,
    /// A backup could not be made, for a reason of the server's disk, or of its node.
    #[error("{0}")]
    Backup(#[source] Cause),
    /// No such endpoint.
    #[error("not found: /openapi.json describes the endpoints")]
    NotFound,
    /// Not with this method.
    #[error("the method is not allowed here; use {0}")]
    Method(&'static str),
}

impl Problem {
    pub(crate) fn malformed(why: impl Into<Cause>) -> Self {
        Self::Malformed(why.into())
    }

    /// Returns the code by which programs recognise the problem.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Sql(error) => of_library(error),
            Self::Malformed(_) => "MALFORMED_REQUEST",
            Self::Arguments(_) => "ARGS_INVALID",
            Self::StreamExpired => "STREAM_EXPIRED",
            Self::BatonInvalid => "BATON_INVALID",
            Self::TooManyStreams(_) => "TOO_MANY_STREAMS",
            Self::StreamClosed => "STREAM_CLOSED",
            Self::CursorClosed => "CURSOR_CLOSED",
            Self::TooManyCursors(_) => "TOO_MANY_CURSORS",
            Self::WebSocketVersion => "UPGRADE_REQUIRED",
            Self::StoredText(_) => "SQL_STORE_INVALID",
            Self::TransactionLost(_) => "TRANSACTION_ABORTED",
            Self::Transaction(_) => "SQLITE_ERROR",
            Self::NotOffered(_) => "NOT_OFFERED",
            Self::ReadOnly => "SQLITE_READONLY",
            Self::ForeignKeysOff => "FOREIGN_KEYS_ENFORCED",
            Self::NoKey => "KEY_NOT_FOUND",
            Self::Precondition(_) => "PRECONDITION_FAILED",
            Self::NoTable => "TABLE_NOT_FOUND",
            Self::NotInteger => "INVALID_VALUE",
            Self::NoParameter(_) => "PARAMETER_MISSING",
            Self::LockBusy => "LOCK_BUSY",
            Self::LockLost => "LOCK_LOST",
            Self::NoLock => "LOCK_NOT_FOUND",
            Self::Origin(_) => "ORIGIN_REFUSED",
            Self::BodyTooLarge(_) => "BODY_TOO_LARGE",
            Self::Denied(Denied::Forbidden { .. }) | Self::Open => "FORBIDDEN",
            Self::Denied(Denied::TooMany(_)) => "TOO_MANY_LOGINS",
            Self::Denied(Denied::Busy | Denied::NotYet | Denied::Closed) => "UNAVAILABLE",
            Self::Denied(_) => "UNAUTHORIZED",
            Self::Backup(_) => "BACKUP_FAILED",
            Self::NotFound => "NOT_FOUND",
            Self::Method(_) => "METHOD_NOT_ALLOWED",
        }
    }

    /// Returns the status of an answer that says only this.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Sql(error) => status_of(error),
            Self::Malformed(_)
            | Self::Arguments(_)
            | Self::StreamExpired
            | Self::BatonInvalid
            | Self::StreamClosed
            | Self::CursorClosed
            | Self::StoredText(_)
            | Self::Transaction(_)
            | Self::ReadOnly
            | Self::ForeignKeysOff => StatusCode::BAD_REQUEST,
            Self::TooManyStreams(_) | Self::TooManyCursors(_) | Self::TransactionLost(_) | Self::Backup(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::WebSocketVersion => StatusCode::UPGRADE_REQUIRED,
            Self::NotOffered(_) | Self::NotInteger => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Origin(_) | Self::Open | Self::Denied(Denied::Forbidden { .. }) => StatusCode::FORBIDDEN,
            Self::Denied(Denied::TooMany(_)) => StatusCode::TOO_MANY_REQUESTS,
            Self::Denied(Denied::Busy | Denied::NotYet | Denied::Closed) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Denied(_) => StatusCode::UNAUTHORIZED,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::LockBusy => StatusCode::CONFLICT,
            Self::Precondition(_) | Self::NoTable | Self::LockLost => StatusCode::PRECONDITION_FAILED,
            Self::NotFound | Self::NoKey | Self::NoParameter(_) | Self::NoLock => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    /// Returns whether it concerns the whole request rather than the statement: the server can't serve it now.
    pub(crate) fn is_of_server(&self) -> bool {
        matches!(self, Self::Sql(error) if !matches!(error, Error::Failed(_) | Error::TooLarge(_) | Error::TimedOut(_)))
    }

    /// Returns whether the statement can't be run as a query.
    pub(crate) fn is_refusal(error: &Error) -> bool {
        error.failure().is_some_and(|failure| failure.kind == FailureKind::Refused)
    }
}

/// A problem without the number of its statement, which clients learn from its place.
impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Sql(Error::Failed(Failure { command: None, ..failure }))
    }
}

fn of_library(error: &Error) -> &'static str {
    match error {
        Error::Failed(failure) => codes::of(failure),
        Error::Unknown(_) => "OUTCOME_UNKNOWN",
        Error::NotArchived { .. } => "NOT_ARCHIVED",
        Error::Conflict(_) | Error::Overloaded(_) => "SQLITE_BUSY",
        Error::TransactionAborted(_) => "TRANSACTION_ABORTED",
        Error::Unavailable(_) | Error::Removed(_) | Error::Closed => "UNAVAILABLE",
        Error::TimedOut(_) => "TIMEOUT",
        Error::TooLarge(_) => "RESPONSE_TOO_LARGE",
        Error::SnapshotEnded => "SQLITE_ABORT_ROLLBACK",
        Error::Store(_) => "SQLITE_IOERR",
        Error::Forbidden(_) => "SQLITE_AUTH",
        _ => "SQLITE_ERROR",
    }
}

fn status_of(error: &Error) -> StatusCode {
    match error {
        Error::Conflict(_)
        | Error::Overloaded(_)
        | Error::TransactionAborted(_)
        | Error::Unavailable(_)
        | Error::Removed(_)
        | Error::Closed
        | Error::TimedOut(_)
        | Error::SnapshotEnded
        | Error::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        // Not 503, which clients retry: the write may have taken effect, or has.
        Error::Unknown(_) | Error::NotArchived { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        Error::Forbidden(_) => StatusCode::FORBIDDEN,
        Error::Failed(failure) => match failure.kind {
            FailureKind::KeyReused | FailureKind::InvalidValue => StatusCode::UNPROCESSABLE_ENTITY,
            FailureKind::WrongType => StatusCode::CONFLICT,
            _ => StatusCode::BAD_REQUEST,
        },
        _ => StatusCode::BAD_REQUEST,
    }
}
