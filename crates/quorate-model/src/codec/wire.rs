//! The messages, with their tags. Never reuse or renumber a tag: logs and sessions on disk hold them.

use bytes::Bytes;
use prost::{Message, Oneof};

/// Reads the level of a [`Proposal`], whatever else a newer version put into it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Level {
    #[prost(uint32, tag = "1")]
    pub level: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Proposal {
    #[prost(uint32, tag = "1")]
    pub level: u32,
    #[prost(message, optional, tag = "2")]
    pub origin: Option<Origin>,
    #[prost(uint64, tag = "3")]
    pub budget: u64,
    #[prost(message, repeated, tag = "4")]
    pub commands: Vec<Command>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Origin {
    #[prost(uint64, tag = "1")]
    pub session: u64,
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
    #[prost(uint64, tag = "3")]
    pub floor: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Command {
    #[prost(oneof = "CommandKind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<CommandKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum CommandKind {
    #[prost(message, tag = "1")]
    Statement(Statement),
    #[prost(message, tag = "2")]
    OpenSession(Empty),
    #[prost(uint64, tag = "3")]
    CloseSession(u64),
    #[prost(message, tag = "4")]
    Vacuum(Empty),
    #[prost(message, tag = "5")]
    Bulk(Bulk),
    #[prost(message, tag = "6")]
    Verify(Empty),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Statement {
    #[prost(string, tag = "1")]
    pub sql: String,
    #[prost(message, repeated, tag = "2")]
    pub params: Vec<Value>,
    #[prost(string, repeated, tag = "3")]
    pub names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Bulk {
    #[prost(string, tag = "1")]
    pub sql: String,
    #[prost(uint32, tag = "2")]
    pub width: u32,
    /// As [`crate::bulk`] has them.
    #[prost(bytes = "bytes", tag = "3")]
    pub rows: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 4")]
    pub kind: Option<ValueKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum ValueKind {
    #[prost(sint64, tag = "1")]
    Integer(i64),
    #[prost(double, tag = "2")]
    Real(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bytes, tag = "4")]
    Blob(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Row {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Outcome {
    #[prost(oneof = "OutcomeKind", tags = "1, 2")]
    pub kind: Option<OutcomeKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OutcomeKind {
    #[prost(message, tag = "1")]
    Reply(Reply),
    #[prost(message, tag = "2")]
    Failure(Failure),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Reply {
    #[prost(message, repeated, tag = "1")]
    pub results: Vec<CommandResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CommandResult {
    #[prost(oneof = "ResultKind", tags = "1, 2, 3")]
    pub kind: Option<ResultKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum ResultKind {
    #[prost(message, tag = "1")]
    Done(Empty),
    #[prost(message, tag = "2")]
    Statement(StatementResult),
    #[prost(uint64, tag = "3")]
    Session(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatementResult {
    #[prost(uint64, tag = "1")]
    pub changes: u64,
    #[prost(sint64, tag = "2")]
    pub last_insert_rowid: i64,
    #[prost(string, repeated, tag = "3")]
    pub columns: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    pub rows: Vec<Row>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Failure {
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    #[prost(sint32, tag = "2")]
    pub sqlite_code: i32,
    #[prost(uint32, optional, tag = "3")]
    pub command: Option<u32>,
    #[prost(string, tag = "4")]
    pub message: String,
    #[prost(uint32, optional, tag = "5")]
    pub row: Option<u32>,
}
