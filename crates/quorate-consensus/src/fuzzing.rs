//! Entry points for fuzzing: they decode bytes of peers and of the log, and encode the result again.
//!
//! Invariant: the functions here only call what a node calls, through openraft's types if a node uses those.

use bytes::Bytes;
use openraft::raft::{AppendEntriesRequest, VoteRequest, VoteResponse};
use prost::Message;
use quorate_model::{GroupId, LogId};

use crate::identity::Identity;
use crate::peer::messages::{
    Append, Appended, Forward, Forwarded, ImageHead, Join, Joined, Promise, Promised, Pull, ReadPositionAsk,
    ReadPositionReply, StatusReply, StreamResult, Transfer, VoteAnswer, VoteAsk, decode, encode,
};
use crate::raft::codec;
use crate::raft::types::TypeConfig;

/// Decodes bytes and encodes the result; `None` if the bytes are refused.
pub type Reencode = fn(Bytes) -> Option<Bytes>;

/// The messages and records that are decoded, by name. Keep the order: corpora contain places in this list.
pub const ALL: &[(&str, Reencode)] = &[
    ("vote", |bytes| codec::decode_vote(&bytes).ok().map(|vote| codec::encode_vote(&vote))),
    ("membership", |bytes| codec::decode_membership(&bytes).ok().map(|members| codec::encode_membership(&members))),
    ("entry", |bytes| codec::entry_from(LogId::default(), bytes).ok().map(|entry| codec::payload_bytes(&entry))),
    ("identity", |bytes| Identity::read(&bytes).ok().map(|identity| encode(&identity))),
    ("vote ask", |bytes| {
        let ask: VoteAsk = read(bytes)?;
        Some(encode(&VoteAsk::new(GroupId(ask.group), &VoteRequest::<TypeConfig>::from(ask))))
    }),
    ("vote answer", |bytes| {
        Some(encode(&VoteAnswer::from(&VoteResponse::<TypeConfig>::from(read::<VoteAnswer>(bytes)?))))
    }),
    ("append", |bytes| {
        let append: Append = read(bytes)?;
        let (group, rejected) = (GroupId(append.group), append.rejected.clone());
        let request = AppendEntriesRequest::<TypeConfig>::try_from(append).ok()?;
        Some(encode(&Append::new(group, &request, request.leader_commit, rejected)))
    }),
    ("appended", |bytes| Some(encode(&Appended::from(StreamResult::from(read::<Appended>(bytes)?))))),
    ("image head", |bytes| {
        let head: ImageHead = read(bytes)?;
        if head.membership_id.is_some() {
            codec::decode_membership(&head.membership).ok()?;
        }
        Some(encode(&head))
    }),
    ("transfer", again::<Transfer>),
    ("status", again::<StatusReply>),
    ("promise", again::<Promise>),
    ("promised", again::<Promised>),
    ("join", again::<Join>),
    ("joined", again::<Joined>),
    ("read position", again::<ReadPositionReply>),
    ("forward", again::<Forward>),
    ("forwarded", again::<Forwarded>),
    ("ask for a read position", again::<ReadPositionAsk>),
    ("pull", again::<Pull>),
];

fn read<M: Message + Default>(bytes: Bytes) -> Option<M> {
    decode(bytes).ok()
}

fn again<M: Message + Default>(bytes: Bytes) -> Option<Bytes> {
    read::<M>(bytes).map(|message| encode(&message))
}
