//! Makes connections, and makes them again.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as SyncMutex};
use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Env, lock, timeout};
use tokio::sync::Mutex;

use crate::client::Client;
use crate::error::ConnectError;
use crate::handshake::{self, Introduction};
use crate::identity::{Identity, PeerInfo, Purpose, Role, Secret};
use crate::link::{self, Reader, Sink};

/// Where to connect, as whom, and what for.
#[derive(Clone, Debug)]
pub struct DialerConfig {
    /// `host:port`.
    pub addr: String,
    /// Which node this is; [`Identity::default`] for a client that belongs to none.
    pub identity: Identity,
    /// The secret of the role.
    pub secret: Secret,
    /// As what this end speaks.
    pub role: Role,
    /// What the connection is for.
    pub purpose: Purpose,
    /// The Raft id that must answer; `None` for any.
    pub expected: Option<u64>,
    /// Time for connecting and the handshake together.
    pub connect_limit: Duration,
}

/// Makes connections to one server. Cheap to clone; all clones share the present connection.
#[derive(Clone)]
pub struct Dialer(Arc<Inner>);

struct Inner {
    env: Env,
    config: DialerConfig,
    present: SyncMutex<Option<Client>>,
    /// Held while connecting, with how the last attempt failed.
    attempt: Mutex<Option<ConnectError>>,
    attempts: AtomicU64,
}

impl Dialer {
    /// A dialer that has not connected yet.
    pub fn new(env: &Env, config: DialerConfig) -> Self {
        Self(Arc::new(Inner {
            env: env.clone(),
            config,
            present: SyncMutex::new(None),
            attempt: Mutex::new(None),
            attempts: AtomicU64::new(0),
        }))
    }

    /// Where it connects.
    pub fn addr(&self) -> &str {
        &self.0.config.addr
    }

    /// The present connection, or else a new one. Callers that come while one is being made share its success or its
    /// error. Makes one attempt; pauses between attempts are the caller's.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        if let Some(client) = self.present() {
            return Ok(client);
        }
        let attempts_seen = self.0.attempts.load(Ordering::Acquire);
        let mut last_error = self.0.attempt.lock().await;
        if let Some(client) = self.present() {
            return Ok(client);
        }
        let was_tried_meanwhile = self.0.attempts.load(Ordering::Acquire) != attempts_seen;
        if let (true, Some(error)) = (was_tried_meanwhile, last_error.as_ref()) {
            return Err(error.clone());
        }
        let connected = self.connect().await;
        self.0.attempts.fetch_add(1, Ordering::AcqRel);
        *last_error = connected.as_ref().err().cloned();
        let client = connected?;
        *lock(&self.0.present) = Some(client.clone());
        Ok(client)
    }

    /// The present connection, if there is one that takes calls.
    pub fn present(&self) -> Option<Client> {
        let mut present = lock(&self.0.present);
        if present.as_ref().is_some_and(|client| !client.is_open()) {
            *present = None;
        }
        present.clone()
    }

    /// Forgets the present connection, which closes when nobody uses it any more: the next call of
    /// [`Dialer::client`] makes another.
    pub fn hang_up(&self) {
        lock(&self.0.present).take();
    }

    /// Makes a connection of its own, beside the shared one.
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
        let stream =
            connected.map_err(|error| ConnectError::Unreachable { addr: addr(), reason: error.to_string() })?;
        let (mut reader, mut sink) = link::split(stream);
        let me = Introduction {
            identity: config.identity.clone(),
            secret: config.secret.clone(),
            role: config.role,
            purpose: config.purpose,
            expected: config.expected.unwrap_or(0),
            binding: Bytes::new(),
        };
        match handshake::dial(&mut reader, &mut sink, &me, env.rng(), &config.addr).await {
            Ok(peer) => Ok((peer, reader, sink)),
            Err(error) => Err(ConnectError::Handshake { addr: addr(), error }),
        }
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialer").field(&self.0.config).finish()
    }
}
