//! Nodes with [`Durability::Os`] whose machines were restarted while they ran.
//!
//! The log of such a node may have lost entries that the node has acknowledged and the leader relied on. So the node
//! comes back as a new member of its cluster, and never votes under its former id again.
//!
//! Invariants:
//! - The former log is renamed and never changed.
//! - The file `CLUSTER` is written before the log is moved away ([`lineage`](crate::lineage)). So if all nodes were
//!   restarted, they found no new cluster: each waits for a member that was not restarted.

use quorate_wal::{Durability, Recovery};

use crate::config::ConsensusConfig;

/// Whether a log was ever in use. A log without a vote and without an entry has promised nothing.
pub(crate) fn was_in_use(recovery: &Recovery) -> bool {
    recovery.groups.values().any(|group| group.vote.is_some() || group.last.is_some())
}

/// Whether the log may have lost something that this node has acknowledged.
pub(crate) fn may_have_lost(config: &ConsensusConfig, recovery: &Recovery) -> bool {
    config.durability != Durability::Fsync && recovery.may_have_lost() && was_in_use(recovery)
}
