//! The client end of a connection.
//!
//! Invariants:
//! - A call returns [`NotSent`] only if the server did not process it.
//! - Dropping the future of a call removes the call from the queue, or cancels it at the server if it was sent already.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures_util::future::{self, Either};
use quorate_env::{Env, Instant, lock, timeout_at};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::error::{CallError, LinkError, NotSent, StreamError};
use crate::identity::PeerInfo;
use crate::link::{self, Reader, Sink};
use crate::message::Message;
use crate::outbox::{self, Item, Outbox, Ticket};
use crate::stream::{StreamReceiver, StreamSender, Streams};

/// One connection to a server, made by a [`Dialer`](crate::Dialer). Many calls may be in flight at once and are
/// answered in any order. Cheap to clone; the connection is closed when the last clone and the last half of its streams
/// are dropped.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
    open: Arc<Open>,
}

struct Core {
    peer: PeerInfo,
    outbox: Arc<Outbox>,
    streams: Arc<Streams>,
    waiting: Mutex<Waiting>,
    slots: Semaphore,
    room: Semaphore,
    closed: watch::Sender<bool>,
}

/// The calls that wait for a reply.
#[derive(Default)]
struct Waiting {
    calls: BTreeMap<u64, oneshot::Sender<Result<Bytes, CallError>>>,
    last_id: u64,
    closed: bool,
}

/// Closes the connection when dropped.
struct Open(Arc<Outbox>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Client {
    /// Starts the client end of a connection after its handshake.
    pub(crate) fn start(env: &Env, peer: PeerInfo, mut reader: Reader, sink: Sink) -> Self {
        let limits = peer.limits;
        reader.set_content_max(limits.frame_max());
        let outbox = Arc::new(Outbox::default());
        let core = Arc::new(Core {
            streams: Streams::new(&outbox, limits),
            waiting: Mutex::default(),
            slots: Semaphore::new(usize::try_from(limits.calls).unwrap_or(1)),
            room: Semaphore::new(usize::try_from(limits.call_bytes).unwrap_or(1)),
            closed: watch::Sender::new(false),
            outbox,
            peer,
        });
        let open = Arc::new(Open(Arc::clone(&core.outbox)));
        env.spawn(run(Arc::clone(&core), reader, sink));
        Self { core, open }
    }

    /// Returns what the handshake found out about the server.
    pub fn peer(&self) -> &PeerInfo {
        &self.core.peer
    }

    /// Returns whether calls can still be made.
    pub fn is_open(&self) -> bool {
        !*self.core.closed.borrow()
    }

    /// Waits until calls can no longer be made.
    pub async fn closed(&self) {
        // The sender lives as long as this client, so this can't fail.
        let _ = self.core.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Calls a method and waits for the reply until `deadline`.
    ///
    /// A call waits to be sent while the calls in flight reach the connection's [`Limits`](crate::Limits). The server
    /// receives the deadline too and drops the call when it passes.
    pub async fn call(&self, method: u16, body: Bytes, deadline: Instant) -> Result<Bytes, CallError> {
        let core = &self.core;
        let limits = &core.peer.limits;
        if body.len() > limits.body_max() {
            return Err(CallError::NotSent(NotSent::TooLarge { len: body.len(), max: limits.body_max() }));
        }
        let admission = async {
            let slot = core.slots.acquire().await;
            let room = core.room.acquire_many(limits.call_cost(body.len())).await;
            slot.and_then(|slot| Ok((slot, room?)))
        };
        let _admitted = match timeout_at(deadline, admission).await {
            Ok(admitted) => admitted.map_err(|_| CallError::NotSent(NotSent::Closed))?,
            Err(_) => return Err(CallError::NotSent(NotSent::TimedOut)),
        };
        let mut call = core.begin(method, body, deadline)?;
        match timeout_at(deadline, &mut call.reply).await {
            Ok(Ok(reply)) => {
                call.is_over = true;
                reply
            }
            Ok(Err(_)) => Err(if call.give_up() { CallError::NotSent(NotSent::Closed) } else { CallError::Broken }),
            Err(_) => Err(if call.give_up() { CallError::NotSent(NotSent::TimedOut) } else { CallError::TimedOut }),
        }
    }

    /// Opens a stream that [`Handler::stream`](crate::Handler::stream) serves at the server. If the server refuses it,
    /// both halves return an error.
    pub fn open_stream(&self, method: u16) -> Result<(StreamSender, StreamReceiver), StreamError> {
        self.core.streams.open(method, &self.open)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("peer", &self.core.peer).field("open", &self.is_open()).finish_non_exhaustive()
    }
}

/// A call in the queue or in flight.
struct Call<'a> {
    core: &'a Core,
    id: u64,
    ticket: Arc<Ticket>,
    reply: oneshot::Receiver<Result<Bytes, CallError>>,
    is_over: bool,
}

impl Call<'_> {
    /// Stops waiting. Returns true if the call was not sent.
    fn give_up(&mut self) -> bool {
        self.is_over = true;
        self.core.waiting().calls.remove(&self.id);
        let unsent = self.core.outbox.withdraw(&self.ticket);
        if !unsent {
            self.core.outbox.push(Message::Cancel { id: self.id });
        }
        unsent
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.give_up();
        }
    }
}

impl Core {
    fn begin(&self, method: u16, body: Bytes, deadline: Instant) -> Result<Call<'_>, CallError> {
        let (sender, reply) = oneshot::channel();
        let ticket = Arc::new(Ticket::default());
        let millis = link::millis(deadline.saturating_duration_since(Instant::now()));
        // Ids must rise in the order of the queue, so one lock covers both.
        let mut waiting = self.waiting();
        if waiting.closed {
            return Err(CallError::NotSent(NotSent::Closed));
        }
        let id = waiting.last_id + 1;
        if !self.outbox.push(Item::call(Message::Call { id, millis, method, body }, &ticket)) {
            return Err(CallError::NotSent(NotSent::Closed));
        }
        waiting.last_id = id;
        waiting.calls.insert(id, sender);
        drop(waiting);
        Ok(Call { core: self, id, ticket, reply, is_over: false })
    }

    async fn listen(&self, reader: &mut Reader) -> Result<(), LinkError> {
        while let Some(message) = link::receive(reader, &self.outbox).await? {
            match message {
                Message::Reply { id, body } => self.answer(id, Ok(body)),
                Message::Failure { id, failure } => self.answer(id, Err(CallError::Failed(failure))),
                Message::Goodbye { last_call } => self.handle_goodbye(last_call),
                message => self.streams.handle(message)?,
            }
        }
        Ok(())
    }

    /// Passes an answer to its caller. An answer to a call that was given up is ignored.
    fn answer(&self, id: u64, answer: Result<Bytes, CallError>) {
        if let Some(caller) = self.waiting().calls.remove(&id) {
            // The caller may be giving up at this moment.
            let _ = caller.send(answer);
        }
    }

    /// Handles the goodbye of a server: it answers calls up to `last_call`, and did not process those above.
    fn handle_goodbye(&self, last_call: u64) {
        self.close_to_calls();
        let unprocessed = last_call.checked_add(1).map(|first| self.waiting().calls.split_off(&first));
        for caller in unprocessed.into_iter().flat_map(BTreeMap::into_values) {
            let _ = caller.send(Err(CallError::NotSent(NotSent::Closed)));
        }
    }

    fn close_to_calls(&self) {
        self.waiting().closed = true;
        self.slots.close();
        self.room.close();
        self.closed.send_replace(true);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

/// Serves the connection until it breaks or is closed.
async fn run(core: Arc<Core>, mut reader: Reader, mut sink: Sink) {
    let write = std::pin::pin!(outbox::write_all(&core.outbox, &mut sink));
    let listen = std::pin::pin!(core.listen(&mut reader));
    let ended = match future::select(write, listen).await {
        Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %core.peer.addr, %error, "the connection to a server broke");
    }
    core.outbox.abort();
    core.close_to_calls();
    // Dropping the senders wakes the callers. Each learns from its ticket whether its call was sent.
    let waiting = std::mem::take(&mut core.waiting().calls);
    drop(waiting);
    core.streams.end_all(None);
}
