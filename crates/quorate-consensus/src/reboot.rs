//! What becomes of a node with [`Durability::Os`] whose machine was restarted while it ran.
//!
//! Its log may have gone backwards: entries that it acknowledged are gone, and who leads counted on them. So the node
//! comes back as a new member of its cluster, and its former self never votes again.
//!
//! Invariants:
//! - The former log is renamed and never changed.
//! - The directory knows the cluster before the log goes ([`lineage`](crate::lineage)). So nodes that were all
//!   restarted found no other one: each waits for a member that was not.

use quorate_model::GroupId;
use quorate_wal::{Durability, Recovery};

use crate::config::ConsensusConfig;

/// Whether a log was ever part of a cluster's: without a vote or an entry it has promised nothing to anybody.
pub(crate) fn was_in_use(recovery: &Recovery) -> bool {
    let main = recovery.groups.get(&GroupId::MAIN);
    main.is_some_and(|main| main.vote.is_some() || main.last.is_some())
}

/// Whether the log may lack something that this node has promised.
pub(crate) fn may_have_lost(config: &ConsensusConfig, recovery: &Recovery) -> bool {
    config.durability != Durability::Fsync && recovery.may_have_lost() && was_in_use(recovery)
}
