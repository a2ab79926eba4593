//! Connects to a server, and reconnects when a connection was lost.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as SyncMutex};
use std::time::Duration;

use quorate_env::net::secure;
use quorate_env::{Cause, Env, lock, timeout};
use tokio::sync::Mutex;

use crate::client::Client;
use crate::error::{ConnectError, HandshakeError};
use crate::handshake::{self, Introduction};
use crate::identity::{Identity, PeerInfo, Purpose, Role, Secret};
use crate::link::{self, Reader, Sink};

/// The address, the identity and the purpose of a connection.
#[derive(Clone, Debug)]
pub struct DialerConfig {
    /// The address of the server, as `host:port`.
    pub addr: String,
    /// The identity of this node; [`Identity::default`] for a client.
    pub identity: Identity,
    /// The secret of the role; for a user, what it logs in with.
    pub secret: Secret,
    /// The role of this end.
    pub role: Role,
    /// What the connection is for.
    pub purpose: Purpose,
    /// The Raft id of the node that must answer; `None` for any.
    pub expected: Option<u64>,
    /// The time limit for connecting and the handshake together.
    pub connect_limit: Duration,
}

/// Connects to one server. Cheap to clone; all clones share the current connection.
#[derive(Clone)]
pub struct Dialer(Arc<Inner>);

struct Inner {
    env: Env,
    config: DialerConfig,
    present: SyncMutex<Option<Client>>,
    /// The error of the last attempt. Locked while an attempt is under way.
    attempt: Mutex<Option<ConnectError>>,
    attempts: AtomicU64,
}

impl Dialer {
    /// Creates a dialer. It connects when a connection is first needed.
    pub fn new(env: &Env, config: DialerConfig) -> Self {
        Self(Arc::new(Inner {
            env: env.clone(),
            config,
            present: SyncMutex::new(None),
            attempt: Mutex::new(None),
            attempts: AtomicU64::new(0),
        }))
    }

    /// Returns the address of the server.
    pub fn addr(&self) -> &str {
        &self.0.config.addr
    }

    /// Returns the current connection, or makes a new one. Callers that arrive during an attempt share its result.
    /// Makes one attempt only; pauses between attempts are up to the caller.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        if let Some(client) = self.present() {
            return Ok(client);
        }
        let attempts_seen = self.0.attempts.load(Ordering::Acquire);
        let mut last_error = self.0.attempt.lock().await;
        if let Some(client) = self.present() {
            return Ok(client);
        }
        let another_attempt_ended = self.0.attempts.load(Ordering::Acquire) != attempts_seen;
        if let (true, Some(error)) = (another_attempt_ended, last_error.as_ref()) {
            return Err(error.clone());
        }
        let connected = self.connect().await;
        self.0.attempts.fetch_add(1, Ordering::AcqRel);
        *last_error = connected.as_ref().err().cloned();
        let client = connected?;
        *lock(&self.0.present) = Some(client.clone());
        Ok(client)
    }

    /// Returns the current connection, if there is one that accepts calls.
    pub fn present(&self) -> Option<Client> {
        let mut present = lock(&self.0.present);
        if present.as_ref().is_some_and(|client| !client.is_open()) {
            *present = None;
        }
        present.clone()
    }

    /// Forgets the current connection, so that the next call of [`Dialer::client`] makes a new one. The old one closes
    /// when its last user drops it.
    pub fn hang_up(&self) {
        lock(&self.0.present).take();
    }

    /// Makes a separate connection, which is not shared.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        let Inner { env, config, .. } = &*self.0;
        match timeout(config.connect_limit, self.reach()).await {
            Ok(reached) => reached.map(|(peer, reader, sink)| Client::start(env, peer, reader, sink)),
            Err(_) => Err(ConnectError::TimedOut { addr: config.addr.clone() }),
        }
    }

    async fn reach(&self) -> Result<(PeerInfo, Reader, Sink), ConnectError> {
        let Inner { env, config, .. } = &*self.0;
        let addr = || config.addr.clone();
        let connected = env.net().connect(&config.addr).await;
        let mut stream =
            connected.map_err(|error| ConnectError::Unreachable { addr: addr(), source: Cause::from(error) })?;
        let failed = |error| ConnectError::Handshake { addr: addr(), error };
        let secured = secure(&mut stream).await.map_err(|error| failed(HandshakeError::of_stream(error)))?;
        let (mut reader, mut sink) = link::split(stream);
        let me = Introduction {
            identity: config.identity.clone(),
            secret: config.secret.clone(),
            role: config.role,
            purpose: config.purpose,
            expected: config.expected.unwrap_or(0),
            binding: handshake::binding_of(secured.as_ref()),
        };
        let peer = handshake::dial(&mut reader, &mut sink, &me, env.rng(), &config.addr).await.map_err(failed)?;
        Ok((peer, reader, sink))
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialer").field(&self.0.config).finish()
    }
}
