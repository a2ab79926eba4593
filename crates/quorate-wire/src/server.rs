//! The answering end: accepts connections, checks who they are, and hands their calls to a [`Handler`].
//!
//! Invariants:
//! - Whatever comes in, the server serves on; a connection that breaks the rules is closed, alone.
//! - Connections that have not proved themselves, those of nodes and those of clients are counted apart: none can use
//!   up the places of the others.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, Either, FutureExt};
use quorate_env::net::{BoxStream, Listener};
use quorate_env::{Env, sleep, timeout};
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::error::{CallFailure, FailureKind, HandshakeError};
use crate::handshake::{self, Gate};
use crate::identity::{Identity, Keys, PeerInfo, Role};
use crate::limits::ACCEPT_PAUSE;
use crate::link::{self, Reader, Sink};
use crate::stream::{StreamReceiver, StreamSender};

mod connection;
mod refusals;

use refusals::Refusals;

/// What a server does with calls. Each future is a task of its own; it is dropped when its caller went away, when the
/// call's deadline passed and when the connection broke: work that must not end half-way belongs into another task.
pub trait Handler: Send + Sync + 'static {
    /// Answers a call. Calls of one connection come in the order in which they were sent, each before the first poll
    /// of any of the futures that later ones return.
    fn call(&self, peer: &PeerInfo, method: u16, body: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>>;

    /// Serves a stream until both halves are finished. The default refuses.
    fn stream(
        &self,
        _peer: &PeerInfo,
        method: u16,
        sender: StreamSender,
        _receiver: StreamReceiver,
    ) -> BoxFuture<'static, ()> {
        sender.fail(CallFailure::new(FailureKind::UnknownMethod, format!("no stream has the method {method}")));
        future::ready(()).boxed()
    }
}

/// Who a server is and how much it lets in.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Which node this is, as handshakes say it at their time.
    pub identity: Identity,
    /// The secrets that are accepted.
    pub keys: Keys,
    /// Connections of nodes at once.
    pub peers_max: usize,
    /// Connections of clients at once.
    pub clients_max: usize,
    /// Connections at once that have not proved themselves yet.
    pub unproven_max: usize,
    /// Time for a handshake.
    pub handshake_limit: Duration,
}

impl ServerConfig {
    /// The usual limits: 256 connections of nodes, 1,024 of clients, 64 unproven, 5 seconds for a handshake.
    pub fn new(identity: Identity, keys: Keys) -> Self {
        Self {
            identity,
            keys,
            peers_max: 256,
            clients_max: 1024,
            unproven_max: 64,
            handshake_limit: Duration::from_secs(5),
        }
    }
}

/// What connections are told to do. They end at once when nobody can tell them any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Serve,
    Drain,
}

/// A running server. Dropped, it ends at once, with all its connections.
#[derive(Debug)]
pub struct Server {
    addr: String,
    orders: watch::Sender<Order>,
    door: Arc<Door>,
}

/// How many connections a server has, and how many it did not let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Of nodes.
    pub peers: usize,
    /// Of clients.
    pub clients: usize,
    /// Those that were refused since the server began: no room, no or another secret, another cluster or version.
    pub refused: u64,
}

/// Starts to serve the connections that come to a listener, in tasks of `env`.
pub fn serve(env: &Env, listener: Arc<dyn Listener>, config: ServerConfig, handler: Arc<dyn Handler>) -> Server {
    let (orders, order) = watch::channel(Order::Serve);
    let addr = listener.local_addr();
    let door = Door {
        env: env.clone(),
        unproven: Places::new(config.unproven_max),
        peers: Places::new(config.peers_max),
        clients: Places::new(config.clients_max),
        refusals: Refusals::default(),
        config,
        handler,
    };
    let door = Arc::new(door);
    env.spawn(accept(Arc::clone(&door), listener, order));
    Server { addr, orders, door }
}

impl Server {
    /// The address that it listens on.
    pub fn local_addr(&self) -> &str {
        &self.addr
    }

    /// Its connections at the moment.
    pub fn connections(&self) -> Connections {
        let Door { peers, clients, refusals, .. } = &*self.door;
        Connections { peers: peers.taken(), clients: clients.taken(), refused: refusals.count() }
    }

    /// Stops in good order: accepts nothing more, answers the calls that it has begun, fails streams, and closes. What
    /// is not done within `limit` is dropped.
    pub async fn stop(self, limit: Duration) {
        self.orders.send_replace(Order::Drain);
        // Each task of the server holds a receiver until its end. Beyond the limit all are dropped with `self`.
        let _ = timeout(limit, self.orders.closed()).await;
    }
}

/// What a future gives, or `None` when the server stops before.
async fn until_stopped<T>(order: &mut watch::Receiver<Order>, future: impl Future<Output = T>) -> Option<T> {
    let stopped = pin!(order.wait_for(|order| *order != Order::Serve));
    match future::select(stopped, pin!(future)).await {
        Either::Left(_) => None,
        Either::Right((output, _)) => Some(output),
    }
}

/// What a future gives, or `None` when the server is dropped before.
async fn until_dropped<T>(order: &mut watch::Receiver<Order>, future: impl Future<Output = T>) -> Option<T> {
    let dropped = pin!(async { while order.changed().await.is_ok() {} });
    match future::select(dropped, pin!(future)).await {
        Either::Left(_) => None,
        Either::Right((output, _)) => Some(output),
    }
}

/// What every connection passes.
struct Door {
    env: Env,
    config: ServerConfig,
    handler: Arc<dyn Handler>,
    unproven: Places,
    peers: Places,
    clients: Places,
    refusals: Refusals,
}

/// Places for connections of one kind.
struct Places {
    free: Arc<Semaphore>,
    max: usize,
}

impl Places {
    fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(max)), max }
    }

    fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    fn taken(&self) -> usize {
        self.max.saturating_sub(self.free.available_permits())
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("config", &self.config).finish_non_exhaustive()
    }
}

async fn accept(door: Arc<Door>, listener: Arc<dyn Listener>, mut order: watch::Receiver<Order>) {
    loop {
        let Some(accepted) = until_stopped(&mut order, listener.accept()).await else { return };
        match accepted {
            Ok((stream, from)) => door.knock(stream, from, order.clone()),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Door {
    /// Takes a new connection if there is a place for one more that has not proved itself.
    fn knock(self: &Arc<Self>, mut stream: BoxStream, from: String, order: watch::Receiver<Order>) {
        let Some(place) = self.unproven.take() else {
            self.refusals.busy();
            // A fresh connection takes a few bytes at once or never will.
            let _ = stream.write_all(&handshake::busy_frame()).now_or_never();
            return;
        };
        let door = Arc::clone(self);
        self.env.spawn(async move {
            let (reader, sink) = link::split(stream);
            door.greet(reader, sink, &from, place, order).await;
        });
    }

    async fn greet(
        &self,
        mut reader: Reader,
        mut sink: Sink,
        from: &str,
        unproven: OwnedSemaphorePermit,
        mut order: watch::Receiver<Order>,
    ) {
        let handshake = self.prove(&mut reader, &mut sink, from);
        let Some(proved) = until_stopped(&mut order, handshake).await else { return };
        drop(unproven);
        match proved {
            Ok((peer, place)) => {
                connection::serve(&self.env, peer, &self.handler, reader, sink, order).await;
                drop(place);
            }
            Err(error) => self.refusals.tell(from, &error),
        }
    }

    /// The handshake, and the place that the other end's role has left.
    async fn prove(
        &self,
        reader: &mut Reader,
        sink: &mut Sink,
        from: &str,
    ) -> Result<(PeerInfo, OwnedSemaphorePermit), HandshakeError> {
        let gate =
            Gate { identity: self.config.identity.clone(), keys: self.config.keys.clone(), binding: Bytes::new() };
        let admit = |role| {
            let places = if role == Role::Peer { &self.peers } else { &self.clients };
            places.take()
        };
        let handshake = handshake::accept(reader, sink, &gate, self.env.rng(), from, admit);
        timeout(self.config.handshake_limit, handshake).await.map_err(|_| HandshakeError::TimedOut)?
    }
}
