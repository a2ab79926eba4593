//! The server end of one connection, after its handshake.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, Either};
use quorate_env::serving::Order;
use quorate_env::signal::Signal;
use quorate_env::{Env, lock, timeout};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::error::{CallFailure, FailureKind, LinkError};
use crate::identity::PeerInfo;
use crate::limits::REPLY_QUEUE_BYTES;
use crate::link::{self, Reader, Sink};
use crate::message::Message;
use crate::outbox::{self, Item, Outbox};
use crate::stream::Streams;

use super::Handler;

struct Connection {
    env: Env,
    peer: PeerInfo,
    handler: Arc<dyn Handler>,
    outbox: Arc<Outbox>,
    streams: Arc<Streams>,
    /// Bytes that may wait to be written as replies.
    reply_room: Arc<Semaphore>,
    running: Mutex<Running>,
    /// Woken when no call is running.
    idle: Signal,
}

/// The calls and streams that were begun and have not ended.
#[derive(Default)]
struct Running {
    calls: BTreeMap<u64, (AbortHandle, usize)>,
    call_bytes: usize,
    last_call: u64,
    streams: BTreeMap<u64, AbortHandle>,
}

impl Running {
    fn remove(&mut self, id: u64) -> Option<AbortHandle> {
        let (task, cost) = self.calls.remove(&id)?;
        self.call_bytes = self.call_bytes.saturating_sub(cost);
        Some(task)
    }
}

/// Serves a connection until it breaks, or the server stops.
pub(super) async fn serve(
    env: &Env,
    peer: PeerInfo,
    handler: &Arc<dyn Handler>,
    mut reader: Reader,
    mut sink: Sink,
    mut order: Order,
) {
    reader.set_content_max(peer.limits.frame_max());
    let outbox = Arc::new(Outbox::default());
    let connection = Arc::new(Connection {
        env: env.clone(),
        handler: Arc::clone(handler),
        streams: Streams::new(&outbox, peer.limits),
        reply_room: Arc::new(Semaphore::new(REPLY_QUEUE_BYTES)),
        running: Mutex::default(),
        idle: Signal::new(),
        outbox,
        peer,
    });
    let mut later_order = order.clone();
    let write = pin!(outbox::write_all(&connection.outbox, &mut sink));
    let listen = pin!(connection.listen_until_stopped(&mut reader, &mut order));
    let ended = match future::select(write, listen).await {
        Either::Left((ended, _)) => ended,
        Either::Right((Some(ended), _)) => ended,
        // The server is stopping. Queued messages are still written.
        Either::Right((None, write)) => later_order.until_dropped(write).await.unwrap_or(Ok(())),
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %connection.peer.addr, %error, "an accepted connection broke");
    }
    connection.end();
}

impl Connection {
    /// Handles messages until the connection ends. Returns `None` once the server has stopped and has answered all
    /// calls that it had begun.
    async fn listen_until_stopped(
        self: &Arc<Self>,
        reader: &mut Reader,
        order: &mut Order,
    ) -> Option<Result<(), LinkError>> {
        match order.until_stopped(self.listen(reader)).await {
            Some(ended) => Some(ended),
            None => order.until_dropped(self.drain()).await.map_or(Some(Ok(())), |()| None),
        }
    }

    async fn listen(self: &Arc<Self>, reader: &mut Reader) -> Result<(), LinkError> {
        while let Some(message) = link::receive(reader, &self.outbox).await? {
            match message {
                Message::Call { id, millis, method, body } => self.begin_call(id, millis, method, body)?,
                Message::Cancel { id } => self.cancel(id),
                Message::Open { id, method } => self.begin_stream(id, method)?,
                message => self.streams.handle(message)?,
            }
        }
        Ok(())
    }

    /// Stops accepting calls and streams, and waits for the replies to the calls that were begun.
    async fn drain(&self) {
        let last_call = self.running().last_call;
        self.outbox.push(Message::Goodbye { last_call });
        self.streams.end_all(Some(&CallFailure::new(FailureKind::Unavailable, "the server is stopping")));
        while !self.running().calls.is_empty() {
            self.idle.wait().await;
        }
        self.outbox.close();
    }

    fn begin_call(self: &Arc<Self>, id: u64, millis: u32, method: u16, body: Bytes) -> Result<(), LinkError> {
        let mut running = self.running();
        if id <= running.last_call {
            return Err(LinkError::Malformed("it reused the id of a call"));
        }
        running.last_call = id;
        if !self.has_room(&running, body.len()) {
            drop(running);
            let failure = CallFailure::new(FailureKind::Overloaded, "too many calls on this connection");
            self.outbox.push(Message::Failure { id, failure });
            return Ok(());
        }
        let cost = body.len();
        let ending = CallEnding { connection: Arc::clone(self), id };
        // The handler is called without the lock. The task is spawned under it, so it is in the table before it can
        // end.
        drop(running);
        let answer = self.handler.call(&self.peer, method, body);
        let mut running = self.running();
        let task = self.env.spawn(answer_call(ending, answer, Duration::from_millis(millis.into())));
        running.calls.insert(id, (task.abort_handle(), cost));
        running.call_bytes += cost;
        Ok(())
    }

    fn has_room(&self, running: &Running, len: usize) -> bool {
        let limits = &self.peer.limits;
        let fits =
            u64::try_from(running.call_bytes.saturating_add(len)).unwrap_or(u64::MAX) <= limits.call_bytes.into();
        let calls = u32::try_from(running.calls.len()).unwrap_or(u32::MAX);
        calls < limits.calls && (fits || running.call_bytes == 0)
    }

    fn cancel(&self, id: u64) {
        if let Some(task) = self.remove_call(id) {
            task.abort();
        }
    }

    /// Queues the answer to a call, unless the call was cancelled. The place of the call is released first, because the
    /// caller may make its next call as soon as it has the answer. Both happen under one lock, because a stopping
    /// server closes the queue after the last call.
    fn conclude(&self, id: u64, answer: Item) {
        let mut running = self.running();
        if running.remove(id).is_some() {
            self.outbox.push(answer);
        }
        if running.calls.is_empty() {
            self.idle.wake();
        }
    }

    /// Removes a call from the table.
    fn remove_call(&self, id: u64) -> Option<AbortHandle> {
        let mut running = self.running();
        let task = running.remove(id);
        if running.calls.is_empty() {
            self.idle.wake();
        }
        task
    }

    fn begin_stream(self: &Arc<Self>, id: u64, method: u16) -> Result<(), LinkError> {
        let Some((sender, receiver)) = self.streams.accept(id)? else { return Ok(()) };
        let serving = self.handler.stream(&self.peer, method, sender, receiver);
        let connection = Arc::clone(self);
        let mut running = self.running();
        let task = self.env.spawn(async move {
            serving.await;
            connection.running().streams.remove(&id);
        });
        running.streams.insert(id, task.abort_handle());
        Ok(())
    }

    /// Aborts all calls and streams.
    fn end(&self) {
        self.outbox.abort();
        self.streams.end_all(None);
        let running = std::mem::take(&mut *self.running());
        for (task, _) in running.calls.into_values() {
            task.abort();
        }
        for task in running.streams.into_values() {
            task.abort();
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        lock(&self.running)
    }
}

/// Removes a call from the table when its task ends, in whatever way.
struct CallEnding {
    connection: Arc<Connection>,
    id: u64,
}

impl Drop for CallEnding {
    fn drop(&mut self) {
        self.connection.remove_call(self.id);
    }
}

/// Waits for the handler and queues its answer. Sends nothing after the deadline, when the caller no longer waits.
async fn answer_call(ending: CallEnding, answer: impl Future<Output = Result<Bytes, CallFailure>>, limit: Duration) {
    let (connection, id) = (&ending.connection, ending.id);
    let Ok(answer) = timeout(limit, answer).await else { return };
    let max = connection.peer.limits.body_max();
    let message = match answer {
        Ok(body) if body.len() > max => {
            let text = format!("the reply has {} bytes, the limit is {max}", body.len());
            Message::Failure { id, failure: CallFailure::new(FailureKind::Internal, text) }
        }
        Ok(body) => Message::Reply { id, body },
        Err(failure) => Message::Failure { id, failure },
    };
    let cost = u32::try_from(message.body_len().min(REPLY_QUEUE_BYTES)).unwrap_or(0);
    let Ok(room) = Arc::clone(&connection.reply_room).acquire_many_owned(cost).await else { return };
    connection.conclude(id, Item::reply(message, room));
}
