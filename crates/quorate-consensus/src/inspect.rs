//! Decodes the contents of a node's log for people, without opening the log.
//!
//! Invariant: nothing is written or locked (see [`quorate_wal::inspect`]).

use std::collections::BTreeMap;

use prost::Message;
use quorate_model::{DecodeError, Epoch, NodeId, Payload, Proposal, Stamp, codec};
pub use quorate_wal::inspect::{End, GroupInfo, InspectedEntry, Inspection, SegmentInfo};
pub use quorate_wal::{OpenError, ReadError};

use crate::identity::{ClusterId, Identity, durability_name};
use crate::raft::codec::{decode_membership, decode_vote, malformed};
use crate::raft::types::Member;

/// The identity of the node that a log belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The Raft id of the data directory.
    pub id: NodeId,
    /// The node's name.
    pub name: String,
    /// The cluster, or [`ClusterId::NONE`] before the node belongs to one.
    pub cluster: ClusterId,
    /// The epoch of the cluster.
    pub epoch: Epoch,
    /// The name of the cluster's durability.
    pub durability: String,
    /// The index of a committed membership in which the node is a voter.
    pub voter_since: Option<u64>,
    /// Whether the node was removed from the cluster.
    pub removed: bool,
}

/// A vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The term.
    pub term: u64,
    /// The node that the vote is for.
    pub node: NodeId,
    /// Whether a majority is known to have voted for the node, so that it led or leads.
    pub committed: bool,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// Nothing: a leader has begun its term.
    Blank,
    /// Commands, under the leader's stamp.
    Proposal(Stamp, Proposal),
    /// New members.
    Membership(Membership),
    /// The entry of this index is rejected.
    Reject(u64),
}

/// The members of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// One set of voters, or two while a change is under way.
    pub voters: Vec<Vec<NodeId>>,
    /// All members, voters and learners.
    pub members: BTreeMap<NodeId, Member>,
}

/// Decodes an identity from a log.
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

/// Decodes a vote from a log.
pub fn vote(bytes: &[u8]) -> Result<Vote, DecodeError> {
    let vote = decode_vote(bytes)?;
    Ok(Vote { term: vote.leader_id.term, node: NodeId(vote.leader_id.node_id), committed: vote.committed })
}

/// Decodes an entry from a log.
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
