//! One state of a database, read as often as one likes: this node's, or that of a node elsewhere.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quorate_env::Instant;
use quorate_model::{Position, Stamp, Statement};
use quorate_sql::query::Rows;

use crate::error::Error;
use crate::params::{IntoParams, IntoStatement};
use crate::runtime::Runtime;
use crate::submitter::Limits;

/// How a node keeps a state. A query begins when the one before has ended, or ends it.
pub(crate) trait State: Send {
    /// Where it stands in the history.
    fn position(&self) -> Position;

    /// Runs a query to its end.
    fn query<'a>(&'a mut self, query: &'a Query, deadline: Instant) -> BoxFuture<'a, Result<Rows, Error>>;

    /// Begins a query without limits on its result, of which no piece may take longer, and gives the first.
    fn begin<'a>(
        &'a mut self,
        query: Statement,
        piece_max: Duration,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Rows, Error>>;

    /// The next piece of that query; `None` after the last.
    fn piece(&mut self, deadline: Instant) -> BoxFuture<'_, Result<Option<Rows>, Error>>;
}

/// A query of one state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Query {
    pub(crate) statement: Statement,
    pub(crate) limits: Limits,
    /// The clock and the randomness that it sees; none for those of the node.
    pub(crate) stamp: Option<Stamp>,
}

/// One state of the database, as one node keeps it for many reads: at most ten minutes, and less where many writes make
/// it costly to keep, or where a query in it runs out of memory or disk. Then reads fail with [`Error::SnapshotEnded`].
/// Results come in pieces, so they may have any size.
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

/// The rows of a query, piece by piece. Dropped early, the query ends with the next one, or with the snapshot.
pub struct RowStream<'a> {
    snapshot: &'a mut Snapshot,
    columns: Arc<[String]>,
    first: Option<Rows>,
    has_ended: bool,
}

impl Snapshot {
    pub(crate) fn new(state: Box<dyn State>, runtime: Runtime, limit: Duration) -> Self {
        Self { state, runtime, limit }
    }

    /// Where the state stands in the history.
    pub fn position(&self) -> Position {
        self.state.position()
    }

    /// Runs a query and returns its rows, all in memory.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::stream`].
    pub async fn query(&mut self, sql: impl Into<Cow<'static, str>>, params: impl IntoParams) -> Result<Rows, Error> {
        let mut stream = self.stream(sql, params).await?;
        let mut values = Vec::new();
        while let Some(rows) = stream.next().await? {
            values.extend(rows.into_values());
        }
        Ok(Rows::new(Arc::clone(&stream.columns), values))
    }

    /// Runs a query whose rows are taken piece by piece. Returns with the first piece.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a statement that fails, or writes; [`Error::TimedOut`] for a piece that takes too long.
    /// The snapshot can be read on after these, not after any other.
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
        let columns = Arc::clone(first.columns());
        Ok(RowStream { snapshot: self, columns, first: Some(first), has_ended: false })
    }
}

impl RowStream<'_> {
    /// The names of the columns.
    pub fn columns(&self) -> &Arc<[String]> {
        &self.columns
    }

    /// The next rows; `None` after the last.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotEnded`] where they were taken too slowly; [`Error::Unavailable`] where the node went away.
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
        f.debug_struct("RowStream").field("columns", &self.columns).finish_non_exhaustive()
    }
}
