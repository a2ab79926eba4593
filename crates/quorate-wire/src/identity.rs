//! Who speaks: secrets, roles, purposes, and what a handshake found out about the other end.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::SecretTooShort;
use quorate_env::lock;

/// Bytes that a secret must have at least.
pub const SECRET_BYTES_MIN: usize = 16;

/// A secret that both ends of a connection know. It never prints.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// A secret of at least [`SECRET_BYTES_MIN`] bytes. They should be random: who records a handshake can try
    /// guesses on it.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, SecretTooShort> {
        let bytes = bytes.as_ref();
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(SecretTooShort { len: bytes.len() });
        }
        Ok(Self(bytes.into()))
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

/// As what the dialing end speaks. It has proved that it knows the secret of this role.
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
}

impl Role {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Peer => 1,
            Self::Admin => 2,
            Self::ReadWrite => 3,
            Self::ReadOnly => 4,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Peer, Self::Admin, Self::ReadWrite, Self::ReadOnly].into_iter().find(|role| role.code() == code)
    }
}

/// What a connection is for. Each purpose has its own connection, so that none waits behind another, and its own
/// [`Limits`](crate::Limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Entries, between nodes.
    Data,
    /// Heartbeats and votes, between nodes.
    Heartbeat,
    /// Images, between nodes.
    Image,
    /// What clients ask for: the only purpose that is open to roles other than [`Role::Peer`].
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
}

impl Keys {
    /// Only nodes may connect.
    pub fn peers_only(secret: Secret) -> Self {
        Self { peer: secret, admin: None, read_write: None, read_only: None }
    }

    /// One secret for every role: whoever knows it may do everything.
    pub fn shared(secret: Secret) -> Self {
        let some = Some(secret.clone());
        Self { peer: secret, admin: some.clone(), read_write: some.clone(), read_only: some }
    }

    /// Sets the secret of a role.
    #[must_use]
    pub fn with(mut self, role: Role, secret: Secret) -> Self {
        match role {
            Role::Peer => self.peer = secret,
            Role::Admin => self.admin = Some(secret),
            Role::ReadWrite => self.read_write = Some(secret),
            Role::ReadOnly => self.read_only = Some(secret),
        }
        self
    }

    pub(crate) fn of(&self, role: Role) -> Option<&Secret> {
        match role {
            Role::Peer => Some(&self.peer),
            Role::Admin => self.admin.as_ref(),
            Role::ReadWrite => self.read_write.as_ref(),
            Role::ReadOnly => self.read_only.as_ref(),
        }
    }
}

/// Which node of which cluster this process is. All clones are the same; handshakes use what it says at their time.
///
/// A node that belongs to no cluster yet has the cluster id 0, and one without a Raft id (a client too) has the id 0.
#[derive(Clone, Debug, Default)]
pub struct Identity(Arc<Mutex<Ids>>);

#[derive(Clone, Copy, Debug, Default)]
struct Ids {
    cluster: u128,
    node: u64,
}

impl Identity {
    /// A node of a cluster.
    pub fn new(cluster: u128, node: u64) -> Self {
        Self(Arc::new(Mutex::new(Ids { cluster, node })))
    }

    /// The cluster id; 0 as long as there is none.
    pub fn cluster(&self) -> u128 {
        self.ids().cluster
    }

    /// The Raft id; 0 as long as there is none.
    pub fn node(&self) -> u64 {
        self.ids().node
    }

    /// Changes both. Connections that exist stay, with the identities that their handshakes found.
    pub fn set(&self, cluster: u128, node: u64) {
        *self.ids() = Ids { cluster, node };
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        lock(&self.0)
    }
}

/// What a handshake found out about the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its cluster id; 0 when it belongs to none yet. Two ends with different clusters, none of them 0, never connect.
    pub cluster: u128,
    /// Its Raft id; 0 when it has none.
    pub node: u64,
    /// As what the dialing end speaks.
    pub role: Role,
    /// What the connection is for.
    pub purpose: Purpose,
    /// The version of the protocol on this connection.
    pub version: u16,
    /// What it may carry.
    pub limits: crate::Limits,
    /// The other end's address: as dialed, or as accepted.
    pub addr: Arc<str>,
}
