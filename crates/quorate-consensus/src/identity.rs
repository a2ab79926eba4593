//! Who this node is: a record in its log, written before anything depends on it.
//!
//! Invariants:
//! - A Raft id is drawn for a data directory and never used with another: a directory that was lost or damaged comes
//!   back under a new id, so it never votes as its former self.
//! - A node belongs to the cluster in this record or to none yet. Once it names one it never names another.
//! - What the record says of voting and of removal only ever comes to be, and never passes.
//! - It names the cluster's durability from the moment on at which it names the cluster.

use bytes::Bytes;
use prost::Message;
use quorate_env::Env;
use quorate_model::{Epoch, NodeId};
use quorate_wal::Durability;

use crate::error::StartError;
use crate::peer::messages::Promise;

/// The name of a cluster, drawn when it is founded, and anew when it is restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

impl ClusterId {
    /// The id of no cluster: what a node names before it belongs to one.
    pub const NONE: Self = Self(0);

    /// One that was never used.
    pub(crate) fn draw(env: &Env) -> Self {
        let id = (u128::from(env.rng().next_u64()) << 64) | u128::from(env.rng().next_u64());
        Self(id.max(1))
    }

    pub(crate) fn to_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_le_bytes())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(u128::from_le_bytes(bytes)))
    }
}

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The record.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Identity {
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    /// 16 bytes; empty before the node belongs to a cluster.
    #[prost(bytes = "bytes", tag = "3")]
    pub cluster: Bytes,
    #[prost(uint64, tag = "4")]
    pub epoch: u64,
    /// What the node promised before the cluster was founded. Its founder founds it with just this set.
    #[prost(message, optional, tag = "5")]
    pub promise: Option<Promise>,
    /// The index of a committed membership in which this node is a voter.
    #[prost(uint64, optional, tag = "6")]
    pub voter_since: Option<u64>,
    /// This node was removed from its cluster.
    #[prost(bool, tag = "7")]
    pub removed: bool,
    /// That of the cluster ([`durability_number`]).
    #[prost(uint32, tag = "8")]
    pub durability: u32,
    /// The index at which the last image ends that was put in the place of the store's state: the log may end before it
    /// until it has caught up.
    #[prost(uint64, optional, tag = "9")]
    pub image_end: Option<u64>,
    /// What earlier lives noted of entries that they could not apply.
    #[prost(message, optional, tag = "10")]
    pub trial: Option<Trial>,
    /// The entries before which the node has promised to stop.
    #[prost(message, repeated, tag = "11")]
    pub halts: Vec<Halt>,
    /// The image end before [`image_end`](Self::image_end), which may not have been put in force.
    #[prost(uint64, optional, tag = "13")]
    pub image_end_before: Option<u64>,
    /// The store durably held all entries up to here: a store that ends earlier is damaged.
    #[prost(uint64, optional, tag = "12")]
    pub stored: Option<u64>,
    /// The directory belonged to a cluster of which nothing is known any more ([`lineage`](crate::lineage)): this node
    /// joins one, and founds none.
    #[prost(bool, tag = "20")]
    pub belonged: bool,
}

/// What a node must know of its former lives to find the entry that ends them.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Trial {
    /// The last applied entry at the latest start.
    #[prost(uint64, tag = "1")]
    pub applied: u64,
    /// Starts in a row at this entry, each after an end that was not clean.
    #[prost(uint32, tag = "2")]
    pub starts: u32,
    /// The entry that was about to be applied alone, or that could not be applied.
    #[prost(uint64, optional, tag = "3")]
    pub trying: Option<u64>,
}

/// A promise to a leader: not to apply an entry until its rejection is decided.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Halt {
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// The leader's term.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// The leader's count of its questions, from 1.
    #[prost(uint64, tag = "3")]
    pub round: u64,
}

/// What records and messages say of a durability. What says nothing was written when there was only fsync: 0.
pub(crate) fn durability_number(durability: Durability) -> u32 {
    match durability {
        Durability::Os => 1,
        _ => 0,
    }
}

/// The name behind a number of [`durability_number`], be it a later version's.
pub(crate) fn durability_name(number: u32) -> String {
    let known = Durability::ALL.into_iter().find(|known| durability_number(*known) == number);
    known.map_or_else(|| format!("number {number}, which this version does not know"), |known| known.to_string())
}

impl Identity {
    /// The identity of a new data directory.
    pub(crate) fn new(id: u64, name: &str) -> Self {
        Self { id, name: name.to_owned(), ..Self::default() }
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, StartError> {
        Self::decode(bytes).map_err(|error| StartError::Identity(error.to_string()))
    }

    pub(crate) fn node(&self) -> NodeId {
        NodeId(self.id)
    }

    /// The cluster, or [`ClusterId::NONE`].
    pub(crate) fn cluster(&self) -> ClusterId {
        ClusterId::from_bytes(&self.cluster).unwrap_or(ClusterId::NONE)
    }

    /// Whether the directory belongs to a cluster, or did: then it never founds one.
    pub(crate) fn has_belonged(&self) -> bool {
        self.belonged || !self.cluster.is_empty()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }
}
