//! The connection from a handle to the node in the same process.

use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_env::{Env, Instant};
use quorate_model::keys::{KeysReply, SpaceCommand};
use quorate_model::{Command, Failure, Outcome, Position, Statement, Topic};
use quorate_sql::query::Rows;
use quorate_sql::readers::RowStream;
use tokio::task::coop;

use super::gateway::{Gateway, KeptSnapshot};
use crate::error::Error;
use crate::level::Level;
use crate::rights::Right;
use crate::snapshot::{Query, State};
use crate::submitter::{Attempt, Limits, ReadAnswer, ReadRequest, Transport};
use crate::transaction::TransactionHost;

/// The connection. A handle may outlive its node, and does not keep it alive.
pub(super) struct Embedded(pub(super) Weak<Gateway>);

impl Transport for Embedded {
    fn check(&self, command: &Command) -> Result<(), Failure> {
        // Without a node the command can't be checked; proposing it then fails.
        self.0.upgrade().map_or(Ok(()), |gateway| gateway.check(command))
    }

    fn check_level(&self, needed: u32) -> Result<(), Failure> {
        self.0.upgrade().map_or(Ok(()), |gateway| gateway.check_level(needed))
    }

    fn note_retry(&self) {
        if let Some(gateway) = self.0.upgrade() {
            gateway.metrics.retries.inc();
        }
    }

    fn propose(&self, proposal: Bytes, _: Instant) -> BoxFuture<'_, Result<(Position, Outcome), Attempt>> {
        async move {
            let gateway = self.0.upgrade().ok_or(Attempt::Refused(Error::Closed))?;
            gateway.propose(proposal).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, request: &'a ReadRequest, deadline: Instant) -> BoxFuture<'a, Result<ReadAnswer, Error>> {
        async move { self.0.upgrade().ok_or(Error::Closed)?.read(request, deadline).await }.boxed()
    }

    fn read_keys<'a>(
        &'a self,
        commands: &'a [SpaceCommand],
        level: Level,
        bytes_max: usize,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<Result<KeysReply, Failure>>, Error>> {
        let gateway = self.0.upgrade().ok_or(Error::Closed);
        async move { gateway?.read_all_keys(commands, level, bytes_max, deadline).await }.boxed()
    }

    fn register(&self, topic: Topic) -> BoxFuture<'_, Result<BoxFuture<'static, ()>, Error>> {
        async move {
            let gateway = self.0.upgrade().ok_or(Error::Closed)?;
            let waiter = gateway.store.waits().register(topic);
            let mut waiter = waiter.map_err(|error| Error::Overloaded(error.into()))?;
            Ok(async move {
                waiter.woken().await;
            }
            .boxed())
        }
        .boxed()
    }

    fn archived(&self, position: Option<Position>, deadline: Instant) -> BoxFuture<'_, Result<u64, Error>> {
        async move { self.0.upgrade().ok_or(Error::Closed)?.archived(position, Right::Write, deadline).await }.boxed()
    }

    fn begin(&self, lasting: Duration, deadline: Instant) -> BoxFuture<'_, Result<Box<dyn TransactionHost>, Error>> {
        async move { self.0.upgrade().ok_or(Error::Closed)?.begin(lasting, deadline).await }.boxed()
    }

    fn snapshot(&self, level: Level, deadline: Instant) -> BoxFuture<'_, Result<Box<dyn State>, Error>> {
        async move {
            let gateway = self.0.upgrade().ok_or(Error::Closed)?;
            let kept = gateway.snapshot(level, deadline).await?;
            let (env, query_timeout) = (gateway.env.clone(), gateway.query_timeout());
            Ok(Box::new(Local { kept, env, query_timeout, rows: None }) as Box<dyn State>)
        }
        .boxed()
    }
}

/// A snapshot of the node in the same process.
struct Local {
    kept: KeptSnapshot,
    env: Env,
    query_timeout: Duration,
    /// The result that is being streamed.
    rows: Option<RowStream>,
}

impl State for Local {
    fn position(&self) -> Position {
        self.kept.position
    }

    fn query<'a>(&'a mut self, query: &'a Query, deadline: Instant) -> BoxFuture<'a, Result<Rows, Error>> {
        async move {
            // Short queries never wait, so a loop of them would otherwise starve the other tasks.
            coop::consume_budget().await;
            let left = deadline.saturating_duration_since(Instant::now());
            let limits = query.limits.within(left).within(self.query_timeout).for_read();
            Ok(self.kept.snapshot.query_under(&self.env, query.stamp, &query.statement, &limits).await?)
        }
        .boxed()
    }

    fn begin<'a>(
        &'a mut self,
        statement: Statement,
        piece_max: Duration,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Rows, Error>> {
        let limits = Limits::NONE.within(piece_max).within(self.query_timeout).for_read();
        self.rows = Some(self.kept.snapshot.stream(statement, limits));
        let columns = |first: Option<Rows>| first.ok_or(Error::Closed);
        async move { self.piece(deadline).await.and_then(columns) }.boxed()
    }

    fn piece(&mut self, _: Instant) -> BoxFuture<'_, Result<Option<Rows>, Error>> {
        async move {
            let Some(rows) = &mut self.rows else { return Ok(None) };
            Ok(rows.next(&self.env).await?)
        }
        .boxed()
    }
}
