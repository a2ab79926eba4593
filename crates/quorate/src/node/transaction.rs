//! Interactive transactions on the leader: a hold on all writes, and a dry run on the state at the end of the log.
//!
//! Invariant: when the host of a transaction is dropped, for any reason, the hold is released and the effects of the
//! statements are rolled back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_apply::{DryRunError, DryRunResult};
use quorate_consensus::{HOLD_MAX, Hold, Member, ProposeError};
use quorate_env::{Env, Instant, timeout_at};
use quorate_model::{Failure, FailureKind, NodeId, Outcome, Position, SqlCommand, Stamp, Statement, StoreFault};
use quorate_sql::store::DryRun;
use quorate_sql::validate::StatementKind;
use quorate_wire::{CallFailure, Purpose, StreamError, StreamReceiver, StreamSender};

use super::gateway::{Gateway, WRITES_WAIT, served_until};
use super::service;
use crate::error::Error;
use crate::protocol::transaction::{Ask, AskKind, Begin, Told};
use crate::protocol::{self, Executed, method};
use crate::remote::transaction::Stream;
use crate::rights::Right;
use crate::submitter::Attempt;
use crate::transaction::{TransactionHost, time_limit_reached};

/// The host of a transaction on this node, the leader.
struct Local {
    env: Env,
    gateway: Weak<Gateway>,
    hold: Hold,
    // Dropped before the hold ends.
    dry_run: Arc<DryRun>,
    position: Position,
}

/// Why a transaction could not begin.
enum NotBegun {
    /// Another node leads.
    Elsewhere(NodeId, Member),
    Failed(Error),
}

impl Gateway {
    /// Begins a transaction, at this node if it leads, otherwise at the leader.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        lasting: Duration,
        deadline: Instant,
    ) -> Result<Box<dyn TransactionHost>, Error> {
        match self.try_begin(lasting, deadline).await {
            Ok(host) => Ok(host),
            Err(NotBegun::Failed(error)) => Err(error),
            Err(NotBegun::Elsewhere(leader, member)) => {
                let stream = self.consensus.open_stream(leader, Purpose::Client, method::INTERACTIVE).await;
                let away = || format!("{} at {} can't be reached", member.name, member.addr);
                let stream = stream.ok_or_else(|| Error::Unavailable(away().into()))?;
                Ok(Box::new(Stream::begin(stream, member.addr.as_str().into(), lasting, deadline).await?))
            }
        }
    }

    /// Begins a transaction at this node, for callers that have found the leader themselves.
    async fn begin_here(
        self: &Arc<Self>,
        lasting: Duration,
        deadline: Instant,
    ) -> Result<Box<dyn TransactionHost>, Error> {
        self.try_begin(lasting, deadline).await.map_err(|not_begun| match not_begun {
            NotBegun::Failed(error) => error,
            NotBegun::Elsewhere(_, member) => Error::Unavailable(format!("the leader is {}", member.name).into()),
        })
    }

    async fn try_begin(
        self: &Arc<Self>,
        lasting: Duration,
        deadline: Instant,
    ) -> Result<Box<dyn TransactionHost>, NotBegun> {
        self.serves()?;
        let busy = |_| Error::Overloaded("the writes before it, or another transaction, took too long".into());
        let hold = match timeout_at(deadline, self.consensus.main().hold(lasting)).await.map_err(busy)? {
            Ok(hold) => hold,
            Err(ProposeError::NotLeader { leader: Some((leader, member)) }) => {
                return Err(NotBegun::Elsewhere(leader, member));
            }
            Err(ProposeError::Overloaded) => return Err(Error::Overloaded(WRITES_WAIT.into()).into()),
            Err(error) => return Err(Error::Unavailable(error.into()).into()),
        };
        let applied = self.store.wait_applied(hold.position().index, deadline).await;
        applied.map_err(|timeout| Error::Unavailable(timeout.into()))?;
        let store = self.store.clone();
        let dry_run = self.env.blocking(move || store.dry_run()).await.unwrap_or(Err(StoreFault::Closed));
        let dry_run = Arc::new(dry_run.map_err(store_error)?);
        let position = Position { index: dry_run.index(), ..hold.position() };
        Ok(Box::new(Local { env: self.env.clone(), gateway: Arc::downgrade(self), hold, dry_run, position }))
    }

    /// Fails if a statement can't be a step of an interactive transaction.
    fn check_step(&self, statement: Statement) -> Result<(), Failure> {
        match self.store.validator().check(&statement.into())? {
            StatementKind::Vacuum => {
                let text = "VACUUM is a command of its own; run it outside of the transaction";
                Err(Failure::new(FailureKind::Refused, text))
            }
            _ => Ok(()),
        }
    }
}

impl TransactionHost for Local {
    fn position(&self) -> Position {
        self.position
    }

    fn run(&mut self, statement: Statement) -> BoxFuture<'_, Result<DryRunResult, Error>> {
        async move {
            let gateway = self.gateway.upgrade().ok_or(Error::Closed)?;
            let stamp = Stamp { now: self.hold.now(), seed: self.env.rng().next_u64() };
            let dry_run = Arc::clone(&self.dry_run);
            let ran = self.env.blocking(move || {
                gateway.check_step(statement.clone()).map_err(DryRunError::Failed)?;
                dry_run.run(stamp, SqlCommand::Statement(statement.into()).into())
            });
            ran.await.unwrap_or(Err(DryRunError::Over)).map_err(dry_run_error)
        }
        .boxed()
    }

    fn rewind(&mut self, count: usize) -> BoxFuture<'_, Result<(), Error>> {
        let dry_run = Arc::clone(&self.dry_run);
        let rewound = self.env.blocking(move || dry_run.rewind(count));
        rewound.map(|rewound| rewound.unwrap_or(Err(DryRunError::Over)).map_err(dry_run_error)).boxed()
    }

    fn commit(self: Box<Self>, proposal: Bytes) -> BoxFuture<'static, Result<(Position, Outcome), Attempt>> {
        let Self { hold, dry_run, .. } = *self;
        drop(dry_run);
        async move { hold.propose(proposal).await.map_err(Attempt::from) }.boxed()
    }
}

/// Serves the stream of one transaction until it is committed, the client ends it, or its time limit is reached.
pub(super) async fn serve(
    gateway: &Arc<Gateway>,
    held: Right,
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
) -> Result<(), CallFailure> {
    let end = Instant::now() + HOLD_MAX;
    let Some(AskKind::Begin(Begin { wait_millis, last_millis })) = next(receiver, end).await? else {
        return Err(protocol::malformed("the first message of a transaction must be Begin"));
    };
    let deadline = served_until(Duration::from_millis(wait_millis));
    let lasting = Duration::from_millis(last_millis).min(HOLD_MAX);
    let begun = if held == Right::Node {
        gateway.begin_here(lasting, deadline).await
    } else {
        gateway.begin(lasting, deadline).await
    };
    let position = begun.as_ref().map(|host| host.position()).map_err(Clone::clone);
    let end = Instant::now() + lasting;
    let (Ok(()), Ok(mut host)) = (send(sender, position.into(), end).await, begun) else { return Ok(()) };
    while let Some(request) = next(receiver, end).await? {
        match request {
            AskKind::Begin(_) => return Err(protocol::malformed("the transaction has already begun")),
            AskKind::Run(query) => {
                let statement = query.state_query()?.statement;
                let ran = timeout_at(end, host.run(statement)).await;
                let ran = ran.unwrap_or_else(|_| Err(time_limit_reached()));
                if send(sender, ran.into(), end).await.is_err() {
                    return Ok(());
                }
            }
            AskKind::Rewind(count) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                let rewound = timeout_at(end, host.rewind(count)).await;
                let rewound = rewound.unwrap_or_else(|_| Err(time_limit_reached()));
                if send(sender, rewound.into(), end).await.is_err() {
                    return Ok(());
                }
            }
            AskKind::Commit(proposal) => {
                let committed = match service::check(gateway, held, &proposal).await? {
                    Ok(()) => host.commit(proposal).await,
                    Err(failure) => Err(Attempt::Refused(failure.into())),
                };
                let reply = Told::committed(Executed::new(committed, gateway.leader_elsewhere()));
                // A client that did not get the reply sends the proposal again, under the same session.
                let _ = send(sender, reply, served_until(HOLD_MAX)).await;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns the next request; `None` if the client has disconnected or the time limit was reached.
async fn next(receiver: &mut StreamReceiver, end: Instant) -> Result<Option<AskKind>, CallFailure> {
    match timeout_at(end, receiver.recv()).await {
        Ok(Ok(Some(item))) => protocol::decode::<Ask>(item)?.request().map(Some),
        Ok(Ok(None) | Err(_)) | Err(_) => Ok(None),
    }
}

async fn send(sender: &mut StreamSender, reply: Told, end: Instant) -> Result<(), StreamError> {
    timeout_at(end, sender.send(protocol::encode(&reply))).await.unwrap_or(Err(StreamError::Stopped))
}

fn dry_run_error(error: DryRunError) -> Error {
    match error {
        DryRunError::Failed(failure) => failure.into(),
        DryRunError::Over => Error::TransactionAborted(error.into()),
        DryRunError::Fault(fault) => store_error(fault),
    }
}

fn store_error(fault: StoreFault) -> Error {
    match fault {
        StoreFault::Closed => Error::Closed,
        // Another node will take over leadership.
        StoreFault::Diverged(_) => Error::Unavailable(fault.into()),
        // The rest of the process uses the memory.
        StoreFault::Memory(why) | StoreFault::TooMuch(why) => Error::Overloaded(why.into()),
        fault => Error::Store(fault),
    }
}

impl From<Error> for NotBegun {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
