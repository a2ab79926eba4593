//! Encodings of proposals, entries, outcomes and values.
//!
//! The bytes are Protocol Buffers, version 3; `docs/model-format.md` describes the messages. An entry of the log has a
//! fixed header before the proposal ([`entry`]).
//!
//! Protocol Buffers skip unknown fields. A replica must not, because it would do less than the others. Therefore a
//! decoder here accepts only what its own encoder would have written ([`DecodeError::Unknown`] otherwise), and the
//! error for an unknown level names the level.

use crate::events::EventsAnswer;
use crate::limits::{FORMAT_LEVEL, PROPOSAL_BYTES_MAX};
use crate::{Failure, FailureKind, KeysReply, LocksReply, Outcome, Proposal, Read, User, Value};

mod control;
mod decode;
mod encode;
pub mod entry;
mod events;
mod failure;
mod fields;
mod items;
mod keys;
mod locks;

use bytes::Bytes;
use decode::{Decode, Field, Fields, Part};
use encode::{Canonical, Message};

/// Tags of the families, the same in commands, results and reads. 6 is reserved for queues.
mod family {
    pub(super) const CONTROL: u32 = 1;
    pub(super) const SQL: u32 = 2;
    pub(super) const KEYS: u32 = 3;
    pub(super) const LOCKS: u32 = 4;
    pub(super) const EVENTS: u32 = 5;
    pub(super) const ITEMS: u32 = 14;
}

/// The tag of the failure of a pipeline's command, next to the families.
const FAILED: u32 = 15;

/// The mode of a pipeline; an atomic proposal omits the field.
const PIPELINE: u64 = 1;

/// Why bytes could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They are not a valid message.
    #[error("malformed bytes: {0}")]
    Malformed(String),
    /// A newer version wrote them. Skipping the unknown parts would make replicas differ.
    #[error("it is of format level {level}, and this version knows levels up to {known}")]
    Level {
        /// The level that the bytes name.
        level: u32,
        /// The highest level that the reader knows.
        known: u32,
    },
    /// They contain fields that this version does not know.
    #[error("unknown or reordered fields; install the version that the other nodes run")]
    Unknown,
}

impl DecodeError {
    /// Returns `false`: the bytes do not change.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Encodes a proposal, or fails when it is larger than the limit.
pub fn encode_proposal(proposal: &Proposal) -> Result<Bytes, Failure> {
    let size = proposal.encoded_len();
    check_size(size)?;
    Ok(proposal.encode_sized(size).into())
}

/// Fails for an encoded proposal that exceeds the limit: no message between nodes could carry it.
pub fn check_size(bytes: usize) -> Result<(), Failure> {
    if bytes <= PROPOSAL_BYTES_MAX {
        return Ok(());
    }
    let text = format!("{bytes} bytes of a transaction, encoded: the limit is {PROPOSAL_BYTES_MAX}; split it");
    Err(Failure::new(FailureKind::TooBig, text))
}

/// Decodes a proposal. Its blobs are slices of `bytes`. An unknown level is reported in preference to any other error.
pub fn decode_proposal(bytes: &Bytes) -> Result<Proposal, DecodeError> {
    match decode_strictly::<Proposal>(bytes) {
        Ok(proposal) if proposal.level <= FORMAT_LEVEL => Ok(proposal),
        decoded => newer_level(bytes).map_or(decoded, |level| Err(DecodeError::Level { level, known: FORMAT_LEVEL })),
    }
}

/// Returns the level of a proposal, if only a newer version understands it, whatever else that version wrote.
fn newer_level(bytes: &Bytes) -> Option<u32> {
    let mut levels = Fields::of(Part::whole(bytes)).map_while(Result::ok).filter_map(|field| match field {
        (1, Field::Number(level)) => u32::try_from(level).ok(),
        _ => None,
    });
    levels.next().filter(|level| *level > FORMAT_LEVEL)
}

/// Encodes an outcome.
pub fn encode_outcome(outcome: &Outcome) -> Bytes {
    outcome.encode().into()
}

/// Encodes an outcome at the end of a buffer.
pub fn append_outcome(buffer: &mut Vec<u8>, outcome: &Outcome) {
    outcome.put(buffer);
}

/// Appends the bytes of an outcome on which all nodes must agree. Texts for people (messages of failures and names of
/// columns) are left empty, because they may change with SQLite's version.
pub fn append_canonical_outcome(buffer: &mut Vec<u8>, outcome: &Outcome) {
    outcome.put(&mut Canonical(buffer));
}

/// The number of the bytes of an outcome in which all nodes must agree.
pub fn canonical_outcome_len(outcome: &Outcome) -> usize {
    let mut bytes = Vec::new();
    append_canonical_outcome(&mut bytes, outcome);
    bytes.len()
}

/// Decodes an outcome.
pub fn decode_outcome(bytes: &Bytes) -> Result<Outcome, DecodeError> {
    decode_strictly(bytes)
}

/// Encodes a row of values.
pub fn encode_row(values: &[Value]) -> Bytes {
    values.encode().into()
}

/// Returns the number of bytes that [`encode_row`] makes of a row.
pub fn row_len(values: &[Value]) -> usize {
    values.encoded_len()
}

/// Decodes a row of values.
pub fn decode_row(bytes: &Bytes) -> Result<Vec<Value>, DecodeError> {
    decode_strictly(bytes)
}

/// Encodes a read.
pub fn encode_read(read: &Read) -> Bytes {
    read.encode().into()
}

/// Decodes a read.
pub fn decode_read(bytes: &Bytes) -> Result<Read, DecodeError> {
    decode_strictly(bytes)
}

/// Encodes the answer to a read of keys.
pub fn encode_keys_reply(reply: &KeysReply) -> Bytes {
    reply.encode().into()
}

/// Returns the number of bytes that [`encode_keys_reply`] makes of a reply.
pub fn keys_reply_len(reply: &KeysReply) -> usize {
    reply.encoded_len()
}

/// Decodes the answer to a read of keys.
pub fn decode_keys_reply(bytes: &Bytes) -> Result<KeysReply, DecodeError> {
    decode_strictly(bytes)
}

/// Encodes the answer to a read of locks.
pub fn encode_locks_reply(reply: &LocksReply) -> Bytes {
    reply.encode().into()
}

/// Returns the number of bytes that [`encode_locks_reply`] makes of a reply.
pub fn locks_reply_len(reply: &LocksReply) -> usize {
    reply.encoded_len()
}

/// Decodes the answer to a read of locks.
pub fn decode_locks_reply(bytes: &Bytes) -> Result<LocksReply, DecodeError> {
    decode_strictly(bytes)
}

/// Encodes the answer to a read of events.
pub fn encode_events_answer(answer: &EventsAnswer) -> Bytes {
    answer.encode().into()
}

/// Returns the number of bytes that [`encode_events_answer`] makes of an answer.
pub fn events_answer_len(answer: &EventsAnswer) -> usize {
    answer.encoded_len()
}

/// Decodes the answer to a read of events.
pub fn decode_events_answer(bytes: &Bytes) -> Result<EventsAnswer, DecodeError> {
    decode_strictly(bytes)
}

/// Encodes a user, as engines keep it.
pub fn encode_user(user: &User) -> Bytes {
    user.encode().into()
}

/// Decodes a user.
pub fn decode_user(bytes: &Bytes) -> Result<User, DecodeError> {
    decode_strictly(bytes)
}

/// Decodes a message and refuses any encoding that differs from the encoder's own, such as repeated fields.
fn decode_strictly<M: Message + Decode>(bytes: &Bytes) -> Result<M, DecodeError> {
    let message = M::decode(Part::whole(bytes))?;
    if message.encoded_len() == bytes.len() { Ok(message) } else { Err(DecodeError::Unknown) }
}
