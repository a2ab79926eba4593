//! What writes return.

use quorate_model::{CommandResult, Failure, Position, Reply, SqlReply, StatementResult};
use quorate_sql::query::Rows;

/// What a statement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Rows inserted, updated or deleted, as SQLite's `changes()` counts.
    pub changes: u64,
    /// The rowid of the last row that the statement inserted; 0 if none.
    pub last_insert_rowid: i64,
    /// Where the write stands in the history: read at [`Level::AtLeast`](crate::Level::AtLeast) this to see it.
    pub position: Position,
}

/// What a statement with `RETURNING` returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Returned {
    /// The rows.
    pub rows: Rows,
    /// Where the write stands in the history.
    pub position: Position,
}

/// What the statements of a batch did, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchResult {
    /// One for each statement.
    pub results: Vec<StatementResult>,
    /// Where the batch stands in the history.
    pub position: Position,
}

/// What each statement of a pipeline came to, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineResult {
    /// One for each statement.
    pub results: Vec<Result<StatementResult, Failure>>,
    /// Where the pipeline stands in the history.
    pub position: Position,
}

/// What a transaction came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed<T> {
    /// What its closure returned.
    pub value: T,
    /// One for each statement that wrote, in their order.
    pub results: Vec<StatementResult>,
    /// Where it stands in the history; of one that only read, where the state stands that it read.
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

/// What a command did, as a statement: VACUUM and the like changed no row.
pub(crate) fn statement(result: CommandResult) -> StatementResult {
    match result {
        CommandResult::Sql(SqlReply::Statement(result)) => result,
        CommandResult::Sql(SqlReply::Done)
        | CommandResult::Control(_)
        | CommandResult::Items(_)
        | CommandResult::Failed(_) => StatementResult::default(),
    }
}

impl From<Written> for PipelineResult {
    fn from(written: Written) -> Self {
        let Written { position, reply } = written;
        let results = reply.results.into_iter().map(|result| match result {
            CommandResult::Failed(failure) => Err(failure),
            result => Ok(statement(result)),
        });
        Self { results: results.collect(), position }
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
        let position = written.position;
        Self { results: written.statements().collect(), position }
    }
}
