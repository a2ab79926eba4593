//! A node's standing in its cluster: which leader reaches it, whether it votes, and whether it may ask for votes.
//!
//! Invariant: a node whose data differ from those of the others never asks for votes.

use std::time::Duration;

use openraft::rt::WatchReceiver;
use openraft_rt::Instant as _;
use quorate_env::sleep;
use quorate_model::{NodeId, StoreFault};

use crate::belong::applied_membership;
use crate::group::Group;
use crate::membership;

/// What a node knows about its own place in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The last leader that the node knew, even if that leader is gone.
    pub last_leader: Option<NodeId>,
    /// The time since the last entries or heartbeat of a leader; `None` if there were none since the node started. Zero
    /// for a node that leads.
    pub leader_silent_for: Option<Duration>,
    /// Whether the node has applied its own admission. Before that it may have none of the cluster's data.
    pub joined: bool,
    /// Whether the node's vote counts in each majority that the cluster needs.
    pub votes: bool,
}

/// Returns the leader, if it is in contact with a majority or with this node, and the node's standing.
///
/// A leader that has been silent for longer than a failover takes is omitted: by then another node leads, or none does.
pub(crate) fn standing(group: &Group) -> (Option<NodeId>, Standing) {
    let own = *group.raft.node_id();
    let timing = group.config.timing;
    let limit = timing.election_max.saturating_mul(2);
    let (known, quorum_acked) = {
        let metrics = group.raft.metrics();
        let metrics = metrics.borrow_watched();
        let acked = metrics.last_quorum_acked.map(|at| at.into_inner().elapsed());
        (metrics.current_leader, acked)
    };
    let heard = group.leader_contact.last();
    let leads = known == Some(own);
    let is_there = if leads {
        quorum_acked.is_some_and(|silence| silence <= limit) || membership::hears_majority(&group.peers, &group.raft)
    } else {
        heard.is_some_and(|(leader, silence)| Some(leader) == known && silence <= limit)
    };
    let membership = applied_membership(&group.store.applied());
    let configs = membership.as_ref().map(|(_, membership)| membership.get_joint_config().clone()).unwrap_or_default();
    let standing = Standing {
        last_leader: known.or(heard.map(|(leader, _)| leader)).map(NodeId),
        leader_silent_for: if leads { Some(Duration::ZERO) } else { heard.map(|(_, silence)| silence) },
        joined: membership.is_some_and(|(_, membership)| membership.get_node(&own).is_some()),
        votes: !configs.is_empty() && configs.iter().all(|voters| voters.contains(&own)),
    };
    (known.filter(|_| is_there).map(NodeId), standing)
}

/// Allows or forbids at regular intervals that this node asks for votes in a group. The core itself waits for at least
/// `election_max` first. Never returns.
pub(crate) async fn control_elections(group: Group) {
    let timing = group.config.timing;
    loop {
        let patience = group.leader_contact.patience(timing.election_max);
        let is_waiting = patience > timing.election_max;
        let is_silent = group.leader_contact.last().is_none_or(|(_, silence)| silence >= patience);
        let has_diverged = matches!(group.store.fault(), Some(StoreFault::Diverged(_)));
        group.raft.runtime_config().elect(!has_diverged && (!is_waiting || is_silent));
        sleep(if is_waiting { timing.heartbeat } else { timing.election_min }).await;
    }
}
