//! A snapshot that a remote node keeps, accessed over a stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quorate_env::{Cause, Instant, timeout_at};
use quorate_model::{Position, Statement};
use quorate_sql::query::Rows;
use quorate_wire::{CallError, StreamError, StreamReceiver, StreamSender};

use super::network::{ROUNDING, no_answer};
use super::nodes::{Nodes, unreachable};
use crate::error::Error;
use crate::level::Level;
use crate::protocol::{self, OpenSnapshot, SnapshotItem, method};
use crate::snapshot::{Query, State};
use crate::submitter::{Attempt, Limits};

/// The most time that is reserved for the error of a node that can't open a snapshot.
const WAY_MAX: Duration = Duration::from_millis(50);

/// The stream to the node that keeps the snapshot.
pub(super) struct Stream {
    sender: StreamSender,
    receiver: StreamReceiver,
    addr: Arc<str>,
    position: Position,
    /// The number of queries whose end has not arrived.
    open: usize,
}

impl Stream {
    /// Makes one attempt to open a stream.
    pub(super) async fn open(nodes: &Nodes, level: Level, deadline: Instant) -> Result<Self, Error> {
        let reached = nodes.reach().await.map_err(unreachable)?;
        let broken = |error| failed(error, &reached.addr);
        let (sender, receiver) = reached.client.open_stream(method::SNAPSHOT).map_err(broken)?;
        let addr = Arc::clone(&reached.addr);
        let mut stream = Self { sender, receiver, addr, position: Position::default(), open: 0 };
        let opened = stream.begin_at(level, deadline).await;
        match &opened {
            Err(Error::Unavailable(_) | Error::TimedOut(_)) => nodes.failed(&reached.addr),
            _ => nodes.answered(&reached.addr),
        }
        opened.map(|position| Self { position, ..stream })
    }

    async fn begin_at(&mut self, level: Level, deadline: Instant) -> Result<Position, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waits = left.saturating_sub((left / 10).min(WAY_MAX));
        self.send(protocol::encode(&OpenSnapshot::new(level, millis(waits))), deadline).await?;
        self.receive(deadline).await?.opened()
    }

    /// Begins a query, which ends the queries before it, and returns its first piece.
    async fn ask(&mut self, query: Query, piece_max: Duration, deadline: Instant) -> Result<Rows, Error> {
        query.statement.check_limits()?;
        self.send(protocol::encode(&protocol::Query::of_state(query, millis(piece_max))), deadline).await?;
        self.open += 1;
        while self.open > 1 {
            // Skips the rest of the earlier queries, including their errors, for which no caller waits.
            let item = self.receive(deadline).await?;
            if !matches!(item.piece(), Ok(Some(_))) {
                self.open -= 1;
            }
        }
        let nothing = || Error::Unavailable("the node sent no columns".into());
        self.next(deadline).await?.ok_or_else(nothing)
    }

    /// Returns the next piece of the query.
    async fn next(&mut self, deadline: Instant) -> Result<Option<Rows>, Error> {
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
        let item =
            item.ok_or_else(|| Error::Unavailable(format!("{}: the node ended the snapshot", self.addr).into()))?;
        protocol::decode(item).map_err(|error| Error::Forbidden(error.into()))
    }

    fn silent(&self) -> Error {
        Error::TimedOut(no_answer(&self.addr).into())
    }
}

impl State for Stream {
    fn position(&self) -> Position {
        self.position
    }

    fn query<'a>(&'a mut self, query: &'a Query, deadline: Instant) -> BoxFuture<'a, Result<Rows, Error>> {
        async move {
            let left = deadline.saturating_duration_since(Instant::now());
            let first = self.ask(query.clone(), left, deadline).await?;
            let (head, mut values) = (first.with_values(Vec::new()), first.into_values());
            while let Some(rows) = self.next(deadline).await? {
                values.extend(rows.into_values());
            }
            Ok(head.with_values(values))
        }
        .boxed()
    }

    fn begin<'a>(
        &'a mut self,
        statement: Statement,
        piece_max: Duration,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Rows, Error>> {
        self.ask(Query { statement, limits: Limits::NONE, stamp: None }, piece_max, deadline).boxed()
    }

    fn piece(&mut self, deadline: Instant) -> BoxFuture<'_, Result<Option<Rows>, Error>> {
        self.next(deadline).boxed()
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn failed(error: StreamError, addr: &str) -> Error {
    match error {
        StreamError::Failed(failure) => match Attempt::of_call(CallError::Failed(failure), addr) {
            Attempt::Refused(error) => error,
            Attempt::NotDone(why) => why.into(),
            Attempt::InDoubt(text) => Error::Unavailable(text),
        },
        StreamError::TooMany => Error::Overloaded(error.into()),
        StreamError::Broken | StreamError::Stopped | StreamError::TooLarge { .. } => {
            Error::Unavailable(Cause::context(format!("{addr}: {error}"), error))
        }
    }
}
