//! openraft's types, as Quorate fills them in, and the way between them and the neutral ones of `quorate-model`.

use std::fmt;

use bytes::Bytes;
use openraft::impls::leader_id_adv;
use quorate_model::{LogId, NodeId, Outcome};

use super::runtime::RaftRuntime;

openraft::declare_raft_types!(
    /// What openraft is configured with.
    pub(crate) TypeConfig:
        D = Proposed,
        R = Answer,
        NodeId = u64,
        Node = Member,
        AsyncRuntime = RaftRuntime,
);

pub(crate) type RaftLogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type RaftVote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type RaftEntry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type RaftLeaderId = leader_id_adv::LeaderId<u64, u64>;
pub(crate) type RaftMembership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;

/// A member as every node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The name that its operator gave it; stays when its data directory is replaced.
    pub name: String,
    /// `host:port` where it listens for peers and clients.
    pub addr: String,
}

/// The payload of an entry of ours: already in the form in which the log holds it ([`quorate_model::codec::entry`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposed(pub Bytes);

impl fmt::Display for Proposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What applying an entry produced.
#[derive(Debug)]
pub(crate) struct Answer(pub Outcome);

pub(crate) fn to_raft(id: LogId) -> RaftLogId {
    RaftLogId::new(RaftLeaderId { term: id.term, node_id: id.node.0 }, id.index)
}

pub(crate) fn from_raft(id: &RaftLogId) -> LogId {
    LogId { term: id.leader_id.term, node: NodeId(id.leader_id.node_id), index: id.index }
}
