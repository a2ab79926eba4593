//! What clients ask of nodes, and nodes of each other on their behalf: the messages, with their tags
//! (`docs/wire-format.md`, "Client methods"). Never reuse or renumber one.

use bytes::Bytes;
use prost::{Message, Oneof};
use quorate_wire::{CallFailure, FailureKind};

pub(crate) mod admin;
mod convert;
mod status;
pub(crate) mod transaction;

pub(crate) use status::StatusReply;

/// Numbers of the methods.
pub(crate) mod method {
    /// Proposes.
    pub(crate) const EXECUTE: u16 = 64;
    /// Reads.
    pub(crate) const QUERY: u16 = 65;
    /// Tells how the node and its cluster stand.
    pub(crate) const STATUS: u16 = 66;
    /// Sends an image of the database, as a stream.
    pub(crate) const BACKUP: u16 = 67;
    /// Tells the logical hashes that an entry asked for.
    pub(crate) const VERIFY: u16 = 68;
    /// Tells the running hash of outcomes behind an entry.
    pub(crate) const OUTCOMES: u16 = 69;
    /// Permits a node to become a member, and tells how far that is.
    pub(crate) const ADMIT: u16 = 70;
    /// Removes a member.
    pub(crate) const REMOVE: u16 = 71;
    /// Hands leadership over.
    pub(crate) const TRANSFER: u16 = 72;
    /// Tells the node's time, version and timing.
    pub(crate) const PROBE: u16 = 73;
    /// Announces functions and collations.
    pub(crate) const EXTENSIONS: u16 = 74;
    /// Has the leader reject an entry.
    pub(crate) const REJECT_ENTRY: u16 = 75;
    /// A stream: reads one state as often as asked, in pieces.
    pub(crate) const SNAPSHOT: u16 = 80;
    /// A stream: runs the statements of an interactive transaction, and commits it.
    pub(crate) const INTERACTIVE: u16 = 81;
}

/// Asks to propose.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Execute {
    /// As `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "1")]
    pub proposal: Bytes,
}

/// Answers [`Execute`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Executed {
    #[prost(oneof = "ExecutedKind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<ExecutedKind>,
    /// Where to send the next proposal, if not to the node that answers.
    #[prost(string, tag = "6")]
    pub leader: String,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ExecutedKind {
    #[prost(message, tag = "1")]
    Written(Written),
    /// Nothing was proposed: too much is waiting.
    #[prost(string, tag = "2")]
    Overloaded(String),
    /// Nothing was proposed: no leader is known, or it can't be reached.
    #[prost(string, tag = "3")]
    NoLeader(String),
    /// It may have been proposed.
    #[prost(string, tag = "4")]
    InDoubt(String),
    /// Nothing was proposed, nor would it be elsewhere.
    #[prost(message, tag = "5")]
    Refused(Refusal),
}

/// A proposal that was applied.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Written {
    #[prost(message, required, tag = "1")]
    pub position: WirePosition,
    /// As `quorate_model::codec` encodes it.
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

/// Asks to read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Query {
    /// As `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "1")]
    pub read: Bytes,
    #[prost(oneof = "LevelKind", tags = "4, 5, 6, 11")]
    pub level: Option<LevelKind>,
    #[prost(uint64, tag = "7")]
    pub rows_max: u64,
    #[prost(uint64, tag = "8")]
    pub bytes_max: u64,
    /// How long the node may try.
    #[prost(uint64, tag = "9")]
    pub millis: u64,
    /// The clock and the randomness that it sees, of a snapshot's query; none for those of the node.
    #[prost(message, optional, tag = "10")]
    pub stamp: Option<WireStamp>,
    /// Microseconds that it may run at most; 0 for as long as the node lets it.
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

/// Asks for an image: the first and only item that the asking end sends.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Backup {
    /// What the image must hold, as in [`Query`].
    #[prost(oneof = "LevelKind", tags = "4, 5, 6, 11")]
    pub level: Option<LevelKind>,
    /// How long the node may wait for that.
    #[prost(uint64, tag = "9")]
    pub millis: u64,
}

/// Asks for the logical hashes of the state right behind an entry that asked for a verification.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Verify {
    /// The entry's.
    #[prost(message, required, tag = "1")]
    pub position: WirePosition,
    /// How long the node may wait for them.
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
    /// They are still being computed, or the entry is not applied yet.
    #[prost(message, tag = "2")]
    NotYet(Empty),
    /// The node knows of no such verification: it has restarted since, got the state as an image, or was asked for a
    /// later one before this was done.
    #[prost(message, tag = "3")]
    Unknown(Empty),
    /// The node gave it up.
    #[prost(string, tag = "4")]
    Failed(String),
}

/// Asks for the running hash of outcomes behind an entry.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Outcomes {
    /// The entry's index.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// How long the node may wait for the entry.
    #[prost(uint64, tag = "2")]
    pub millis: u64,
}

/// Answers [`Outcomes`].
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct OutcomesTold {
    /// None where the node does not know it, or no more.
    #[prost(fixed64, optional, tag = "1")]
    pub hash: Option<u64>,
}

/// The functions and collations of a node, by the names under which they are announced.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Announced {
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
}

/// Hashes by table.
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
    #[prost(oneof = "AnswerKind", tags = "1, 2")]
    pub kind: Option<AnswerKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum AnswerKind {
    /// Of the SQL store.
    #[prost(message, tag = "1")]
    Rows(WireRows),
    #[prost(message, tag = "2")]
    Refused(Refusal),
}

/// Opens a snapshot: the first item of its stream. The items after it are [`Query`]s whose level says nothing; each
/// ends the one before.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct OpenSnapshot {
    /// What the snapshot must hold.
    #[prost(oneof = "LevelKind", tags = "4, 5, 6, 11")]
    pub level: Option<LevelKind>,
    /// How long the node may try.
    #[prost(uint64, tag = "9")]
    pub millis: u64,
}

/// An item that answers on the stream of a snapshot.
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
    /// A piece of a query's result. The first always comes.
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
}

/// An [`Error`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Refusal {
    /// `convert::refusal` has the kinds.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    #[prost(string, tag = "2")]
    pub text: String,
    /// Of kind `FAILED`: an outcome, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "3")]
    pub failure: Bytes,
}

/// Decodes a message of a client or a node.
pub(crate) fn decode<M: Message + Default>(body: Bytes) -> Result<M, CallFailure> {
    M::decode(body).map_err(malformed)
}

/// Encodes a message.
pub(crate) fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// What the caller did not say well.
pub(crate) fn malformed(error: impl std::fmt::Display) -> CallFailure {
    CallFailure::new(FailureKind::Malformed, error.to_string())
}

#[cfg(test)]
mod tests;
