//! The messages between nodes, with explicit tags. `docs/wire-format.md` lists the methods.
//!
//! Everything about one log names its group; a message without a group is about `main`.

use bytes::Bytes;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, VoteRequest, VoteResponse};
use prost::{Message, Oneof};
use quorate_model::{DecodeError, GroupId, LogId};

use crate::raft::codec::{self, EntryBytes, LogIdBytes, VoteBytes, malformed};
use crate::raft::types::{RaftLogId, RaftVote, TypeConfig, from_raft, to_raft};

/// The numbers of the methods between nodes. A number is never reused.
pub(crate) mod method {
    pub(crate) const VOTE: u16 = 1;
    pub(crate) const PRE_VOTE: u16 = 2;
    pub(crate) const HEARTBEAT: u16 = 3;
    pub(crate) const APPEND: u16 = 4;
    pub(crate) const TRANSFER: u16 = 5;
    pub(crate) const IMAGE: u16 = 6;
    pub(crate) const STATUS: u16 = 7;
    pub(crate) const PROMISE: u16 = 8;
    pub(crate) const JOIN: u16 = 9;
    pub(crate) const READ_POSITION: u16 = 10;
    pub(crate) const FORWARD: u16 = 11;
    pub(crate) const STAND: u16 = 12;
    pub(crate) const PULL: u16 = 13;
    /// Methods from this number on belong to the layers above.
    pub(crate) const SERVICE: u16 = 64;
}

/// Asks for a vote, or whether a vote would be granted.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct VoteAsk {
    #[prost(message, required, tag = "1")]
    vote: VoteBytes,
    #[prost(message, optional, tag = "2")]
    last: Option<LogIdBytes>,
    #[prost(bool, tag = "3")]
    transfer: bool,
    #[prost(uint32, tag = "4", default = "1")]
    pub group: u32,
}

/// Answers [`VoteAsk`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct VoteAnswer {
    #[prost(message, required, tag = "1")]
    vote: VoteBytes,
    #[prost(bool, tag = "2")]
    granted: bool,
    #[prost(message, optional, tag = "3")]
    last: Option<LogIdBytes>,
}

/// Sends entries, or none as a heartbeat.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Append {
    #[prost(message, required, tag = "1")]
    vote: VoteBytes,
    #[prost(message, optional, tag = "2")]
    previous: Option<LogIdBytes>,
    #[prost(message, optional, tag = "3")]
    committed: Option<LogIdBytes>,
    #[prost(message, repeated, tag = "4")]
    entries: Vec<EntryBytes>,
    /// The latest entries that were rejected.
    #[prost(uint64, repeated, tag = "5")]
    pub rejected: Vec<u64>,
    #[prost(uint32, tag = "6", default = "1")]
    pub group: u32,
}

/// Answers [`Append`]. At most one of `conflict` and `higher` is set. If neither is, the logs match up to `matched`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Appended {
    #[prost(message, optional, tag = "1")]
    pub matched: Option<LogIdBytes>,
    #[prost(message, optional, tag = "2")]
    pub conflict: Option<LogIdBytes>,
    #[prost(message, optional, tag = "3")]
    pub higher: Option<VoteBytes>,
    /// What the follower's store has applied.
    #[prost(uint64, optional, tag = "4")]
    pub applied: Option<u64>,
}

/// Tells a node that the leader wants `to` to lead.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Transfer {
    #[prost(message, required, tag = "1")]
    pub from: VoteBytes,
    #[prost(fixed64, tag = "2")]
    pub to: u64,
    #[prost(message, optional, tag = "3")]
    pub last: Option<LogIdBytes>,
    #[prost(uint32, tag = "4", default = "1")]
    pub group: u32,
}

/// The first item of an image's stream; the store's pieces follow.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ImageHead {
    #[prost(message, required, tag = "1")]
    pub vote: VoteBytes,
    #[prost(message, optional, tag = "2")]
    pub last: Option<LogIdBytes>,
    #[prost(message, optional, tag = "3")]
    pub membership_id: Option<LogIdBytes>,
    #[prost(bytes = "bytes", tag = "4")]
    pub membership: Bytes,
    #[prost(uint32, tag = "5", default = "1")]
    pub group: u32,
}

/// Asks for an image of the answering node's data. It is the only item of its stream.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pull {
    #[prost(uint32, tag = "1", default = "1")]
    pub group: u32,
}

/// The status that a node reports to any process that knows a secret of the cluster.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusReply {
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    /// 16 bytes; empty before the node belongs to a cluster.
    #[prost(bytes = "bytes", tag = "3")]
    pub cluster: Bytes,
    #[prost(uint64, tag = "4")]
    pub epoch: u64,
    /// Whether the node's log has an entry, or had one: the node belongs to a cluster that lives or lived.
    #[prost(bool, tag = "5")]
    pub member: bool,
    /// The attempt to found a cluster that the node has promised itself to; 0 for none.
    #[prost(uint64, tag = "6")]
    pub attempt: u64,
    /// Nanoseconds since 1970-01-01 UTC by the node's clock.
    #[prost(fixed64, tag = "7")]
    pub now: u64,
    #[prost(fixed64, optional, tag = "8")]
    pub leader: Option<u64>,
    #[prost(uint64, tag = "9")]
    pub term: u64,
    #[prost(uint64, tag = "10")]
    pub last_index: u64,
    #[prost(uint64, tag = "11")]
    pub applied_index: u64,
    #[prost(message, repeated, tag = "12")]
    pub members: Vec<MemberInfo>,
    #[prost(uint64, tag = "13")]
    pub log_bytes: u64,
    #[prost(uint64, tag = "14")]
    pub committed_index: u64,
    /// The number of the node's durability.
    #[prost(uint32, tag = "15")]
    pub durability: u32,
    /// The highest format level that the node's program understands.
    #[prost(uint32, tag = "16")]
    pub level: u32,
    /// The groups beside `main`.
    #[prost(message, repeated, tag = "17")]
    pub groups: Vec<GroupReply>,
    /// Whether the node can write an archive.
    #[prost(bool, tag = "18")]
    pub archives: bool,
    /// Whether the node's data directory belongs to a cluster, or did. Then no cluster is founded with the node.
    #[prost(bool, tag = "30")]
    pub belonged: bool,
}

/// The part of a node's status that is about one group.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GroupReply {
    #[prost(uint32, tag = "1")]
    pub group: u32,
    #[prost(uint64, tag = "2")]
    pub applied_index: u64,
}

/// A member of the cluster, as a node knows it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberInfo {
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub addr: String,
    #[prost(bool, tag = "4")]
    pub voter: bool,
}

/// Asks an empty node to promise itself to a cluster. The node's log keeps the promise in the same form.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Promise {
    #[prost(uint64, tag = "1")]
    pub attempt: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub cluster: Bytes,
    #[prost(message, repeated, tag = "3")]
    pub members: Vec<MemberInfo>,
}

/// Answers [`Promise`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Promised {
    #[prost(bool, tag = "1")]
    pub kept: bool,
    #[prost(string, tag = "2")]
    pub why: String,
}

/// Asks to become a member. Repeated until the answer is `done`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Join {
    #[prost(message, required, tag = "1")]
    pub member: MemberInfo,
    /// The index of a committed membership in which the node is a voter, if there is one.
    #[prost(uint64, optional, tag = "2")]
    pub voter_since: Option<u64>,
    /// The highest format level that the node's program understands.
    #[prost(uint32, tag = "3")]
    pub level: u32,
}

/// Answers [`Join`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Joined {
    #[prost(bool, tag = "1")]
    pub done: bool,
    /// What the leader waits for, or the text about the removal.
    #[prost(string, tag = "2")]
    pub why: String,
    /// Whether the asking node's id was removed, and so never comes back.
    #[prost(bool, tag = "3")]
    pub removed: bool,
}

/// Asks where a node stands at an entry that some node can't apply.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct StandAsk {
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// The term of the leader that asks for a promise to stop before the entry, and its count of such questions. Both
    /// are 0 if no promise is asked for.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    #[prost(uint64, tag = "3")]
    pub round: u64,
    /// The term of the leader to which the asking node has promised to stop before the entry, if it has.
    #[prost(uint64, optional, tag = "4")]
    pub halt_term: Option<u64>,
    /// If a promise is asked for: the leader that proposed the entry, and its term.
    #[prost(fixed64, optional, tag = "5")]
    pub proposed_by: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub proposed_in: Option<u64>,
    /// Set if an operator has decided. The node then promises even if it may have applied the entry and lost it.
    #[prost(bool, tag = "7")]
    pub forced: bool,
    #[prost(uint32, tag = "8", default = "1")]
    pub group: u32,
}

/// Answers [`StandAsk`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StandReply {
    /// The node has applied the entry, and not as a rejected one.
    #[prost(bool, tag = "1")]
    pub applied: bool,
    /// The node has applied the entry as a rejected one.
    #[prost(bool, tag = "2")]
    pub rejected: bool,
    /// The node can't apply the entry; `why` is the reason.
    #[prost(bool, tag = "3")]
    pub stuck: bool,
    /// The promise is given, and durable.
    #[prost(bool, tag = "4")]
    pub promised: bool,
    /// The answering node leads, and the asking node's promise is no longer needed.
    #[prost(bool, tag = "5")]
    pub released: bool,
    #[prost(string, tag = "6")]
    pub why: String,
}

/// Asks the leader of a group for a read position.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadPositionAsk {
    #[prost(uint32, tag = "1", default = "1")]
    pub group: u32,
}

/// A read position; empty if the node does not lead.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadPositionReply {
    #[prost(uint64, optional, tag = "1")]
    pub index: Option<u64>,
}

/// Asks the leader to propose a batch. It is the only item of its stream.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Forward {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub proposals: Vec<Bytes>,
    #[prost(uint32, tag = "2", default = "1")]
    pub group: u32,
}

/// Answers to the proposals of [`Forward`], in their order. Each item continues where the previous one ended.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Forwarded {
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<ForwardAnswer>,
}

/// The result of one proposal.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ForwardAnswer {
    #[prost(oneof = "ForwardAnswerKind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<ForwardAnswerKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ForwardAnswerKind {
    #[prost(message, tag = "1")]
    Written(ForwardWritten),
    /// Nothing was proposed, because the node does not lead. The id of the leader, or 0.
    #[prost(fixed64, tag = "2")]
    NotLeader(u64),
    /// Nothing was proposed, because too many proposals are queued.
    #[prost(bool, tag = "3")]
    Overloaded(bool),
    /// Nothing was proposed, because the node is stopping.
    #[prost(string, tag = "4")]
    Stopped(String),
    /// The proposal may have been made.
    #[prost(string, tag = "5")]
    Unknown(String),
}

/// A proposal that was applied.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ForwardWritten {
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// The outcome, encoded by `quorate_model::codec`.
    #[prost(bytes = "bytes", tag = "2")]
    pub outcome: Bytes,
}

impl VoteAsk {
    pub(crate) fn new(group: GroupId, request: &VoteRequest<TypeConfig>) -> Self {
        Self {
            group: group.0,
            vote: (&request.vote).into(),
            last: id_bytes(request.last_log_id.as_ref()),
            transfer: request.leadership_transfer,
        }
    }
}

impl From<VoteAsk> for VoteRequest<TypeConfig> {
    fn from(ask: VoteAsk) -> Self {
        let mut request = Self::new(ask.vote.into(), ask.last.map(|id| to_raft(id.into())));
        request.leadership_transfer = ask.transfer;
        request
    }
}

impl From<&VoteResponse<TypeConfig>> for VoteAnswer {
    fn from(response: &VoteResponse<TypeConfig>) -> Self {
        Self {
            vote: (&response.vote).into(),
            granted: response.vote_granted,
            last: id_bytes(response.last_log_id.as_ref()),
        }
    }
}

impl From<VoteAnswer> for VoteResponse<TypeConfig> {
    fn from(answer: VoteAnswer) -> Self {
        Self::new(RaftVote::from(answer.vote), answer.last.map(|id| to_raft(id.into())), answer.granted)
    }
}

impl Append {
    /// Creates a request with the commit and the rejections that the leader may announce now.
    pub(crate) fn new(
        group: GroupId,
        request: &AppendEntriesRequest<TypeConfig>,
        committed: Option<RaftLogId>,
        rejected: Vec<u64>,
    ) -> Self {
        let entries = request
            .entries
            .iter()
            .map(|entry| EntryBytes { id: from_raft(&entry.log_id).into(), payload: codec::payload_bytes(entry) });
        Self {
            group: group.0,
            vote: (&request.vote).into(),
            previous: id_bytes(request.prev_log_id.as_ref()),
            committed: id_bytes(committed.as_ref()),
            entries: entries.collect(),
            rejected,
        }
    }
}

impl TryFrom<Append> for AppendEntriesRequest<TypeConfig> {
    type Error = DecodeError;

    fn try_from(append: Append) -> Result<Self, DecodeError> {
        let entries = append.entries.into_iter().map(|entry| codec::entry_from(entry.id.into(), entry.payload));
        Ok(Self {
            vote: append.vote.into(),
            prev_log_id: append.previous.map(|id| to_raft(id.into())),
            entries: entries.collect::<Result<_, _>>()?,
            leader_commit: append.committed.map(|id| to_raft(id.into())),
        })
    }
}

/// openraft's result of one request of a stream.
pub(crate) type StreamResult = openraft::raft::StreamAppendResult<TypeConfig>;

impl From<StreamResult> for Appended {
    fn from(result: StreamResult) -> Self {
        match result {
            Ok(matched) => Self { matched: id_bytes(matched.as_ref()), ..Self::default() },
            Err(StreamAppendError::Conflict(id)) => Self { conflict: id_bytes(Some(&id)), ..Self::default() },
            Err(StreamAppendError::HigherVote(vote)) => Self { higher: Some((&vote).into()), ..Self::default() },
        }
    }
}

impl Appended {
    /// Converts the answer to a single request. Its conflict contains no id; the caller knows what it has sent.
    pub(crate) fn from_unary(response: AppendEntriesResponse<TypeConfig>) -> Self {
        match response {
            AppendEntriesResponse::Success => Self::default(),
            AppendEntriesResponse::PartialSuccess(matched) => {
                Self { matched: id_bytes(matched.as_ref()), ..Self::default() }
            }
            AppendEntriesResponse::Conflict => Self { conflict: Some(LogIdBytes::default()), ..Self::default() },
            AppendEntriesResponse::HigherVote(vote) => Self { higher: Some((&vote).into()), ..Self::default() },
        }
    }
}

impl From<Appended> for StreamResult {
    fn from(appended: Appended) -> Self {
        match (appended.conflict, appended.higher) {
            (Some(id), _) => Err(StreamAppendError::Conflict(to_raft(id.into()))),
            (None, Some(vote)) => Err(StreamAppendError::HigherVote(vote.into())),
            (None, None) => Ok(appended.matched.map(|id| to_raft(id.into()))),
        }
    }
}

/// Converts an optional log id of openraft's.
pub(crate) fn id_bytes(id: Option<&crate::raft::types::RaftLogId>) -> Option<LogIdBytes> {
    id.map(|id| LogId::into(from_raft(id)))
}

/// Decodes a message of a peer.
pub(crate) fn decode<M: Message + Default>(body: Bytes) -> Result<M, DecodeError> {
    M::decode(body).map_err(malformed)
}

/// Encodes a message for a peer.
pub(crate) fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}
