//! The results of writes.

use quorate_model::{CommandResult, Failure, Position, Reply, SqlReply, StatementResult};
use quorate_sql::query::Rows;

use crate::keys::Replies;

/// The result of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// The number of rows inserted, updated or deleted, as SQLite's `changes()` counts them.
    pub changes: u64,
    /// The rowid of the last row that the statement inserted; 0 if it inserted none.
    pub last_insert_rowid: i64,
    /// The position of the write. A read at [`Level::AtLeast`](crate::Level::AtLeast) this position sees the write.
    pub position: Position,
}

/// The result of a statement with `RETURNING`.
#[derive(Clone, Debug, PartialEq)]
pub struct Returned {
    /// The rows.
    pub rows: Rows,
    /// The position of the write.
    pub position: Position,
}

/// The result of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchResult {
    /// The results of the steps, in their order; those of commands on keys and locks are empty.
    pub results: Vec<StatementResult>,
    /// The replies to the commands on keys and locks.
    pub replies: Replies,
    /// The position of the batch.
    pub position: Position,
}

/// The result of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineResult {
    /// The result or the failure of each step, in their order; the results of commands on keys and locks are empty.
    pub results: Vec<Result<StatementResult, Failure>>,
    /// The replies to the commands on keys and locks that succeeded.
    pub replies: Replies,
    /// The position of the pipeline.
    pub position: Position,
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed<T> {
    /// The value that the closure returned.
    pub value: T,
    /// The results of the steps that write, in their order; those of commands on keys and locks are empty.
    pub results: Vec<StatementResult>,
    /// The replies to the commands on keys and locks.
    pub replies: Replies,
    /// The position of the transaction; for a transaction that only read, the position of the state that it read.
    pub position: Position,
}

/// The outcome of a proposal that succeeded.
pub(crate) struct Written {
    pub(crate) position: Position,
    pub(crate) reply: Reply,
}

impl Written {
    fn statements(self) -> impl Iterator<Item = StatementResult> {
        self.reply.results.into_iter().map(statement)
    }
}

/// Converts the result of a command to that of a statement. `VACUUM` and similar commands, and commands on keys and
/// locks, change no row.
pub(crate) fn statement(result: CommandResult) -> StatementResult {
    match result {
        CommandResult::Sql(SqlReply::Statement(result)) => result,
        CommandResult::Sql(SqlReply::Done)
        | CommandResult::Control(_)
        | CommandResult::Keys(_)
        | CommandResult::Locks(_)
        | CommandResult::Events(_)
        | CommandResult::Items(_)
        | CommandResult::Failed(_) => StatementResult::default(),
    }
}

impl From<Written> for PipelineResult {
    fn from(written: Written) -> Self {
        let Written { position, mut reply } = written;
        let replies = Replies::of(&mut reply.results);
        let results = reply.results.into_iter().map(|result| match result {
            CommandResult::Failed(failure) => Err(failure),
            result => Ok(statement(result)),
        });
        Self { results: results.collect(), replies, position }
    }
}

impl From<Written> for Executed {
    fn from(written: Written) -> Self {
        let position = written.position;
        let StatementResult { changes, last_insert_rowid, .. } = written.statements().next().unwrap_or_default();
        Self { changes, last_insert_rowid, position }
    }
}

impl From<Written> for Returned {
    fn from(written: Written) -> Self {
        let position = written.position;
        Self { rows: written.statements().next().unwrap_or_default().into(), position }
    }
}

impl From<Written> for BatchResult {
    fn from(written: Written) -> Self {
        let Written { position, mut reply } = written;
        let replies = Replies::of(&mut reply.results);
        Self { results: reply.results.into_iter().map(statement).collect(), replies, position }
    }
}
