//! The payload of an entry, as the log and the followers store it.
//!
//! | byte | blank | proposal | membership | reject |
//! |---|---|---|---|---|
//! | 0 | tag 0 | tag 1 | tag 2 | tag 3 |
//! | 1..9 | - | `now`, little-endian | the membership's bytes | the rejected index, little-endian |
//! | 9..17 | - | `seed`, little-endian | | - |
//! | 17.. | - | the encoded proposal | | - |

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::DecodeError;
use crate::{Payload, Stamp};

const BLANK: u8 = 0;
const PROPOSAL: u8 = 1;
const MEMBERSHIP: u8 = 2;
const REJECT: u8 = 3;

/// The number of bytes before the proposal.
pub const PROPOSAL_HEADER: usize = 17;

/// Encodes a payload. For a proposal, this makes the only copy of its bytes on the way of a write.
pub fn encode(payload: &Payload) -> Bytes {
    match payload {
        Payload::Blank => Bytes::from_static(&[BLANK]),
        Payload::Proposal(stamp, proposal) | Payload::Rejected(stamp, proposal) => {
            encode_proposal(&mut BytesMut::new(), *stamp, proposal)
        }
        Payload::Membership(membership) => {
            let mut bytes = BytesMut::with_capacity(membership.len().saturating_add(1));
            bytes.put_u8(MEMBERSHIP);
            bytes.put_slice(membership);
            bytes.freeze()
        }
        Payload::Reject(index) => {
            let mut bytes = BytesMut::with_capacity(size_of::<u64>().saturating_add(1));
            bytes.put_u8(REJECT);
            bytes.put_u64_le(*index);
            bytes.freeze()
        }
    }
}

/// Encodes a stamped proposal at the end of a buffer. Proposals from one buffer share its memory, which is freed with
/// the last of them.
pub fn encode_proposal(buffer: &mut BytesMut, stamp: Stamp, proposal: &[u8]) -> Bytes {
    buffer.reserve(proposal.len().saturating_add(PROPOSAL_HEADER));
    buffer.put_u8(PROPOSAL);
    buffer.put_u64_le(stamp.now);
    buffer.put_u64_le(stamp.seed);
    buffer.put_slice(proposal);
    buffer.split().freeze()
}

/// Returns the index that an encoded payload rejects, if it is a rejection. Cheap for other payloads, because it reads
/// the tag first.
pub fn rejected_index(bytes: &Bytes) -> Option<u64> {
    if bytes.first() != Some(&REJECT) {
        return None;
    }
    match decode(bytes.clone()) {
        Ok(Payload::Reject(index)) => Some(index),
        _ => None,
    }
}

/// Decodes a payload without copying.
pub fn decode(mut bytes: Bytes) -> Result<Payload, DecodeError> {
    let short = || DecodeError::Malformed("an entry is cut short".to_owned());
    match bytes.try_get_u8().map_err(|_| short())? {
        BLANK if bytes.is_empty() => Ok(Payload::Blank),
        PROPOSAL => {
            let now = bytes.try_get_u64_le().map_err(|_| short())?;
            let seed = bytes.try_get_u64_le().map_err(|_| short())?;
            Ok(Payload::Proposal(Stamp { now, seed }, bytes))
        }
        MEMBERSHIP => Ok(Payload::Membership(bytes)),
        REJECT => {
            let index = bytes.try_get_u64_le().map_err(|_| short())?;
            if bytes.is_empty() { Ok(Payload::Reject(index)) } else { Err(DecodeError::Unknown) }
        }
        _ => Err(DecodeError::Unknown),
    }
}
