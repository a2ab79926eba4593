//! Encodings of proposals, entries, outcomes and values.
//!
//! The bytes are Protocol Buffers, version 3; `docs/model-format.md` has the messages. An entry of the log adds a fixed
//! header before the proposal ([`entry`]).
//!
//! Protocol Buffers skip unknown fields. A replica must not: it would do less than the others. So a decoder here
//! accepts only what its own encoder would have written ([`DecodeError::Unknown`] otherwise), and an unknown level is
//! an error that names it.

use crate::limits::{FORMAT_LEVEL, PROPOSAL_BYTES_MAX};
use crate::{Failure, FailureKind, Outcome, Proposal, Read, Value};

mod decode;
mod encode;
pub mod entry;

use bytes::Bytes;
use decode::{Decode, Field, Fields, Part};
use encode::{Canonical, Message};

/// Tags of the families, the same in commands, results and reads. 3 to 6 are kept for keys, locks, events and queues.
mod family {
    pub(super) const CONTROL: u32 = 1;
    pub(super) const SQL: u32 = 2;
}

/// Tag of the failure of a pipeline's command, beside the families.
const FAILED: u32 = 15;

/// The mode of a proposal that is a pipeline; an atomic one says nothing.
const PIPELINE: u64 = 1;

/// Why bytes could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They are not what they claim to be.
    #[error("malformed bytes: {0}")]
    Malformed(String),
    /// They come from a newer version: skipping what is unknown would make replicas differ.
    #[error("format level {0} is not known to this version (it knows up to {FORMAT_LEVEL}); install a newer one")]
    Level(u32),
    /// They hold fields that this version does not know.
    #[error("unknown or reordered fields; install the version that the other nodes run")]
    Unknown,
}

impl DecodeError {
    /// Never: the bytes stay what they are.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Encodes a proposal, or fails when it is larger than the limit.
pub fn encode_proposal(proposal: &Proposal) -> Result<Bytes, Failure> {
    check_size(proposal.encoded_len())?;
    Ok(proposal.encode().into())
}

/// Fails for an encoded proposal of more bytes than one may have: no message between nodes would carry it.
pub fn check_size(bytes: usize) -> Result<(), Failure> {
    if bytes <= PROPOSAL_BYTES_MAX {
        return Ok(());
    }
    let text = format!("{bytes} bytes of a transaction, encoded: the limit is {PROPOSAL_BYTES_MAX}; split it");
    Err(Failure::new(FailureKind::TooBig, text))
}

/// Decodes a proposal. Its blobs are slices of `bytes`. An unknown level is the error, whatever else is wrong.
pub fn decode_proposal(bytes: &Bytes) -> Result<Proposal, DecodeError> {
    match strictly::<Proposal>(bytes) {
        Ok(proposal) if proposal.level <= FORMAT_LEVEL => Ok(proposal),
        decoded => newer_level(bytes).map_or(decoded, |level| Err(DecodeError::Level(level))),
    }
}

/// The level of a proposal that only a newer version understands, whatever else that put into it.
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

/// Appends the bytes of an outcome in which all nodes must agree. Texts for people are left empty, because they may
/// change with SQLite's version: messages of failures and names of columns.
pub fn append_canonical_outcome(buffer: &mut Vec<u8>, outcome: &Outcome) {
    outcome.put(&mut Canonical(buffer));
}

/// Decodes an outcome.
pub fn decode_outcome(bytes: &Bytes) -> Result<Outcome, DecodeError> {
    strictly(bytes)
}

/// Encodes a row of values.
pub fn encode_row(values: &[Value]) -> Bytes {
    values.encode().into()
}

/// Bytes that [`encode_row`] makes of a row of values.
pub fn row_len(values: &[Value]) -> usize {
    values.encoded_len()
}

/// Decodes a row of values.
pub fn decode_row(bytes: &Bytes) -> Result<Vec<Value>, DecodeError> {
    strictly(bytes)
}

/// Encodes a read.
pub fn encode_read(read: &Read) -> Bytes {
    read.encode().into()
}

/// Decodes a read.
pub fn decode_read(bytes: &Bytes) -> Result<Read, DecodeError> {
    strictly(bytes)
}

/// Decodes a message and refuses what the encoder would have written otherwise: fields that come twice above all.
fn strictly<M: Message + Decode>(bytes: &Bytes) -> Result<M, DecodeError> {
    let message = M::decode(Part::whole(bytes))?;
    if message.encoded_len() == bytes.len() { Ok(message) } else { Err(DecodeError::Unknown) }
}
