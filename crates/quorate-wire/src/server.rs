//! The server end: accepts connections, authenticates them, and passes their calls to a [`Handler`].
//!
//! Invariants:
//! - No input stops the server. A connection that violates the protocol is closed; the others are not affected.
//! - Unauthenticated connections, those of nodes and those of clients are counted separately, so that none can use up
//!   the places of the others. A new connection always gets a place for its handshake: if all are taken, the address
//!   with the most loses its oldest.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, Either, FutureExt, select};
use quorate_env::net::{BoxStream, Listener, secure};
use quorate_env::serving::{Order, Orders, Place, Places};
use quorate_env::{Env, timeout};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{CallFailure, FailureKind, HandshakeError};
use crate::handshake::{self, Gate};
use crate::identity::{Identity, Keys, PeerInfo, Role, User};
use crate::limits::ACCEPT_PAUSE;
use crate::link::{self, Reader, Sink};
use crate::stream::{StreamReceiver, StreamSender};

mod connection;
mod refusals;

use refusals::Refusals;

/// Handles the calls that a server receives. Each future runs in a task of its own. It is dropped when the caller gives
/// up, when the deadline of the call passes, and when the connection breaks. Work that must not end half-way belongs in
/// another task.
pub trait Handler: Send + Sync + 'static {
    /// Answers a call. Calls of one connection arrive in the order in which they were sent, each before the first poll
    /// of any future that a later call returned.
    fn call(&self, peer: &PeerInfo, method: u16, body: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>>;

    /// Lets a user in whose credentials came from this address, and returns the user; or why not, in a sentence that
    /// tells a stranger nothing. The default implementation lets nobody in.
    fn login(&self, _credentials: Bytes, _from: &str) -> BoxFuture<'static, Result<User, String>> {
        future::ready(Err("there are no users here".to_owned())).boxed()
    }

    /// Serves a stream until both halves are finished. The default implementation refuses the stream.
    fn stream(
        &self,
        _peer: &PeerInfo,
        method: u16,
        sender: StreamSender,
        _receiver: StreamReceiver,
    ) -> BoxFuture<'static, ()> {
        sender.fail(CallFailure::new(FailureKind::UnknownMethod, format!("there is no stream with method {method}")));
        future::ready(()).boxed()
    }
}

/// The identity, the secrets and the limits of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The identity of this node. A handshake uses the ids that are set at its time.
    pub identity: Identity,
    /// The accepted secrets.
    pub keys: Keys,
    /// The maximum number of connections of nodes.
    pub peers_max: usize,
    /// The maximum number of connections of clients.
    pub clients_max: usize,
    /// The maximum number of connections that are not authenticated yet.
    pub unproven_max: usize,
    /// The time limit for a handshake.
    pub handshake_limit: Duration,
}

impl ServerConfig {
    /// Creates a configuration with the default limits: 256 connections of nodes, 1,024 of clients, 64 that are not
    /// authenticated yet, and 5 seconds for a handshake.
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

/// A running server. Dropping it ends it at once, with all its connections.
#[derive(Debug)]
pub struct Server {
    addr: String,
    orders: Orders,
    shared: Arc<Shared>,
}

/// The number of connections of a server, and of those that it refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Connections of nodes.
    pub peers: usize,
    /// Connections of clients.
    pub clients: usize,
    /// Connections refused since the server started: no place left, a failed handshake, another cluster or version.
    pub refused: u64,
}

/// Starts to serve the connections of a listener, in tasks of `env`.
pub fn serve(env: &Env, listener: Arc<dyn Listener>, config: ServerConfig, handler: Arc<dyn Handler>) -> Server {
    let (orders, mut order) = Orders::new();
    let addr = listener.local_addr();
    let shared = Shared {
        env: env.clone(),
        unproven: Arc::new(Places::new(config.unproven_max)),
        peers: Share::new(config.peers_max),
        clients: Share::new(config.clients_max),
        refusals: Refusals::default(),
        config,
        handler,
    };
    let shared = Arc::new(shared);
    let accepting = Arc::clone(&shared);
    env.spawn(async move {
        let of_connections = order.clone();
        let start = |stream, from| accepting.start_handshake(stream, from, of_connections.clone());
        let failed = |error| tracing::warn!(%error, "could not accept a connection");
        order.accept(&*listener, ACCEPT_PAUSE, start, failed).await;
    });
    Server { addr, orders, shared }
}

impl Server {
    /// Returns the address that the server listens on.
    pub fn local_addr(&self) -> &str {
        &self.addr
    }

    /// Returns the current numbers of connections.
    pub fn connections(&self) -> Connections {
        let Shared { peers, clients, refusals, .. } = &*self.shared;
        Connections { peers: peers.taken(), clients: clients.taken(), refused: refusals.count() }
    }

    /// Stops cleanly: accepts nothing more, answers the calls that it has begun, fails streams, and closes. Work that
    /// is not done within `limit` is dropped.
    pub async fn stop(self, limit: Duration) {
        self.orders.drain();
        // Dropping `self` ends the tasks that exceed the limit.
        let _ = timeout(limit, self.orders.all_ended()).await;
    }
}

/// The state that all connections of a server share.
struct Shared {
    env: Env,
    config: ServerConfig,
    handler: Arc<dyn Handler>,
    unproven: Arc<Places>,
    peers: Share,
    clients: Share,
    refusals: Refusals,
}

/// The places for authenticated connections of one kind. Who has one keeps it.
struct Share {
    free: Arc<Semaphore>,
    max: usize,
}

impl Share {
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

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Shared {
    /// Starts the handshake of a new connection.
    fn start_handshake(self: &Arc<Self>, stream: BoxStream, from: String, order: Order) {
        let (shared, place) = (Arc::clone(self), self.unproven.take(&from));
        self.env.spawn(async move { shared.serve_connection(stream, &from, place, order).await });
    }

    async fn serve_connection(&self, stream: BoxStream, from: &str, mut unproven: Place, mut order: Order) {
        let authenticating = async {
            match select(pin!(unproven.lost()), pin!(self.authenticate(stream, from))).await {
                Either::Left(_) => Err(HandshakeError::Busy),
                Either::Right((authenticated, _)) => authenticated,
            }
        };
        let Some(authenticated) = order.until_stopped(authenticating).await else { return };
        drop(unproven);
        match authenticated {
            Ok((peer, place, reader, sink)) => {
                connection::serve(&self.env, peer, &self.handler, reader, sink, order).await;
                drop(place);
            }
            Err(error) => self.refusals.record(from, &error),
        }
    }

    /// Runs the handshakes of the channel and of the connection, and reserves a place for the role of the other end.
    async fn authenticate(&self, mut stream: BoxStream, from: &str) -> Result<Authenticated, HandshakeError> {
        let admit = |role| {
            let places = if role == Role::Peer { &self.peers } else { &self.clients };
            places.take()
        };
        let handshake = async {
            let security = secure(&mut stream).await.map_err(HandshakeError::of_stream)?;
            let ServerConfig { identity, keys, .. } = self.config.clone();
            let gate = Gate { identity, keys, handler: Arc::clone(&self.handler), security };
            let (mut reader, mut sink) = link::split(stream);
            let (peer, place) = handshake::accept(&mut reader, &mut sink, &gate, self.env.rng(), from, admit).await?;
            Ok((peer, place, reader, sink))
        };
        timeout(self.config.handshake_limit, handshake).await.map_err(|_| HandshakeError::TimedOut)?
    }
}

/// An authenticated connection, with its place.
type Authenticated = (PeerInfo, OwnedSemaphorePermit, Reader, Sink);
