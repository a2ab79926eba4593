//! Snapshots: one state of a database for many reads, kept by this node or by a remote node.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quorate_env::Instant;
use quorate_model::{Position, Stamp, Statement, Value};
use quorate_sql::query::Rows;

use crate::error::Error;
use crate::params::{IntoParams, IntoStatement};
use crate::runtime::Runtime;
use crate::submitter::Limits;

/// A state that a node keeps. Beginning a query ends the query before it, if that is still running.
pub(crate) trait State: Send {
    /// Returns the position of the state.
    fn position(&self) -> Position;

    /// Runs a query to its end.
    fn query<'a>(&'a mut self, query: &'a Query, deadline: Instant) -> BoxFuture<'a, Result<Rows, Error>>;

    /// Begins a query without limits on its result, and returns the first piece. Each piece may take at most
    /// `piece_max`.
    fn begin<'a>(
        &'a mut self,
        query: Statement,
        piece_max: Duration,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Rows, Error>>;

    /// Returns the next piece of that query; `None` after the last.
    fn piece(&mut self, deadline: Instant) -> BoxFuture<'_, Result<Option<Rows>, Error>>;
}

/// A query of one state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Query {
    pub(crate) statement: Statement,
    pub(crate) limits: Limits,
    /// The clock and the randomness that it uses; `None` for those of the node.
    pub(crate) stamp: Option<Stamp>,
}

/// A snapshot of the database: one state that a node keeps for many reads. The node keeps it for at most ten minutes,
/// and for less time if many writes make it costly to keep or if one of its queries runs out of memory or disk space.
/// After that, reads fail with [`Error::SnapshotEnded`].
///
/// Results may have any size, because [`Snapshot::stream`] returns them in pieces. The limits of
/// [`Sql::with_limits`](crate::Sql::with_limits) and [`Sql::with_query_timeout`](crate::Sql::with_query_timeout) do not
/// apply; each piece is limited by the deadline of the handle and the node's `sql.query_timeout`.
///
/// ```no_run
/// # async fn f(sql: quorate::Sql) -> Result<(), quorate::Error> {
/// use quorate::Level;
///
/// let mut snapshot = sql.at(Level::Linearizable).snapshot().await?;
/// let tables: i64 = snapshot.query("SELECT count(*) FROM sqlite_schema", ()).await?.one()?;
/// let mut users = snapshot.stream("SELECT name FROM users", ()).await?;
/// while let Some(rows) = users.next().await? {
///     println!("{rows}");
/// }
/// # Ok(())
/// # }
/// ```
pub struct Snapshot {
    state: Box<dyn State>,
    runtime: Runtime,
    limit: Duration,
}

/// The rows of a query of a [`Snapshot`], in pieces. If it is dropped before the last piece, the query ends when the
/// next query begins or when the snapshot is dropped.
pub struct RowStream<'a> {
    snapshot: &'a mut Snapshot,
    /// No rows, with the columns of all pieces.
    head: Rows,
    first: Option<Rows>,
    has_ended: bool,
}

impl Snapshot {
    pub(crate) fn new(state: Box<dyn State>, runtime: Runtime, limit: Duration) -> Self {
        Self { state, runtime, limit }
    }

    /// Returns the position of the state.
    pub fn position(&self) -> Position {
        self.state.position()
    }

    /// Runs a query and returns all of its rows, in memory.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Snapshot::stream`] and [`RowStream::next`].
    pub async fn query(&mut self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Rows, Error> {
        let mut stream = self.stream(sql, params).await?;
        let mut values = Vec::new();
        while let Some(rows) = stream.next().await? {
            values.extend(rows.into_values());
        }
        Ok(stream.rows(values))
    }

    /// Runs a query and returns a stream of its rows. Returns when the first piece has arrived.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Failed`] if the statement fails or writes, and [`Error::TimedOut`] if a piece takes too long.
    /// The snapshot can still be used after these two errors, but not after any other.
    pub async fn stream(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        params: impl IntoParams,
    ) -> Result<RowStream<'_>, Error> {
        let statement = (sql, params).into_statement().into_query()?;
        let first = self.runtime.run(async {
            let deadline = Instant::now() + self.limit;
            self.state.begin(statement, self.limit, deadline).await
        });
        let first = first.await.unwrap_or(Err(Error::Closed))?;
        let head = first.with_values(Vec::new());
        Ok(RowStream { snapshot: self, head, first: Some(first), has_ended: false })
    }
}

impl RowStream<'_> {
    /// Returns the names of the columns.
    pub fn columns(&self) -> &Arc<[String]> {
        self.head.columns()
    }

    /// Returns rows of these values with the columns of the result.
    pub fn rows(&self, values: Vec<Value>) -> Rows {
        self.head.with_values(values)
    }

    /// Returns the next piece of the result; `None` after the last.
    ///
    /// # Errors
    ///
    /// Returns [`Error::SnapshotEnded`] if the snapshot was kept for too long, [`Error::TimedOut`] if the piece takes
    /// too long, and [`Error::Unavailable`] if the connection to the node is lost.
    pub async fn next(&mut self) -> Result<Option<Rows>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.has_ended {
            return Ok(None);
        }
        let Snapshot { state, runtime, limit } = &mut *self.snapshot;
        let piece = runtime.run(async { state.piece(Instant::now() + *limit).await });
        let piece = piece.await.unwrap_or(Err(Error::Closed));
        self.has_ended = !matches!(piece, Ok(Some(_)));
        piece
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("position", &self.position()).finish_non_exhaustive()
    }
}

impl fmt::Debug for RowStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStream").field("columns", self.columns()).finish_non_exhaustive()
    }
}
