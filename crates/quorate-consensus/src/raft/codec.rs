//! The encodings of votes, memberships and entries, as the log keeps them and peers send them.
//!
//! The encodings have explicit tags and are not derived from openraft's structures, so that another version of openraft
//! changes neither the log nor the wire.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::entry::RaftEntry as _;
use prost::Message;
use quorate_model::{DecodeError, LogId, NodeId, Payload, codec};

use super::types::{
    Member, Proposed, RaftEntry, RaftLeaderId, RaftMembership, RaftVote, StoredMembership, from_raft, to_raft,
};

/// A vote, as the log keeps it and peers send it.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct VoteBytes {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(fixed64, tag = "2")]
    pub node: u64,
    #[prost(bool, tag = "3")]
    pub committed: bool,
}

/// A log id, as peers send it.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LogIdBytes {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(fixed64, tag = "2")]
    pub node: u64,
    #[prost(uint64, tag = "3")]
    pub index: u64,
}

/// An entry, as peers send it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EntryBytes {
    #[prost(message, required, tag = "1")]
    pub id: LogIdBytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub payload: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct MembershipBytes {
    /// One set, or two while a change is under way.
    #[prost(message, repeated, tag = "1")]
    voters: Vec<VoterSet>,
    /// Voters and learners.
    #[prost(message, repeated, tag = "2")]
    members: Vec<MemberBytes>,
}

#[derive(Clone, PartialEq, Message)]
struct VoterSet {
    #[prost(fixed64, repeated, tag = "1")]
    ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct MemberBytes {
    #[prost(fixed64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    addr: String,
}

impl From<&RaftVote> for VoteBytes {
    fn from(vote: &RaftVote) -> Self {
        Self { term: vote.leader_id.term, node: vote.leader_id.node_id, committed: vote.committed }
    }
}

impl From<VoteBytes> for RaftVote {
    fn from(bytes: VoteBytes) -> Self {
        let leader_id = RaftLeaderId { term: bytes.term, node_id: bytes.node };
        Self { leader_id, committed: bytes.committed }
    }
}

impl From<LogId> for LogIdBytes {
    fn from(id: LogId) -> Self {
        Self { term: id.term, node: id.node.0, index: id.index }
    }
}

impl From<LogIdBytes> for LogId {
    fn from(bytes: LogIdBytes) -> Self {
        Self { term: bytes.term, node: NodeId(bytes.node), index: bytes.index }
    }
}

pub(crate) fn encode_vote(vote: &RaftVote) -> Bytes {
    VoteBytes::from(vote).encode_to_vec().into()
}

pub(crate) fn decode_vote(bytes: &[u8]) -> Result<RaftVote, DecodeError> {
    VoteBytes::decode(bytes).map(Into::into).map_err(malformed)
}

pub(crate) fn encode_membership(membership: &RaftMembership) -> Bytes {
    let voters = membership.get_joint_config().iter().map(|set| VoterSet { ids: set.iter().copied().collect() });
    let members = membership.nodes().map(member_bytes).collect();
    MembershipBytes { voters: voters.collect(), members }.encode_to_vec().into()
}

/// Encodes the membership of a new cluster, whose members all vote.
pub(crate) fn encode_founders(members: &BTreeMap<u64, Member>) -> Bytes {
    let voters = vec![VoterSet { ids: members.keys().copied().collect() }];
    MembershipBytes { voters, members: members.iter().map(member_bytes).collect() }.encode_to_vec().into()
}

fn member_bytes((id, member): (&u64, &Member)) -> MemberBytes {
    MemberBytes { id: *id, name: member.name.clone(), addr: member.addr.clone() }
}

pub(crate) fn decode_membership(bytes: &[u8]) -> Result<RaftMembership, DecodeError> {
    let message = MembershipBytes::decode(bytes).map_err(malformed)?;
    let voters: Vec<BTreeSet<u64>> = message.voters.into_iter().map(|set| set.ids.into_iter().collect()).collect();
    let members: BTreeMap<u64, Member> = message
        .members
        .into_iter()
        .map(|member| (member.id, Member { name: member.name, addr: member.addr }))
        .collect();
    RaftMembership::new(voters, members).map_err(malformed)
}

/// Decodes the membership that a store keeps. Returns the empty one if there is none.
pub(crate) fn decode_stored(stored: Option<&(LogId, Bytes)>) -> Result<StoredMembership, DecodeError> {
    match stored {
        None => Ok(StoredMembership::default()),
        Some((id, bytes)) => Ok(StoredMembership::new(Some(to_raft(*id)), decode_membership(bytes)?)),
    }
}

/// Returns the bytes of an entry's payload as the log keeps them. The bytes of a proposal are shared, not copied.
pub(crate) fn payload_bytes(entry: &RaftEntry) -> Bytes {
    match &entry.payload {
        EntryPayload::Normal(proposed) => proposed.0.clone(),
        EntryPayload::Blank => codec::entry::encode(&Payload::Blank),
        EntryPayload::Membership(membership) => {
            codec::entry::encode(&Payload::Membership(encode_membership(membership)))
        }
    }
}

/// Decodes an entry of the log for openraft.
pub(crate) fn entry_from(id: LogId, bytes: Bytes) -> Result<RaftEntry, DecodeError> {
    let payload = match codec::entry::decode(bytes.clone())? {
        Payload::Blank => EntryPayload::Blank,
        Payload::Proposal(..) | Payload::Rejected(..) | Payload::Reject(_) => EntryPayload::Normal(Proposed(bytes)),
        Payload::Membership(membership) => EntryPayload::Membership(decode_membership(&membership)?),
    };
    Ok(RaftEntry { log_id: to_raft(id), payload })
}

/// Converts an entry of openraft's to one for stores.
pub(crate) fn to_model(entry: &RaftEntry) -> Result<quorate_model::Entry, DecodeError> {
    stored(from_raft(&entry.log_id()), payload_bytes(entry))
}

/// Decodes an entry of the log for stores.
pub(crate) fn stored(log_id: LogId, bytes: Bytes) -> Result<quorate_model::Entry, DecodeError> {
    Ok(quorate_model::Entry { log_id, payload: codec::entry::decode(bytes)? })
}

pub(crate) fn malformed(error: impl std::fmt::Display) -> DecodeError {
    DecodeError::Malformed(error.to_string())
}
