//! The parts of an entry that the history compares.

use bytes::Bytes;
use quorate_model::{Entry, LogId, Payload, Stamp};
use xxhash_rust::xxh3::xxh3_64;

/// An entry that a store is given to apply, reduced to what the history compares.
pub struct GivenEntry {
    pub(super) log_id: LogId,
    pub(super) payload: u64,
    pub(super) proposal: Option<(Stamp, Bytes)>,
    /// Whether the entry has an outcome.
    pub(super) has_outcome: bool,
}

impl From<&Entry> for GivenEntry {
    fn from(entry: &Entry) -> Self {
        let proposal = match &entry.payload {
            Payload::Proposal(stamp, bytes) => Some((*stamp, bytes.clone())),
            _ => None,
        };
        let has_outcome = matches!(entry.payload, Payload::Proposal(..) | Payload::Rejected(..));
        Self { log_id: entry.log_id, payload: payload_hash(&entry.payload), proposal, has_outcome }
    }
}

/// Returns the hash by which payloads are compared.
fn payload_hash(payload: &Payload) -> u64 {
    match payload {
        Payload::Blank => 0,
        Payload::Reject(index) => index.rotate_left(2),
        Payload::Proposal(stamp, bytes) | Payload::Rejected(stamp, bytes) => {
            xxh3_64(bytes) ^ stamp.now.rotate_left(17) ^ stamp.seed
        }
        Payload::Membership(bytes) => xxh3_64(bytes).rotate_left(1),
    }
}
