//! Secrets, roles, purposes and identities, and what a handshake found out about the other end.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::SecretTooShort;
use quorate_env::lock;

/// The minimum length of a secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;

/// A secret that both ends of a connection know. It is never printed.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Creates a secret from at least [`SECRET_BYTES_MIN`] bytes. They should be random, because an attacker that
    /// records a handshake can test guesses against it.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, SecretTooShort> {
        let bytes = bytes.as_ref();
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(SecretTooShort { len: bytes.len() });
        }
        Ok(Self(bytes.into()))
    }

    /// Creates what a user logs in with, in the form that the server's handler reads.
    pub fn credentials(bytes: impl AsRef<[u8]>) -> Self {
        Self(bytes.as_ref().into())
    }

    /// Returns the key under which users sign a handshake. Everyone knows it, so it proves nothing.
    pub(crate) fn of_users() -> Self {
        Self(Arc::from(*b"quorate: a user proves nothing by this"))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The role of the dialing end. The dialing end has proved that it knows the secret of this role, or has logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Another node.
    Peer,
    /// A client that may do everything.
    Admin,
    /// A client that may read and write.
    ReadWrite,
    /// A client that may read.
    ReadOnly,
    /// A client that has logged in as a user. What it may do depends on the user ([`PeerInfo::user`]).
    User,
}

impl Role {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Peer => 1,
            Self::Admin => 2,
            Self::ReadWrite => 3,
            Self::ReadOnly => 4,
            Self::User => 5,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        let all = [Self::Peer, Self::Admin, Self::ReadWrite, Self::ReadOnly, Self::User];
        all.into_iter().find(|role| role.code() == code)
    }
}

/// What a connection is for. Each purpose has its own [`Limits`](crate::Limits) and its own connection, so that none
/// waits behind another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Entries, between nodes.
    Data,
    /// Heartbeats and votes, between nodes.
    Heartbeat,
    /// Images, between nodes.
    Image,
    /// Requests of clients. This is the only purpose open to roles other than [`Role::Peer`].
    Client,
}

impl Purpose {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Heartbeat => 2,
            Self::Image => 3,
            Self::Client => 4,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Data, Self::Heartbeat, Self::Image, Self::Client].into_iter().find(|purpose| purpose.code() == code)
    }
}

/// The secrets that a server accepts, one for each role. Roles can be told apart only if their secrets differ.
#[derive(Clone, Debug)]
pub struct Keys {
    peer: Secret,
    admin: Option<Secret>,
    read_write: Option<Secret>,
    read_only: Option<Secret>,
    users: Secret,
}

impl Keys {
    /// Creates keys that admit only nodes.
    pub fn peers_only(secret: Secret) -> Self {
        Self { peer: secret, admin: None, read_write: None, read_only: None, users: Secret::of_users() }
    }

    /// Creates keys with one secret for every role. A client that knows it may do everything.
    pub fn shared(secret: Secret) -> Self {
        let some = Some(secret.clone());
        let users = Secret::of_users();
        Self { peer: secret, admin: some.clone(), read_write: some.clone(), read_only: some, users }
    }

    /// Sets the secret of a role. Users have none.
    #[must_use]
    pub fn with(mut self, role: Role, secret: Secret) -> Self {
        match role {
            Role::Peer => self.peer = secret,
            Role::Admin => self.admin = Some(secret),
            Role::ReadWrite => self.read_write = Some(secret),
            Role::ReadOnly => self.read_only = Some(secret),
            Role::User => {}
        }
        self
    }

    pub(crate) fn of(&self, role: Role) -> Option<&Secret> {
        match role {
            Role::Peer => Some(&self.peer),
            Role::Admin => self.admin.as_ref(),
            Role::ReadWrite => self.read_write.as_ref(),
            Role::ReadOnly => self.read_only.as_ref(),
            Role::User => Some(&self.users),
        }
    }
}

/// The cluster id and Raft id of this process. Clones share them; a handshake uses the ids that are set at its time.
///
/// The cluster id is 0 while the node belongs to no cluster. The Raft id is 0 while the node has none, and for a
/// client.
#[derive(Clone, Debug, Default)]
pub struct Identity(Arc<Mutex<Ids>>);

#[derive(Clone, Copy, Debug, Default)]
struct Ids {
    cluster: u128,
    node: u64,
}

impl Identity {
    /// Creates the identity of a node in a cluster.
    pub fn new(cluster: u128, node: u64) -> Self {
        Self(Arc::new(Mutex::new(Ids { cluster, node })))
    }

    /// Returns the cluster id; 0 while there is none.
    pub fn cluster(&self) -> u128 {
        self.ids().cluster
    }

    /// Returns the Raft id; 0 while there is none.
    pub fn node(&self) -> u64 {
        self.ids().node
    }

    /// Sets both ids. Existing connections stay open and keep the identities from their handshakes.
    pub fn set(&self, cluster: u128, node: u64) {
        *self.ids() = Ids { cluster, node };
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        lock(&self.0)
    }
}

/// What a handshake found out about the other end of a connection.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// Its cluster id; 0 while it belongs to none. Two ends with different cluster ids other than 0 never connect.
    pub cluster: u128,
    /// Its Raft id; 0 if it has none.
    pub node: u64,
    /// The role of the dialing end.
    pub role: Role,
    /// What the connection is for.
    pub purpose: Purpose,
    /// The version of the protocol on this connection.
    pub version: u16,
    /// What the connection may carry.
    pub limits: crate::Limits,
    /// The address of the other end, as dialed or as accepted.
    pub addr: Arc<str>,
    /// The user that the dialing end has logged in as, as [`Handler::login`](crate::Handler::login) returned it. At the
    /// dialing end, and for other roles, `None`.
    pub user: Option<User>,
}

/// A user, of the type that the server's handler uses.
pub type User = Arc<dyn Any + Send + Sync>;
