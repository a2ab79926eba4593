//! Encodings of proposals, entries, outcomes and values.
//!
//! The bytes are Protocol Buffers, version 3, with the tags of [`wire`]; `docs/model-format.md` explains them. An entry
//! of the log adds a fixed header before the proposal ([`entry`]).
//!
//! Protocol Buffers skip unknown fields. A replica must not: it would do less than the others. So a decoder here
//! accepts only what its own encoder would have written ([`DecodeError::Unknown`] otherwise), and an unknown level is
//! an error that names it.

use prost::Message;

use crate::limits::{FORMAT_LEVEL, PROPOSAL_BYTES_MAX};
use crate::{Failure, FailureKind, Outcome, Proposal, Value};

mod convert;
pub mod entry;
mod wire;

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
pub fn encode_proposal(proposal: &Proposal) -> Result<Vec<u8>, Failure> {
    let message = wire::Proposal::from(proposal);
    let size = message.encoded_len();
    if size > PROPOSAL_BYTES_MAX {
        let text = format!("{size} bytes of a proposal: the limit is {PROPOSAL_BYTES_MAX}; split it");
        return Err(Failure::new(FailureKind::TooBig, text));
    }
    Ok(message.encode_to_vec())
}

/// Decodes a proposal. Whatever else is wrong with one of an unknown level, the level is the error.
pub fn decode_proposal(bytes: &[u8]) -> Result<Proposal, DecodeError> {
    let decoded = strictly::<wire::Proposal>(bytes).and_then(TryInto::try_into);
    if decoded.as_ref().is_ok_and(|proposal: &Proposal| proposal.level <= FORMAT_LEVEL) {
        return decoded;
    }
    match wire::Level::decode(bytes).map_err(malformed)?.level {
        level if level > FORMAT_LEVEL => Err(DecodeError::Level(level)),
        _ => decoded,
    }
}

/// Encodes an outcome.
pub fn encode_outcome(outcome: &Outcome) -> Vec<u8> {
    wire::Outcome::from(outcome).encode_to_vec()
}

/// Decodes an outcome.
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, DecodeError> {
    strictly::<wire::Outcome>(bytes)?.try_into()
}

/// Encodes a row of values.
pub fn encode_row(values: &[Value]) -> Vec<u8> {
    wire::Row { values: values.iter().map(Into::into).collect() }.encode_to_vec()
}

/// Decodes a row of values.
pub fn decode_row(bytes: &[u8]) -> Result<Vec<Value>, DecodeError> {
    strictly::<wire::Row>(bytes)?.values.into_iter().map(TryInto::try_into).collect()
}

/// Decodes a message and refuses what the encoder would have written otherwise: unknown fields above all.
fn strictly<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    let message = M::decode(bytes).map_err(malformed)?;
    if message.encoded_len() == bytes.len() { Ok(message) } else { Err(DecodeError::Unknown) }
}

fn malformed(error: impl std::fmt::Display) -> DecodeError {
    DecodeError::Malformed(error.to_string())
}
