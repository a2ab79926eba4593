//! Conversions between messages and the types that they represent.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_env::Cause;
use quorate_model::{DecodeError, Epoch, GroupId, Outcome, Position, Read, Stamp, StoreFault, codec};
use quorate_sql::query::Rows;
use quorate_sql::store::Verification;
use quorate_wire::CallFailure;

use super::{
    Answer, AnswerKind, Backup, Empty, Executed, ExecutedKind, Hashes, LevelKind, OpenSnapshot, Query, Refusal,
    SnapshotItem, SnapshotItemKind, TableHash, Verified, VerifiedKind, WirePosition, WireRows, WireStamp, Written,
    malformed,
};
use crate::error::Error;
use crate::level::Level;
use crate::snapshot;
use crate::submitter::{Attempt, Limits, NotDone, ReadAnswer, ReadRequest};

/// The error for an answer of an unknown kind.
const NEWER: &str =
    "a newer version sent an answer that this version can't read; install the version that the nodes run";

/// Kinds of [`Refusal`].
mod refusal {
    pub(super) const FAILED: u32 = 1;
    pub(super) const OVERLOADED: u32 = 2;
    pub(super) const UNAVAILABLE: u32 = 3;
    pub(super) const TIMED_OUT: u32 = 4;
    pub(super) const TOO_LARGE: u32 = 5;
    pub(super) const SNAPSHOT_ENDED: u32 = 6;
    pub(super) const FORBIDDEN: u32 = 7;
    pub(super) const STORE: u32 = 8;
    pub(super) const TRANSACTION_ABORTED: u32 = 9;
}

impl From<Position> for WirePosition {
    fn from(position: Position) -> Self {
        Self { epoch: position.epoch.0, group: position.group.0, index: position.index }
    }
}

impl From<WirePosition> for Position {
    fn from(message: WirePosition) -> Self {
        Self { epoch: Epoch(message.epoch), group: GroupId(message.group), index: message.index }
    }
}

impl Executed {
    /// Creates the answer to a proposal; `leader` is the address for the next proposal.
    pub(crate) fn new(result: Result<(Position, Outcome), Attempt>, leader: Option<String>) -> Self {
        let kind = match result {
            Ok((position, outcome)) => {
                ExecutedKind::Written(Written { position: position.into(), outcome: codec::encode_outcome(&outcome) })
            }
            Err(Attempt::NotDone(NotDone::Overloaded(why))) => ExecutedKind::Overloaded(why.to_string()),
            Err(Attempt::NotDone(NotDone::NoLeader(why))) => ExecutedKind::NoLeader(why.to_string()),
            Err(Attempt::InDoubt(why)) => ExecutedKind::InDoubt(why.to_string()),
            Err(Attempt::Refused(error)) => ExecutedKind::Refused((&error).into()),
        };
        Self { kind: Some(kind), leader: leader.unwrap_or_default() }
    }

    /// Returns the result that the answer contains.
    pub(crate) fn result(self) -> Result<(Position, Outcome), Attempt> {
        match self.kind {
            Some(ExecutedKind::Written(written)) => match codec::decode_outcome(&written.outcome) {
                Ok(outcome) => Ok((written.position.into(), outcome)),
                Err(error) => {
                    Err(Attempt::InDoubt(Cause::context(format!("the outcome can't be read: {error}"), error)))
                }
            },
            Some(ExecutedKind::Overloaded(text)) => Err(Attempt::NotDone(NotDone::Overloaded(text.into()))),
            Some(ExecutedKind::NoLeader(text)) => Err(Attempt::NotDone(NotDone::NoLeader(text.into()))),
            Some(ExecutedKind::InDoubt(text)) => Err(Attempt::InDoubt(text.into())),
            Some(ExecutedKind::Refused(refusal)) => Err(Attempt::Refused(refusal.into())),
            None => Err(Attempt::InDoubt(NEWER.into())),
        }
    }
}

impl Query {
    /// Creates the message for a read that the node may try for `millis`.
    pub(crate) fn new(request: ReadRequest, millis: u64) -> Self {
        let ReadRequest { read, level, limits } = request;
        Self {
            read: codec::encode_read(&read),
            level: Some(level.into()),
            rows_max: u64::try_from(limits.rows).unwrap_or(u64::MAX),
            bytes_max: u64::try_from(limits.bytes).unwrap_or(u64::MAX),
            millis,
            stamp: None,
            run_micros: micros(limits.timeout),
        }
    }

    /// Creates the message for a query of a snapshot.
    pub(crate) fn of_state(query: snapshot::Query, millis: u64) -> Self {
        let snapshot::Query { statement, limits, stamp } = query;
        let stamp = stamp.map(|Stamp { now, seed }| WireStamp { now, seed });
        let request = ReadRequest { read: Read::Sql(statement), level: Level::Local, limits };
        Self { stamp, ..Self::new(request, millis) }
    }

    /// Returns the query of a snapshot.
    pub(crate) fn state_query(self) -> Result<snapshot::Query, CallFailure> {
        let stamp = self.stamp.map(|WireStamp { now, seed }| Stamp { now, seed });
        match self.read()? {
            ReadRequest { read: Read::Sql(statement), limits, .. } => Ok(snapshot::Query { statement, limits, stamp }),
            ReadRequest { read: Read::Keys(_) | Read::Locks(_) | Read::Events(_), .. } => {
                Err(malformed("a snapshot answers only queries"))
            }
        }
    }

    /// Returns the read.
    pub(crate) fn read(self) -> Result<ReadRequest, CallFailure> {
        let level = level_of(self.level)?;
        let read = codec::decode_read(&self.read).map_err(malformed)?;
        let rows = usize::try_from(self.rows_max).unwrap_or(usize::MAX);
        let bytes = usize::try_from(self.bytes_max).unwrap_or(usize::MAX);
        let timeout = if self.run_micros == 0 { Duration::MAX } else { Duration::from_micros(self.run_micros) };
        Ok(ReadRequest { read, level, limits: Limits { rows, bytes, timeout } })
    }
}

/// Converts the time limit of a query to microseconds, with 0 for no limit of its own.
fn micros(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_micros()).map_or(0, |micros| micros.max(1))
}

impl Backup {
    /// Creates the message for an image at a level; the node may wait for the level for `millis`.
    pub(crate) fn new(level: Level, millis: u64) -> Self {
        Self { level: Some(level.into()), millis }
    }

    /// Returns the level of the image.
    pub(crate) fn level(self) -> Result<Level, CallFailure> {
        level_of(self.level)
    }
}

impl From<Level> for LevelKind {
    fn from(level: Level) -> Self {
        match level {
            Level::Local => Self::Local(Empty {}),
            Level::AtLeast(position) => Self::AtLeast(position.into()),
            Level::Linearizable => Self::Linearizable(Empty {}),
            // Rounded down, which is stricter.
            Level::Bounded(age) => Self::Bounded(u64::try_from(age.as_micros()).unwrap_or(u64::MAX)),
        }
    }
}

/// Returns the level of a request.
fn level_of(level: Option<LevelKind>) -> Result<Level, CallFailure> {
    Ok(match level.ok_or_else(|| malformed("the level of the read is not known"))? {
        LevelKind::Local(_) => Level::Local,
        LevelKind::AtLeast(position) => Level::AtLeast(position.into()),
        LevelKind::Linearizable(_) => Level::Linearizable,
        LevelKind::Bounded(micros) => Level::Bounded(Duration::from_micros(micros)),
    })
}

impl From<Rows> for WireRows {
    fn from(rows: Rows) -> Self {
        let (columns, decltypes) = (rows.columns().to_vec(), rows.decltypes().iter().cloned());
        let decltypes = decltypes.map(Option::unwrap_or_default).collect();
        Self { columns, decltypes, values: codec::encode_row(&rows.into_values()) }
    }
}

impl TryFrom<WireRows> for Rows {
    type Error = Error;

    fn try_from(rows: WireRows) -> Result<Self, Error> {
        let unreadable = |error| Error::Unavailable(Cause::context(format!("the rows can't be read: {error}"), error));
        let values = codec::decode_row(&rows.values).map_err(unreadable)?;
        let decltypes = rows.decltypes.into_iter().map(|decltype| Some(decltype).filter(|text| !text.is_empty()));
        Ok(Self::new(rows.columns.into(), values).with_decltypes(decltypes.collect()))
    }
}

impl From<Result<ReadAnswer, Error>> for Answer {
    fn from(result: Result<ReadAnswer, Error>) -> Self {
        let kind = match result {
            Ok(ReadAnswer::Sql(rows)) => AnswerKind::Rows(rows.into()),
            Ok(ReadAnswer::Keys(reply)) => AnswerKind::Keys(codec::encode_keys_reply(&reply)),
            Ok(ReadAnswer::Locks(reply)) => AnswerKind::Locks(codec::encode_locks_reply(&reply)),
            Ok(ReadAnswer::Events(answer)) => AnswerKind::Events(codec::encode_events_answer(&answer)),
            Err(error) => AnswerKind::Refused((&error).into()),
        };
        Self { kind: Some(kind) }
    }
}

impl From<Answer> for Result<ReadAnswer, Error> {
    fn from(answer: Answer) -> Self {
        match answer.kind {
            Some(AnswerKind::Rows(rows)) => rows.try_into().map(ReadAnswer::Sql),
            Some(AnswerKind::Keys(reply)) => codec::decode_keys_reply(&reply).map(ReadAnswer::Keys).map_err(unreadable),
            Some(AnswerKind::Locks(reply)) => {
                codec::decode_locks_reply(&reply).map(ReadAnswer::Locks).map_err(unreadable)
            }
            Some(AnswerKind::Events(answer)) => {
                codec::decode_events_answer(&answer).map(ReadAnswer::Events).map_err(unreadable)
            }
            Some(AnswerKind::Refused(refusal)) => Err(refusal.into()),
            None => Err(newer()),
        }
    }
}

fn unreadable(error: DecodeError) -> Error {
    Error::Unavailable(Cause::context(format!("the reply can't be read: {error}"), error))
}

pub(super) fn newer() -> Error {
    Error::Forbidden(NEWER.into())
}

impl OpenSnapshot {
    /// Creates the message; the node may try for `millis`.
    pub(crate) fn new(level: Level, millis: u64) -> Self {
        Self { level: Some(level.into()), millis }
    }

    /// Returns the level of the snapshot.
    pub(crate) fn level(&self) -> Result<Level, CallFailure> {
        level_of(self.level)
    }
}

/// An answer to an [`OpenSnapshot`].
impl From<Result<Position, Error>> for SnapshotItem {
    fn from(result: Result<Position, Error>) -> Self {
        let kind = match result {
            Ok(position) => SnapshotItemKind::Opened(position.into()),
            Err(error) => SnapshotItemKind::Refused((&error).into()),
        };
        Self { kind: Some(kind) }
    }
}

/// A piece of a result, the end of a result, or an error.
impl From<Result<Option<Rows>, Error>> for SnapshotItem {
    fn from(result: Result<Option<Rows>, Error>) -> Self {
        let kind = match result {
            Ok(Some(rows)) => SnapshotItemKind::Rows(rows.into()),
            Ok(None) => SnapshotItemKind::End(Empty {}),
            Err(error) => SnapshotItemKind::Refused((&error).into()),
        };
        Self { kind: Some(kind) }
    }
}

impl SnapshotItem {
    /// Returns the answer to an [`OpenSnapshot`].
    pub(crate) fn opened(self) -> Result<Position, Error> {
        match self.kind {
            Some(SnapshotItemKind::Opened(position)) => Ok(position.into()),
            Some(SnapshotItemKind::Refused(refusal)) => Err(refusal.into()),
            _ => Err(newer()),
        }
    }

    /// Returns the answer to a query.
    pub(crate) fn piece(self) -> Result<Option<Rows>, Error> {
        match self.kind {
            Some(SnapshotItemKind::Rows(rows)) => rows.try_into().map(Some),
            Some(SnapshotItemKind::End(_)) => Ok(None),
            Some(SnapshotItemKind::Refused(refusal)) => Err(refusal.into()),
            Some(SnapshotItemKind::Opened(_)) | None => Err(newer()),
        }
    }
}

impl From<Option<Verification>> for Verified {
    fn from(verification: Option<Verification>) -> Self {
        let table = |(name, hash): (&String, &u128)| TableHash {
            name: name.clone(),
            hash: Bytes::copy_from_slice(&hash.to_le_bytes()),
        };
        let kind = match verification {
            None => VerifiedKind::Unknown(Empty {}),
            Some(Verification::Running) => VerifiedKind::NotYet(Empty {}),
            Some(Verification::Failed(why)) => VerifiedKind::Failed(why),
            Some(Verification::Done(hashes)) => {
                VerifiedKind::Hashes(Hashes { tables: hashes.iter().map(table).collect() })
            }
        };
        Self { kind: Some(kind) }
    }
}

impl Hashes {
    /// Returns the hashes by the names of their tables; `None` if a hash does not have 16 bytes.
    pub(crate) fn by_table(self) -> Option<BTreeMap<String, u128>> {
        let hash = |bytes: Bytes| Some(u128::from_le_bytes(bytes.as_ref().try_into().ok()?));
        self.tables.into_iter().map(|table| Some((table.name, hash(table.hash)?))).collect()
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        let (kind, text) = match error {
            Error::Failed(failure) => {
                let failure = codec::encode_outcome(&Err(failure.clone()));
                return Self { kind: refusal::FAILED, text: String::new(), failure };
            }
            Error::Overloaded(why) => (refusal::OVERLOADED, why.to_string()),
            Error::Unavailable(why) => (refusal::UNAVAILABLE, why.to_string()),
            Error::TimedOut(why) => (refusal::TIMED_OUT, why.to_string()),
            Error::TooLarge(why) => (refusal::TOO_LARGE, why.to_string()),
            Error::SnapshotEnded => (refusal::SNAPSHOT_ENDED, String::new()),
            Error::Forbidden(why) => (refusal::FORBIDDEN, why.to_string()),
            Error::TransactionAborted(why) => (refusal::TRANSACTION_ABORTED, why.to_string()),
            // Only the reason is sent: the other end adds the rest of the error's text again.
            Error::Store(StoreFault::Io(text)) => (refusal::STORE, text.clone()),
            Error::Store(fault) => (refusal::STORE, fault.to_string()),
            Error::Unknown(_)
            | Error::NotArchived { .. }
            | Error::Conflict(_)
            | Error::Row(_)
            | Error::Removed(_)
            | Error::Closed => (refusal::UNAVAILABLE, error.to_string()),
        };
        Self { kind, text, failure: Bytes::new() }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.text;
        match refusal.kind {
            refusal::FAILED => match codec::decode_outcome(&refusal.failure) {
                Ok(Err(failure)) => Self::Failed(failure),
                Ok(Ok(_)) | Err(_) => Self::Forbidden(NEWER.into()),
            },
            refusal::OVERLOADED => Self::Overloaded(text.into()),
            refusal::TIMED_OUT => Self::TimedOut(text.into()),
            refusal::TOO_LARGE => Self::TooLarge(text.into()),
            refusal::SNAPSHOT_ENDED => Self::SnapshotEnded,
            refusal::FORBIDDEN => Self::Forbidden(text.into()),
            refusal::TRANSACTION_ABORTED => Self::TransactionAborted(text.into()),
            // The text of the node's own error is all that remains of its kind.
            refusal::STORE => Self::Store(StoreFault::Io(text)),
            _ => Self::Unavailable(text.into()),
        }
    }
}
