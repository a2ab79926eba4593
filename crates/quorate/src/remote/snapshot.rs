//! One state of a cluster elsewhere, read as often as one likes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Instant, timeout_at};
use quorate_model::{Position, Statement};
use quorate_sql::query::Rows;
use quorate_wire::{CallError, StreamError, StreamReceiver, StreamSender};

use super::network::ROUNDING;
use super::nodes::{Nodes, unreachable};
use crate::client::{Attempt, Limits, Read};
use crate::error::Error;
use crate::level::Level;
use crate::params::{IntoParams, IntoStatement};
use crate::protocol::{self, OpenSnapshot, Query, SnapshotItem, method};
use crate::runtime::Runtime;

/// One state of the database, as one node keeps it for many reads: at most ten minutes, and less where many writes make
/// it costly to keep; then reads fail with [`Error::SnapshotTooOld`]. Results come in pieces, so they may have any
/// size.
///
/// ```no_run
/// # async fn f(sql: quorate::RemoteSql) -> Result<(), quorate::Error> {
/// use std::time::Duration;
///
/// use quorate::Level;
///
/// let mut snapshot = sql.snapshot(Level::Linearizable, Duration::from_secs(60)).await?;
/// let tables: i64 = snapshot.query("SELECT count(*) FROM sqlite_schema", ()).await?.one()?;
/// let mut users = snapshot.stream("SELECT name FROM users", ()).await?;
/// while let Some(rows) = users.next().await? {
///     println!("{rows}");
/// }
/// # Ok(())
/// # }
/// ```
pub struct Snapshot {
    stream: Stream,
    runtime: Runtime,
    position: Position,
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
    pub(super) fn new((stream, position): (Stream, Position), runtime: Runtime, limit: Duration) -> Self {
        Self { stream, runtime, position, limit }
    }

    /// Where the state stands in the history.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Runs a query and returns its rows, all in memory.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::stream`].
    pub async fn query(&mut self, sql: impl Into<String>, params: impl IntoParams) -> Result<Rows, Error> {
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
    pub async fn stream(&mut self, sql: impl Into<String>, params: impl IntoParams) -> Result<RowStream<'_>, Error> {
        let deadline = Instant::now() + self.limit;
        let statement = (sql, params).into_statement().into_query()?;
        let first = self.runtime.run(self.stream.begin(statement, self.limit, deadline)).await;
        let first = first.unwrap_or(Err(Error::Closed))?;
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
    /// [`Error::SnapshotTooOld`] where they were taken too slowly; [`Error::Unavailable`] where the node went away.
    pub async fn next(&mut self) -> Result<Option<Rows>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.has_ended {
            return Ok(None);
        }
        let snapshot = &mut *self.snapshot;
        let deadline = Instant::now() + snapshot.limit;
        let piece = snapshot.runtime.run(snapshot.stream.piece(deadline)).await.unwrap_or(Err(Error::Closed));
        self.has_ended = !matches!(piece, Ok(Some(_)));
        piece
    }
}

/// The stream to the node that keeps the state.
pub(super) struct Stream {
    sender: StreamSender,
    receiver: StreamReceiver,
    addr: Arc<str>,
    /// Queries whose end has not come.
    open: usize,
}

impl Stream {
    /// Opens one, once.
    pub(super) async fn open(nodes: &Nodes, level: Level, deadline: Instant) -> Result<(Self, Position), Error> {
        let reached = nodes.reach().await.map_err(|error| unreachable(&error))?;
        let broken = |error| failed(error, &reached.addr);
        let (sender, receiver) = reached.client.open_stream(method::SNAPSHOT).map_err(broken)?;
        let mut stream = Self { sender, receiver, addr: Arc::clone(&reached.addr), open: 0 };
        let opened = stream.begin_at(level, deadline).await;
        match &opened {
            Err(Error::Unavailable(_) | Error::TimedOut(_)) => nodes.failed(&reached.addr),
            _ => nodes.answered(&reached.addr),
        }
        opened.map(|position| (stream, position))
    }

    async fn begin_at(&mut self, level: Level, deadline: Instant) -> Result<Position, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.send(protocol::encode(&OpenSnapshot::new(level, millis(left))), deadline).await?;
        self.receive(deadline).await?.opened()
    }

    /// Begins a query, which ends those before, and gives its first piece.
    async fn begin(&mut self, statement: Statement, piece_max: Duration, deadline: Instant) -> Result<Rows, Error> {
        let limits = Limits { rows: usize::MAX, bytes: usize::MAX };
        let read = Read { statement, level: Level::Local, limits };
        self.send(protocol::encode(&Query::new(read, millis(piece_max))), deadline).await?;
        self.open += 1;
        while self.open > 1 {
            // What is left of the queries before, whose errors nobody waits for any more.
            let item = self.receive(deadline).await?;
            if !matches!(item.piece(), Ok(Some(_))) {
                self.open -= 1;
            }
        }
        let nothing = || Error::Unavailable("the node sent no columns".to_owned());
        self.piece(deadline).await?.ok_or_else(nothing)
    }

    /// The next piece of the query.
    async fn piece(&mut self, deadline: Instant) -> Result<Option<Rows>, Error> {
        let piece = self.receive(deadline + ROUNDING).await?.piece();
        if !matches!(piece, Ok(Some(_))) {
            self.open = self.open.saturating_sub(1);
        }
        piece
    }

    async fn send(&mut self, item: Bytes, deadline: Instant) -> Result<(), Error> {
        let sent = timeout_at(deadline, self.sender.send(item)).await;
        sent.map_err(|_| self.silent())?.map_err(|error| failed(error, &self.addr))
    }

    async fn receive(&mut self, deadline: Instant) -> Result<SnapshotItem, Error> {
        let received = timeout_at(deadline, self.receiver.recv()).await.map_err(|_| self.silent())?;
        let item = received.map_err(|error| failed(error, &self.addr))?;
        let item = item.ok_or_else(|| Error::Unavailable(format!("{}: the node ended the snapshot", self.addr)))?;
        protocol::decode(item).map_err(|error| Error::Forbidden(error.to_string()))
    }

    fn silent(&self) -> Error {
        Error::TimedOut(format!("{}: there was no answer in time", self.addr))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn failed(error: StreamError, addr: &str) -> Error {
    match error {
        StreamError::Failed(failure) => match Attempt::of_call(CallError::Failed(failure), addr) {
            Attempt::Refused(error) => error,
            Attempt::NotDone(why) => why.into(),
            Attempt::InDoubt(text) => Error::Unavailable(text),
        },
        StreamError::TooMany => Error::Overloaded(error.to_string()),
        StreamError::Broken | StreamError::Stopped | StreamError::TooLarge { .. } => {
            Error::Unavailable(format!("{addr}: {error}"))
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("position", &self.position).finish_non_exhaustive()
    }
}

impl fmt::Debug for RowStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStream").field("columns", &self.columns).finish_non_exhaustive()
    }
}
