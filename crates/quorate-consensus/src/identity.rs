//! The identity of this node: a record in its log, written before anything depends on it.
//!
//! Invariants:
//! - A Raft id is drawn at random for one data directory and never used with another. A node whose directory is lost or
//!   damaged comes back under a new id, so it never votes under the old one.
//! - A node belongs to the cluster in this record, or to none yet. Once set, the cluster never changes.
//! - The voting and removal fields are set once and never cleared.
//! - The record contains the cluster's durability as soon as it contains the cluster.

use bytes::Bytes;
use prost::Message;
use quorate_env::{Cause, Env};
use quorate_model::{Epoch, GroupId, NodeId};
use quorate_wal::Durability;

use crate::error::StartError;
use crate::peer::messages::Promise;

/// The id of a cluster, drawn at random when it is founded, and again when it is restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

impl ClusterId {
    /// Stands for no cluster: the id of a node that belongs to none yet.
    pub const NONE: Self = Self(0);

    /// Draws a new id.
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

/// The identity, as the log keeps it.
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
    /// The promise that the node gave before the cluster was founded. The cluster is founded with exactly this set.
    #[prost(message, optional, tag = "5")]
    pub promise: Option<Promise>,
    /// The index of a committed membership in which this node is a voter.
    #[prost(uint64, optional, tag = "6")]
    pub voter_since: Option<u64>,
    /// This node was removed from its cluster.
    #[prost(bool, tag = "7")]
    pub removed: bool,
    /// The cluster's durability ([`durability_number`]).
    #[prost(uint32, tag = "8")]
    pub durability: u32,
    /// What the node must know about each group. Groups without anything to know are absent.
    #[prost(message, repeated, tag = "14")]
    pub groups: Vec<GroupNotes>,
    /// The directory belonged to a cluster whose id is lost ([`lineage`](crate::lineage)): this node may join a cluster
    /// but never founds one.
    #[prost(bool, tag = "20")]
    pub belonged: bool,
}

/// What a node must know about its part in a group.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GroupNotes {
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// The index at which the last image ends that replaced the store's state. Until the log has caught up, it may end
    /// before this index.
    #[prost(uint64, optional, tag = "2")]
    pub image_end: Option<u64>,
    /// The value of [`image_end`](Self::image_end) before the present one, whose image may not have been installed.
    #[prost(uint64, optional, tag = "3")]
    pub image_end_before: Option<u64>,
    /// What earlier processes recorded about entries that they could not apply.
    #[prost(message, optional, tag = "4")]
    pub trial: Option<Trial>,
    /// The entries before which the node has promised to stop.
    #[prost(message, repeated, tag = "5")]
    pub halts: Vec<Halt>,
    /// The store durably held all entries up to this index: a store that ends earlier is damaged.
    #[prost(uint64, optional, tag = "6")]
    pub stored: Option<u64>,
}

/// What a node must know about earlier processes to find an entry that ends the process each time.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Trial {
    /// The last applied entry at the latest start.
    #[prost(uint64, tag = "1")]
    pub applied: u64,
    /// Consecutive starts at this entry, each after an unclean end.
    #[prost(uint32, tag = "2")]
    pub starts: u32,
    /// The entry that was about to be applied alone, or could not be applied.
    #[prost(uint64, optional, tag = "3")]
    pub trying: Option<u64>,
}

/// A promise to a leader not to apply an entry until it is decided whether the entry is rejected.
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

/// Returns the number of a durability in records and messages. Those without a number were written when there was only
/// fsync, so that is 0.
pub(crate) fn durability_number(durability: Durability) -> u32 {
    match durability {
        Durability::Os => 1,
        _ => 0,
    }
}

/// Returns the name of a durability by its number, which may be one of a later version.
pub(crate) fn durability_name(number: u32) -> String {
    let known = Durability::ALL.into_iter().find(|known| durability_number(*known) == number);
    known.map_or_else(|| format!("number {number}, which this version does not know"), |known| known.to_string())
}

impl Identity {
    /// Returns the identity of a new data directory.
    pub(crate) fn new(id: u64, name: &str) -> Self {
        Self { id, name: name.to_owned(), ..Self::default() }
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, StartError> {
        Self::decode(bytes).map_err(|error| StartError::Identity(Cause::from(error)))
    }

    /// Returns what the node must know about its part in a group.
    pub(crate) fn notes(&self, group: GroupId) -> GroupNotes {
        self.groups.iter().find(|notes| notes.group == group.0).cloned().unwrap_or_default()
    }

    /// Changes what the node must know about its part in a group.
    pub(crate) fn note(&mut self, group: GroupId, note: impl FnOnce(&mut GroupNotes)) {
        let mut notes = GroupNotes { group: group.0, ..self.notes(group) };
        note(&mut notes);
        self.groups.retain(|known| known.group != group.0);
        self.groups.push(notes);
    }

    pub(crate) fn node(&self) -> NodeId {
        NodeId(self.id)
    }

    /// Returns the cluster, or [`ClusterId::NONE`].
    pub(crate) fn cluster(&self) -> ClusterId {
        ClusterId::from_bytes(&self.cluster).unwrap_or(ClusterId::NONE)
    }

    /// Whether the directory belongs to a cluster, or did. Then the node never founds one.
    pub(crate) fn has_belonged(&self) -> bool {
        self.belonged || !self.cluster.is_empty()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }
}
