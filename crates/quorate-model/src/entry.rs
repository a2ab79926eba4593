//! Items of the log.

use bytes::Bytes;

use crate::{LogId, Stamp};

/// What an entry holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// Nothing: the first entry of a leader's term.
    Blank,
    /// A stamp and an encoded [`Proposal`](crate::Proposal).
    Proposal(Stamp, Bytes),
    /// Who the members are, in consensus's own encoding; a store keeps it without reading it.
    Membership(Bytes),
    /// No majority can apply the entry of this index, which comes before this one: no node runs it. To a store this
    /// entry is blank.
    Reject(u64),
    /// A proposal that a [`Payload::Reject`] names. A store does not run it: its outcome is
    /// [`FailureKind::Rejected`](crate::FailureKind::Rejected). The log holds it as the proposal that it was.
    Rejected(Stamp, Bytes),
}

/// One item of a group's log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its full id.
    pub log_id: LogId,
    /// What it holds.
    pub payload: Payload,
}
