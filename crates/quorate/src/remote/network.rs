//! The connection of a handle to a cluster over the network.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, select};
use quorate_env::{Instant, sleep};
use quorate_model::{Command, Failure, FailureKind, GroupId, Outcome, Position, Topic};
use quorate_sql::validate::text::check_single;
use quorate_wire::CallError;

use super::Alive;
use super::nodes::{Nodes, Reached, unreachable};
use super::snapshot::Stream;
use super::transaction;
use super::waits::Waits;
use crate::error::Error;
use crate::level::Level;
use crate::protocol::archived::{ArchivedAsk, ArchivedTold};
use crate::protocol::{self, Answer, Execute, Executed, Query, method};
use crate::snapshot::State;
use crate::submitter::{Attempt, NotDone, ReadAnswer, ReadRequest, Transport};
use crate::transaction::TransactionHost;

/// Deadlines are sent in whole milliseconds, so a node may give up a read this much before its caller does.
pub(super) const ROUNDING: Duration = Duration::from_millis(2);

/// How often a call that waits for its reply asks the other nodes whether another node leads.
const DOUBT_EVERY: Duration = Duration::from_millis(700);

/// The connection; see the module. The client's runtime ends with the last of these.
pub(super) struct Network {
    nodes: Arc<Nodes>,
    waits: Arc<Waits>,
    _alive: Arc<Alive>,
}

impl Network {
    pub(super) fn new(nodes: Arc<Nodes>, alive: Arc<Alive>, waits: Arc<Waits>) -> Self {
        Self { nodes, waits, _alive: alive }
    }

    /// Calls a node, and waits for its reply as long as the node may be the leader. A leader that was cut off or is
    /// suspended does not report that it no longer leads.
    async fn call(&self, reached: &Reached, method: u16, body: Bytes, deadline: Instant) -> Result<Bytes, CallError> {
        let call = pin!(reached.client.call(method, body, deadline));
        let reply = match select(call, pin!(self.doubt(&reached.addr))).await {
            Either::Left((reply, _)) => reply,
            Either::Right(_) => Err(CallError::Broken),
        };
        match &reply {
            Ok(_) => self.nodes.answered(&reached.addr),
            Err(CallError::Failed(failure)) if !failure.is_retryable() => self.nodes.answered(&reached.addr),
            Err(_) => self.nodes.failed(&reached.addr),
        }
        reply
    }

    /// Returns when another node leads.
    async fn doubt(&self, addr: &Arc<str>) {
        loop {
            sleep(DOUBT_EVERY).await;
            if self.nodes.leads_elsewhere(addr).await {
                return;
            }
        }
    }

    async fn propose_once(&self, proposal: Bytes, deadline: Instant) -> Result<(Position, Outcome), Attempt> {
        let reached = self.nodes.reach().await.map_err(|error| match unreachable(error) {
            Error::Unavailable(text) => Attempt::NotDone(NotDone::NoLeader(text)),
            refused => Attempt::Refused(refused),
        })?;
        let body = protocol::encode(&Execute { proposal });
        let reply = self.call(&reached, method::EXECUTE, body, deadline).await;
        let reply = reply.map_err(|error| Attempt::of_call(error, &reached.addr))?;
        let executed: Executed = protocol::decode(reply).map_err(|error| Attempt::InDoubt(error.into()))?;
        self.nodes.redirect(&executed.leader);
        executed.result()
    }

    async fn archived_once(&self, position: Option<Position>, deadline: Instant) -> Result<u64, Error> {
        let reached = self.nodes.reach().await.map_err(unreachable)?;
        let ask = ArchivedAsk::new(position, deadline.saturating_duration_since(Instant::now()));
        let reply = self.call(&reached, method::ARCHIVED, protocol::encode(&ask), deadline).await;
        let reply = reply.map_err(|error| repeatable(error, &reached.addr, deadline))?;
        protocol::decode::<ArchivedTold>(reply).map_err(|error| Error::Forbidden(error.into()))?.into()
    }

    async fn read_once(&self, request: ReadRequest, deadline: Instant) -> Result<ReadAnswer, Error> {
        request.read.check_limits()?;
        let reached = self.nodes.reach().await.map_err(unreachable)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let query = Query::new(request, u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        let reply = self.call(&reached, method::QUERY, protocol::encode(&query), deadline).await;
        let reply = reply.map_err(|error| repeatable(error, &reached.addr, deadline))?;
        let answer: Answer = protocol::decode(reply).map_err(|error| Error::Forbidden(error.into()))?;
        answer.into()
    }
}

/// Returns the error of a call without an answer that may be repeated, because it changes nothing.
fn repeatable(error: CallError, addr: &str, deadline: Instant) -> Error {
    match Attempt::of_call(error, addr) {
        Attempt::Refused(error) => error,
        Attempt::NotDone(why) => why.into(),
        Attempt::InDoubt(_) if Instant::now() + ROUNDING >= deadline => Error::TimedOut(no_answer(addr).into()),
        Attempt::InDoubt(text) => Error::Unavailable(text),
    }
}

/// Returns the error text for a node that did not answer a read.
pub(super) fn no_answer(addr: &str) -> String {
    format!("{addr}: there was no answer in time; wait longer (with_deadline), or try again")
}

impl Transport for Network {
    fn check(&self, command: &Command) -> Result<(), Failure> {
        let Some(sql) = command.sql_text() else { return Ok(()) };
        // The other checks need a database.
        check_single(sql).map_err(|failure| Failure { kind: FailureKind::Refused, ..failure })
    }

    fn propose(&self, proposal: Bytes, deadline: Instant) -> BoxFuture<'_, Result<(Position, Outcome), Attempt>> {
        self.propose_once(proposal, deadline).boxed()
    }

    fn read<'a>(&'a self, request: &'a ReadRequest, deadline: Instant) -> BoxFuture<'a, Result<ReadAnswer, Error>> {
        self.read_once(request.clone(), deadline).boxed()
    }

    fn register(&self, topic: Topic) -> BoxFuture<'_, Result<BoxFuture<'static, ()>, Error>> {
        async move {
            let mut waiter = self.waits.register(GroupId::MAIN, topic).await?;
            // After an error the caller looks, too.
            Ok(async move { waiter.woken().await.map_or((), drop) }.boxed())
        }
        .boxed()
    }

    fn archived(&self, position: Option<Position>, deadline: Instant) -> BoxFuture<'_, Result<u64, Error>> {
        self.archived_once(position, deadline).boxed()
    }

    fn begin(&self, lasting: Duration, deadline: Instant) -> BoxFuture<'_, Result<Box<dyn TransactionHost>, Error>> {
        let begun = |stream| Box::new(stream) as Box<dyn TransactionHost>;
        async move { transaction::Stream::open(&self.nodes, lasting, deadline).await.map(begun) }.boxed()
    }

    fn snapshot(&self, level: Level, deadline: Instant) -> BoxFuture<'_, Result<Box<dyn State>, Error>> {
        let opened = |stream| Box::new(stream) as Box<dyn State>;
        async move { Stream::open(&self.nodes, level, deadline).await.map(opened) }.boxed()
    }
}
