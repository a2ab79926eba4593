//! A node's place in its cluster: which leader it hears, whether it votes, and whether it may ask for votes.
//!
//! Invariant: a node whose data are not those of the others never asks for votes.

use std::sync::Arc;
use std::time::Duration;

use openraft::rt::WatchReceiver;
use openraft_rt::Instant as _;
use quorate_env::sleep;
use quorate_model::{NodeId, StoreFault};

use crate::belong::applied_membership;
use crate::membership;
use crate::peer_service::{PeerService, Running};

/// What a node knows of its place in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The last leader that the node knew, even if that leader is gone by now.
    pub last_leader: Option<NodeId>,
    /// How long neither entries nor heartbeats of a leader have come; none if they never did in this life. Zero for a
    /// node that leads.
    pub leader_silent_for: Option<Duration>,
    /// Whether the node has applied its own admission: before that it may have nothing of the cluster's data.
    pub joined: bool,
    /// Whether each majority that the cluster needs is counted with this node.
    pub votes: bool,
}

/// The leader, if a majority or this node has heard from it lately, and the node's standing.
///
/// A leader that has been silent for longer than a failover takes is left out: by then another node leads, or none
/// does.
pub(crate) fn standing(service: &PeerService, running: &Running) -> (Option<NodeId>, Standing) {
    let own = service.home.identity().id;
    let timing = service.config.timing;
    let limit = timing.election_max.saturating_mul(2);
    let (known, quorum_acked) = {
        let metrics = running.raft.metrics();
        let metrics = metrics.borrow_watched();
        let acked = metrics.last_quorum_acked.map(|at| at.into_inner().elapsed());
        (metrics.current_leader, acked)
    };
    let heard = service.leader_contact.last();
    let leads = known == Some(own);
    let is_there = if leads {
        quorum_acked.is_some_and(|silence| silence <= limit) || membership::hears_majority(service, &running.raft)
    } else {
        heard.is_some_and(|(leader, silence)| Some(leader) == known && silence <= limit)
    };
    let membership = applied_membership(&running.store.applied());
    let configs = membership.as_ref().map(|(_, membership)| membership.get_joint_config().clone()).unwrap_or_default();
    let standing = Standing {
        last_leader: known.or(heard.map(|(leader, _)| leader)).map(NodeId),
        leader_silent_for: if leads { Some(Duration::ZERO) } else { heard.map(|(_, silence)| silence) },
        joined: membership.is_some_and(|(_, membership)| membership.get_node(&own).is_some()),
        votes: !configs.is_empty() && configs.iter().all(|voters| voters.contains(&own)),
    };
    (known.filter(|_| is_there).map(NodeId), standing)
}

/// Lets this node ask for votes, or not, for ever. The core itself waits for `election_max` at least.
pub(crate) async fn be_patient(service: Arc<PeerService>, running: Running) {
    let timing = service.config.timing;
    loop {
        let patience = service.leader_contact.patience(timing.election_max);
        let is_waiting = patience > timing.election_max;
        let is_silent = service.leader_contact.last().is_none_or(|(_, silence)| silence >= patience);
        let has_diverged = matches!(running.store.fault(), Some(StoreFault::Diverged(_)));
        running.raft.runtime_config().elect(!has_diverged && (!is_waiting || is_silent));
        sleep(if is_waiting { timing.heartbeat } else { timing.election_min }).await;
    }
}
