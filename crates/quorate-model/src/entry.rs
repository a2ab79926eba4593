//! Items of the log.

use bytes::Bytes;

use crate::{LogId, Stamp};

/// The content of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// Nothing: the first entry of a leader's term.
    Blank,
    /// A stamp and an encoded [`Proposal`](crate::Proposal).
    Proposal(Stamp, Bytes),
    /// The members, in the encoding of the consensus crate; a store keeps it without reading it.
    Membership(Bytes),
    /// Rejects the entry with this index, which comes before this one: no majority can apply it, so no node runs it.
    /// For a store, this entry is blank.
    Reject(u64),
    /// A proposal that a [`Payload::Reject`] names. A store does not run it: its outcome is
    /// [`FailureKind::Rejected`](crate::FailureKind::Rejected). The log stores it as a normal proposal.
    Rejected(Stamp, Bytes),
}

/// One item of a group's log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its full id.
    pub log_id: LogId,
    /// Its content.
    pub payload: Payload,
}
