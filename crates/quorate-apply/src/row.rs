//! The row that records up to which entry a state machine has applied.

use quorate_model::{Applied, Archiver, StoreIdentity};

/// The content of the row. It changes in the same transaction as the data, so it always matches them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedRow {
    /// The cluster, epoch and group of the data.
    pub identity: StoreIdentity,
    /// The last applied entry and the membership.
    pub applied: Applied,
    /// The latest stamp, in nanoseconds since 1970-01-01 UTC: time never goes backwards.
    pub now: u64,
    /// The running hash of outcomes.
    pub outcome_hash: u64,
    /// The node that writes the archive, if one was appointed.
    pub archiver: Option<Archiver>,
}

impl AppliedRow {
    /// Returns the row before the first entry.
    pub fn new(identity: StoreIdentity) -> Self {
        Self { identity, ..Self::default() }
    }
}
