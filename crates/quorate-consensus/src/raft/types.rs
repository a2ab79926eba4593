//! openraft's types with Quorate's parameters, and conversions between them and the types of `quorate-model`.

use std::fmt;

use bytes::Bytes;
use openraft::OptionalSend;
use openraft::impls::leader_id_adv;
use openraft::raft::responder::Responder;
use quorate_model::{LogId, NodeId, Outcome};

use super::runtime::RaftRuntime;

/// The types that openraft is configured with. openraft's macro does not support a responder with a type parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeConfig;

impl openraft::RaftTypeConfig for TypeConfig {
    type D = Proposed;
    type R = AppliedOutcome;
    type NodeId = u64;
    type Node = Member;
    type Term = u64;
    type LeaderId = RaftLeaderId;
    type Vote = openraft::impls::Vote<RaftLeaderId>;
    type Payload = openraft::EntryPayload<Proposed, u64, Member>;
    type Entry = openraft::impls::Entry<<RaftLeaderId as openraft::vote::RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = RaftRuntime;
    type Responder<T>
        = ResponseCallback<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

pub(crate) type RaftLogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type RaftVote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type RaftEntry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type RaftLeaderId = leader_id_adv::LeaderId<u64, u64>;
pub(crate) type RaftMembership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;

/// A member, as all nodes know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The name that the operator gave the node. It stays when the data directory is replaced.
    pub name: String,
    /// `host:port` at which peers and clients reach the node.
    pub addr: String,
}

/// The payload of a proposal, already in the form in which the log keeps it ([`quorate_model::codec::entry`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposed(pub Bytes);

impl fmt::Display for Proposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The outcome of an applied entry.
#[derive(Debug)]
pub(crate) struct AppliedOutcome(pub Outcome);

/// A callback for the response to a proposal. The thread that has the response calls it.
pub(crate) struct ResponseCallback<T>(Box<dyn FnOnce(T) + Send>);

impl<T> ResponseCallback<T> {
    pub(crate) fn new(answer: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(answer))
    }
}

impl<T: OptionalSend + 'static> Responder<TypeConfig, T> for ResponseCallback<T> {
    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}

pub(crate) fn to_raft(id: LogId) -> RaftLogId {
    RaftLogId::new(RaftLeaderId { term: id.term, node_id: id.node.0 }, id.index)
}

pub(crate) fn from_raft(id: &RaftLogId) -> LogId {
    LogId { term: id.leader_id.term, node: NodeId(id.leader_id.node_id), index: id.index }
}
