//! Whose data a database holds.

use quorate_model::{Epoch, GroupId};

/// Whose data a database holds: kept in it, and compared at every opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreIdentity {
    /// The cluster.
    pub cluster: u128,
    /// The uninterrupted history of it.
    pub epoch: Epoch,
    /// The Raft group.
    pub group: GroupId,
}
