//! The messages of clients to nodes, and of nodes to each other on their behalf, with their tags
//! (`docs/wire-format.md`, "Client methods"). Never reuse or renumber a tag.

use bytes::Bytes;
use prost::{Message, Oneof};
use quorate_wire::{CallFailure, FailureKind};

pub(crate) mod admin;
pub(crate) mod archived;
mod convert;
mod status;
pub(crate) mod transaction;
pub(crate) mod users;
pub(crate) mod waits;

pub(crate) use status::StatusReply;

/// The numbers of the methods.
pub(crate) mod method {
    /// Proposes a proposal.
    pub(crate) const EXECUTE: u16 = 64;
    /// Answers a read.
    pub(crate) const QUERY: u16 = 65;
    /// Returns the state of the node and its cluster.
    pub(crate) const STATUS: u16 = 66;
    /// Sends an image of the database, as a stream.
    pub(crate) const BACKUP: u16 = 67;
    /// Returns the logical hashes that an entry made the node compute.
    pub(crate) const VERIFY: u16 = 68;
    /// Returns the running hash of outcomes after an entry.
    pub(crate) const OUTCOMES: u16 = 69;
    /// Permits a node to become a member, and returns its progress.
    pub(crate) const ADMIT: u16 = 70;
    /// Removes a member.
    pub(crate) const REMOVE: u16 = 71;
    /// Hands over leadership.
    pub(crate) const TRANSFER: u16 = 72;
    /// Returns the node's clock, version and timing.
    pub(crate) const PROBE: u16 = 73;
    /// Announces functions and collations.
    pub(crate) const EXTENSIONS: u16 = 74;
    /// Makes the leader reject an entry.
    pub(crate) const REJECT_ENTRY: u16 = 75;
    /// Returns the users.
    pub(crate) const USERS: u16 = 76;
    /// Checks the credentials of someone who talks to a proxy.
    pub(crate) const CHECK_LOGIN: u16 = 77;
    /// Waits until an entry is archived.
    pub(crate) const ARCHIVED: u16 = 78;
    /// A stream: takes a snapshot and answers queries of it, in pieces.
    pub(crate) const SNAPSHOT: u16 = 80;
    /// A stream: runs the statements of an interactive transaction, and commits it.
    pub(crate) const INTERACTIVE: u16 = 81;
    /// A stream: carries all waits of a client.
    pub(crate) const WAIT: u16 = 82;
}

/// Requests a proposal.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Execute {
    /// The proposal, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "1")]
    pub proposal: Bytes,
}

/// Answers [`Execute`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Executed {
    #[prost(oneof = "ExecutedKind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<ExecutedKind>,
    /// The address for the next proposal, if it is not that of the answering node.
    #[prost(string, tag = "6")]
    pub leader: String,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ExecutedKind {
    #[prost(message, tag = "1")]
    Written(Written),
    /// Nothing was proposed: too many requests are waiting.
    #[prost(string, tag = "2")]
    Overloaded(String),
    /// Nothing was proposed: no leader is known, or it can't be reached.
    #[prost(string, tag = "3")]
    NoLeader(String),
    /// It may have been proposed.
    #[prost(string, tag = "4")]
    InDoubt(String),
    /// Nothing was proposed, and other nodes would refuse it too.
    #[prost(message, tag = "5")]
    Refused(Refusal),
}

/// A proposal that was applied.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Written {
    #[prost(message, required, tag = "1")]
    pub position: WirePosition,
    /// The outcome, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "2")]
    pub outcome: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WirePosition {
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    #[prost(uint32, tag = "2")]
    pub group: u32,
    #[prost(uint64, tag = "3")]
    pub index: u64,
}

/// Requests a read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Query {
    /// The read, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "1")]
    pub read: Bytes,
    #[prost(oneof = "LevelKind", tags = "4, 5, 6, 11")]
    pub level: Option<LevelKind>,
    #[prost(uint64, tag = "7")]
    pub rows_max: u64,
    #[prost(uint64, tag = "8")]
    pub bytes_max: u64,
    /// How long the node may try, in milliseconds.
    #[prost(uint64, tag = "9")]
    pub millis: u64,
    /// The clock and the randomness that a query of a snapshot sees; absent for those of the node.
    #[prost(message, optional, tag = "10")]
    pub stamp: Option<WireStamp>,
    /// How long the query may run, in microseconds; 0 for the node's own limit.
    #[prost(uint64, tag = "12")]
    pub run_micros: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WireStamp {
    /// Nanoseconds since 1970-01-01 UTC.
    #[prost(uint64, tag = "1")]
    pub now: u64,
    #[prost(uint64, tag = "2")]
    pub seed: u64,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(crate) enum LevelKind {
    #[prost(message, tag = "4")]
    Local(Empty),
    #[prost(message, tag = "5")]
    AtLeast(WirePosition),
    #[prost(message, tag = "6")]
    Linearizable(Empty),
    /// Microseconds.
    #[prost(uint64, tag = "11")]
    Bounded(u64),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Empty {}

/// Requests an image; the only item that the client sends.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Backup {
    /// The level that the image must meet, as in [`Query`].
    #[prost(oneof = "LevelKind", tags = "4, 5, 6, 11")]
    pub level: Option<LevelKind>,
    /// How long the node may wait for that level, in milliseconds.
    #[prost(uint64, tag = "9")]
    pub millis: u64,
}

/// Requests the logical hashes of the state at the entry that began a verification.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Verify {
    /// The position of the entry.
    #[prost(message, required, tag = "1")]
    pub position: WirePosition,
    /// How long the node may wait for the hashes, in milliseconds.
    #[prost(uint64, tag = "2")]
    pub millis: u64,
}

/// Answers [`Verify`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Verified {
    #[prost(oneof = "VerifiedKind", tags = "1, 2, 3, 4")]
    pub kind: Option<VerifiedKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum VerifiedKind {
    #[prost(message, tag = "1")]
    Hashes(Hashes),
    /// The hashes are being computed, or the entry is not applied yet.
    #[prost(message, tag = "2")]
    NotYet(Empty),
    /// The node does not know this verification: it has restarted since, received the state as an image, or began a
    /// later verification before this one was finished.
    #[prost(message, tag = "3")]
    Unknown(Empty),
    /// The node gave up the verification.
    #[prost(string, tag = "4")]
    Failed(String),
}

/// Requests the running hash of outcomes after an entry.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Outcomes {
    /// The index of the entry.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// How long the node may wait for the entry, in milliseconds.
    #[prost(uint64, tag = "2")]
    pub millis: u64,
}

/// Answers [`Outcomes`].
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct OutcomesTold {
    /// Absent if the node has not applied the entry in time, or no longer knows the hash.
    #[prost(fixed64, optional, tag = "1")]
    pub hash: Option<u64>,
}

/// The functions and collations of a node, by the names under which they are announced.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Announced {
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
}

/// The hashes of tables.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hashes {
    #[prost(message, repeated, tag = "1")]
    pub tables: Vec<TableHash>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TableHash {
    #[prost(string, tag = "1")]
    pub name: String,
    /// 16 bytes, little-endian.
    #[prost(bytes = "bytes", tag = "2")]
    pub hash: Bytes,
}

/// Answers [`Query`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Answer {
    #[prost(oneof = "AnswerKind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<AnswerKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum AnswerKind {
    /// The rows of the SQL store.
    #[prost(message, tag = "1")]
    Rows(WireRows),
    #[prost(message, tag = "2")]
    Refused(Refusal),
    /// The reply of the store of keys, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "3")]
    Keys(Bytes),
    /// The reply of the store of locks, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "4")]
    Locks(Bytes),
    /// The answer of the store of events, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "5")]
    Events(Bytes),
}

/// Opens a snapshot: the first item of its stream. The following items are [`Query`]s whose level is ignored; each ends
/// the query before it.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct OpenSnapshot {
    /// The level that the snapshot must meet.
    #[prost(oneof = "LevelKind", tags = "4, 5, 6, 11")]
    pub level: Option<LevelKind>,
    /// How long the node may try, in milliseconds.
    #[prost(uint64, tag = "9")]
    pub millis: u64,
}

/// An answer on the stream of a snapshot.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SnapshotItem {
    #[prost(oneof = "SnapshotItemKind", tags = "1, 2, 3, 4")]
    pub kind: Option<SnapshotItemKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum SnapshotItemKind {
    /// Answers [`OpenSnapshot`].
    #[prost(message, tag = "1")]
    Opened(WirePosition),
    /// Ends a query, or answers [`OpenSnapshot`].
    #[prost(message, tag = "2")]
    Refused(Refusal),
    /// A piece of a query's result. There is always a first piece, which has the columns.
    #[prost(message, tag = "3")]
    Rows(WireRows),
    /// Ends a query.
    #[prost(message, tag = "4")]
    End(Empty),
}

/// Rows.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WireRows {
    #[prost(string, repeated, tag = "1")]
    pub columns: Vec<String>,
    /// All values, row after row, as `quorate_model::codec` encodes one row.
    #[prost(bytes = "bytes", tag = "2")]
    pub values: Bytes,
    /// The declared types of the columns; empty for one that has none. None at all if they are not known.
    #[prost(string, repeated, tag = "3")]
    pub decltypes: Vec<String>,
}

/// An [`Error`] on the wire.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Refusal {
    /// One of the kinds in `convert::refusal`.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    #[prost(string, tag = "2")]
    pub text: String,
    /// For kind `FAILED`: an outcome, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "3")]
    pub failure: Bytes,
}

/// Decodes a message.
pub(crate) fn decode<M: Message + Default>(body: Bytes) -> Result<M, CallFailure> {
    M::decode(body).map_err(malformed)
}

/// Encodes a message.
pub(crate) fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// Returns the error for a malformed request.
pub(crate) fn malformed(error: impl std::fmt::Display) -> CallFailure {
    CallFailure::new(FailureKind::Malformed, error.to_string())
}

#[cfg(test)]
mod tests;
