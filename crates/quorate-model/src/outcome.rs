//! What a proposal produced.

use smallvec::SmallVec;

use crate::{Failure, SessionId, Value};

/// The result of applying one entry: the same on every node, but for the texts of failures.
pub type Outcome = Result<Reply, Failure>;

/// The results of the commands of an entry, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// One for each command.
    pub results: Results,
}

/// The results of an entry's commands. Nearly always there is one, and then it needs no memory of its own, which one
/// thread would take and another give back.
pub type Results = SmallVec<[CommandResult; 1]>;

/// The result of one command.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandResult {
    /// Done; there is nothing to tell.
    Done,
    /// Of a statement.
    Statement(StatementResult),
    /// The session that was opened.
    Session(SessionId),
}

/// The values of a row, in the order of its columns.
pub type Row = Vec<Value>;

/// What a statement did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatementResult {
    /// Rows inserted, updated or deleted, as SQLite's `changes()` counts.
    pub changes: u64,
    /// The rowid of the last row that this statement inserted, as `last_insert_rowid()` tells; 0 if none.
    pub last_insert_rowid: i64,
    /// Names of the returned columns.
    pub columns: Vec<String>,
    /// Returned rows.
    pub rows: Vec<Row>,
}
