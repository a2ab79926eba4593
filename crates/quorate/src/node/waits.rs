//! The waits of remote clients: one stream carries all waits of a client.
//!
//! Invariants:
//! - A stream has at most [`WAITS_PER_STREAM_MAX`] waiters.
//! - When a stream ends, for any reason, nothing is left of its waiters, and each turn that the client has not used
//!   goes to the next waiter of the topic.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, BoxFuture, Either, abortable, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use quorate_apply::waits::{Waiter, Woken};
use quorate_env::mutant::Mutant;
use quorate_env::timeout;
use quorate_model::{GroupId, Topic};
use quorate_wire::{CallFailure, FailureKind as CallFailureKind, StreamError, StreamReceiver, StreamSender};

use super::gateway::Gateway;
use crate::error::Error;
use crate::protocol::waits::{Leave, News, WAITS_PER_STREAM_MAX, WaitAsk, WaitAskKind, WaitTold, WireTopic};
use crate::protocol::{self, malformed};

/// How long a client may go without reading. Until then the turns that it was given wait for it.
const STALL_MAX: Duration = Duration::from_secs(10);

/// Serves the stream until the client ends it.
pub(super) async fn serve(
    gateway: &Gateway,
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
) -> Result<(), CallFailure> {
    let mut waiters = Waiters::default();
    loop {
        let event = match select(pin!(receiver.recv()), pin!(waiters.woken())).await {
            Either::Left((asked, _)) => Either::Left(asked),
            Either::Right((woken, _)) => Either::Right(woken),
        };
        match event {
            Either::Left(Ok(Some(item))) => {
                let ask: WaitAsk = protocol::decode(item)?;
                match ask.request()? {
                    WaitAskKind::Register(topic) => {
                        let registered = waiters.register(gateway, ask.number, topic)?;
                        send(sender, ask.number, News::Registered(registered)).await?;
                    }
                    WaitAskKind::Leave(leave) => waiters.leave(ask.number, leave),
                }
            }
            // The client is gone.
            Either::Left(_) => return Ok(()),
            Either::Right((number, woken)) => send(sender, number, News::Woken(woken)).await?,
        }
    }
}

/// Sends an item. Returns an error if the client does not read it in time.
async fn send(sender: &mut StreamSender, number: u64, news: News) -> Result<(), CallFailure> {
    let why = match timeout(STALL_MAX, sender.send(protocol::encode(&WaitTold::new(number, news)))).await {
        Ok(Ok(())) => return Ok(()),
        // No client gets this error.
        Ok(Err(StreamError::Broken | StreamError::Stopped)) => "the client is gone".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("the client read nothing for {} s", STALL_MAX.as_secs()),
    };
    Err(CallFailure::new(CallFailureKind::Unavailable, why))
}

type Waiting = Abortable<BoxFuture<'static, (u64, Waiter, Woken)>>;

/// The waiters of a stream.
#[derive(Default)]
struct Waiters {
    /// Those that wait.
    waiting: FuturesUnordered<Waiting>,
    /// All of them, by the client's numbers.
    all: BTreeMap<u64, State>,
}

enum State {
    Waits(AbortHandle),
    /// The client knows, or will know, that it is the waiter's turn.
    HasTurn(Waiter, Woken),
}

impl Waiters {
    /// Registers a waiter. The outer error ends the stream.
    fn register(
        &mut self,
        gateway: &Gateway,
        number: u64,
        WireTopic { group, topic }: WireTopic,
    ) -> Result<Result<(), Error>, CallFailure> {
        if self.all.contains_key(&number) {
            return Err(malformed(format!("waiter {number} is registered already")));
        }
        if self.all.len() >= WAITS_PER_STREAM_MAX {
            let why = format!("{WAITS_PER_STREAM_MAX} waiters share this stream already; wait for less at a time");
            return Ok(Err(Error::Overloaded(why.into())));
        }
        let Some(waits) = gateway.waits.get(&GroupId(group)) else {
            return Ok(Err(Error::Forbidden(format!("nothing can be waited for in group {group}").into())));
        };
        Ok(waits
            .register(Topic(topic))
            .map(|waiter| self.add(number, waiter))
            .map_err(|error| Error::Overloaded(error.into())))
    }

    fn add(&mut self, number: u64, mut waiter: Waiter) {
        let waiting = async move {
            let woken = waiter.woken().await;
            (number, waiter, woken)
        };
        let (waiting, handle) = abortable(waiting.boxed());
        self.waiting.push(waiting);
        self.all.insert(number, State::Waits(handle));
    }

    /// Waits until it is the turn of a waiter. Cancel-safe.
    async fn woken(&mut self) -> (u64, Woken) {
        loop {
            let next = poll_fn(|cx| match self.waiting.poll_next_unpin(cx) {
                Poll::Ready(Some(next)) => Poll::Ready(next),
                // Without waiters there is nothing to wait for.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            });
            // A waiter that has left is dropped here.
            let Ok((number, waiter, woken)) = next.await else { continue };
            self.all.insert(number, State::HasTurn(waiter, woken));
            return (number, woken);
        }
    }

    /// Removes a waiter. A client may send this when the waiter was refused.
    fn leave(&mut self, number: u64, Leave { used }: Leave) {
        match self.all.remove(&number) {
            Some(State::Waits(handle)) => handle.abort(),
            Some(State::HasTurn(waiter, woken)) if !used => pass_on(waiter, woken),
            Some(State::HasTurn(..)) | None => {}
        }
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        // Those that still wait go first, so that no turn goes to them.
        self.waiting.clear();
        for state in std::mem::take(&mut self.all).into_values() {
            if let State::HasTurn(waiter, woken) = state {
                pass_on(waiter, woken);
            }
        }
    }
}

fn pass_on(waiter: Waiter, woken: Woken) {
    if !Mutant::TurnLost.is_on() {
        waiter.pass_on(woken);
    }
}
