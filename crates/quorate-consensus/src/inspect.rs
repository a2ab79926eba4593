//! What is in a node's log, for people: read without opening it, its bytes explained.
//!
//! Invariant: nothing is written or locked, as [`quorate_wal::inspect`] says.

use std::collections::BTreeMap;

use prost::Message;
use quorate_model::{DecodeError, Epoch, NodeId, Payload, Proposal, Stamp, codec};
pub use quorate_wal::inspect::{End, GroupInfo, InspectedEntry, Inspection, SegmentInfo};
pub use quorate_wal::{OpenError, ReadError};

use crate::identity::{ClusterId, Identity, durability_name};
use crate::raft::codec::{decode_membership, decode_vote, malformed};
use crate::raft::types::Member;

/// Who a log belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The Raft id of the data directory.
    pub id: NodeId,
    /// The node's name.
    pub name: String,
    /// The cluster; [`ClusterId::NONE`] before it belongs to one.
    pub cluster: ClusterId,
    /// The history of the cluster.
    pub epoch: Epoch,
    /// The durability of the cluster, by its name.
    pub durability: String,
    /// The index of a committed membership in which it is a voter.
    pub voter_since: Option<u64>,
    /// Whether it was removed from the cluster.
    pub removed: bool,
}

/// A vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// In which term.
    pub term: u64,
    /// For whom.
    pub node: NodeId,
    /// Whether a majority is known to have voted so: the node led, or leads.
    pub committed: bool,
}

/// What an entry asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// Nothing: a leader began its term.
    Blank,
    /// Commands, under the leader's stamp.
    Proposal(Stamp, Proposal),
    /// Other members.
    Membership(Membership),
    /// The entry of this index is rejected.
    Reject(u64),
}

/// The members of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// One set of voters, or two while a change is under way.
    pub voters: Vec<Vec<NodeId>>,
    /// Voters and learners.
    pub members: BTreeMap<NodeId, Member>,
}

/// Reads an identity, as a log keeps it.
pub fn identity(bytes: &[u8]) -> Result<NodeIdentity, DecodeError> {
    let identity = Identity::decode(bytes).map_err(malformed)?;
    Ok(NodeIdentity {
        id: identity.node(),
        cluster: identity.cluster(),
        epoch: identity.epoch(),
        durability: durability_name(identity.durability),
        name: identity.name,
        voter_since: identity.voter_since,
        removed: identity.removed,
    })
}

/// Reads a vote, as a log keeps it.
pub fn vote(bytes: &[u8]) -> Result<Vote, DecodeError> {
    let vote = decode_vote(bytes)?;
    Ok(Vote { term: vote.leader_id.term, node: NodeId(vote.leader_id.node_id), committed: vote.committed })
}

/// Reads an entry, as a log keeps it.
pub fn entry(entry: &InspectedEntry) -> Result<Asked, DecodeError> {
    Ok(match codec::entry::decode(entry.bytes.clone())? {
        Payload::Blank => Asked::Blank,
        Payload::Reject(index) => Asked::Reject(index),
        Payload::Proposal(stamp, bytes) | Payload::Rejected(stamp, bytes) => {
            Asked::Proposal(stamp, codec::decode_proposal(&bytes)?)
        }
        Payload::Membership(bytes) => {
            let membership = decode_membership(&bytes)?;
            let voters = membership.get_joint_config().iter();
            Asked::Membership(Membership {
                voters: voters.map(|ids| ids.iter().copied().map(NodeId).collect()).collect(),
                members: membership.nodes().map(|(id, member)| (NodeId(*id), member.clone())).collect(),
            })
        }
    })
}
