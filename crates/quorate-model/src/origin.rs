//! The origin of a proposal.

/// A client's identity for exactly-once retries: the index of the entry that opened the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The session and sequence of a request, by which a retry is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The session.
    pub session: SessionId,
    /// The number of this request in its session, from 1; a retry has the same number.
    pub sequence: u64,
    /// The client has the outcomes of all sequences up to this one, and will never ask for them again.
    pub floor: u64,
}
