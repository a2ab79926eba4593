//! The identity of a database: the cluster, epoch and group whose data it holds.

use quorate_model::{Epoch, GroupId};

/// The cluster, epoch and group whose data a database holds. It is stored in the database and checked whenever that is
/// opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreIdentity {
    /// The cluster.
    pub cluster: u128,
    /// The uninterrupted history of the cluster.
    pub epoch: Epoch,
    /// The Raft group.
    pub group: GroupId,
}
