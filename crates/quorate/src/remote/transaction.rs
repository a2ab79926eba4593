//! An interactive transaction whose statements run on a remote node, accessed over a stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quorate_apply::DryRunResult;
use quorate_consensus::HOLD_MAX;
use quorate_env::{Instant, timeout, timeout_at};
use quorate_model::{Outcome, Position, Statement};
use quorate_wire::{StreamReceiver, StreamSender};

use super::network::{ROUNDING, no_answer};
use super::nodes::{Nodes, unreachable};
use super::snapshot::{failed, millis};
use crate::error::Error;
use crate::protocol::transaction::{Ask, Told};
use crate::protocol::{self, method};
use crate::submitter::Attempt;
use crate::transaction::TransactionHost;

/// The stream to the leader, or to a node that passes it on to the leader.
pub(crate) struct Stream {
    sender: StreamSender,
    receiver: StreamReceiver,
    addr: Arc<str>,
    position: Position,
}

impl Stream {
    /// Makes one attempt to open a stream and begin a transaction.
    pub(super) async fn open(nodes: &Nodes, lasting: Duration, deadline: Instant) -> Result<Self, Error> {
        let reached = nodes.reach().await.map_err(unreachable)?;
        let stream = reached.client.open_stream(method::INTERACTIVE);
        let stream = stream.map_err(|error| failed(error, &reached.addr))?;
        let begun = Self::begin(stream, Arc::clone(&reached.addr), lasting, deadline).await;
        match &begun {
            Err(Error::Unavailable(_) | Error::TimedOut(_)) => nodes.failed(&reached.addr),
            _ => nodes.answered(&reached.addr),
        }
        begun
    }

    /// Begins the transaction on an open stream.
    pub(crate) async fn begin(
        (sender, receiver): (StreamSender, StreamReceiver),
        addr: Arc<str>,
        lasting: Duration,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let mut stream = Self { sender, receiver, addr, position: Position::default() };
        let left = deadline.saturating_duration_since(Instant::now()).saturating_sub(ROUNDING);
        let reply = timeout_at(deadline, stream.ask(Ask::begin(millis(left), millis(lasting)))).await;
        let silent = |_| Error::TimedOut(no_answer(&stream.addr).into());
        stream.position = reply.map_err(silent)??.begun()?;
        Ok(stream)
    }

    async fn ask(&mut self, ask: Ask) -> Result<Told, Error> {
        let broken = |error| failed(error, &self.addr);
        self.sender.send(protocol::encode(&ask)).await.map_err(broken)?;
        let item = self.receiver.recv().await.map_err(broken)?;
        let item =
            item.ok_or_else(|| Error::Unavailable(format!("{}: the node ended the transaction", self.addr).into()))?;
        protocol::decode(item).map_err(|error| Error::Forbidden(error.into()))
    }
}

impl TransactionHost for Stream {
    fn position(&self) -> Position {
        self.position
    }

    fn run(&mut self, statement: Statement) -> BoxFuture<'_, Result<DryRunResult, Error>> {
        async move {
            statement.check_limits()?;
            self.ask(Ask::run(statement)).await?.ran()
        }
        .boxed()
    }

    fn rewind(&mut self, count: usize) -> BoxFuture<'_, Result<(), Error>> {
        async move { self.ask(Ask::rewind(count)).await?.rewound() }.boxed()
    }

    fn commit(mut self: Box<Self>, proposal: Bytes) -> BoxFuture<'static, Result<(Position, Outcome), Attempt>> {
        async move {
            let reply = timeout(HOLD_MAX, self.ask(Ask::commit(proposal))).await;
            let silent = |_| Attempt::InDoubt(format!("{}: there was no answer in time", self.addr).into());
            reply.map_err(silent)?.map_err(|error| Attempt::InDoubt(error.reason()))?.result()
        }
        .boxed()
    }
}
