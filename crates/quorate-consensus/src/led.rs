//! Whether the leader's entries and heartbeats reach this node.
//!
//! That a node asks its peers how they are, and is answered, says nothing of that: they may call it at an address that
//! it no longer has.
//!
//! A follower that hears nothing for `election_max` asks for votes. On a machine that is starved the leader's messages
//! come late again and again, and each election costs more than it gives. So a follower is patient: it waits for a few
//! times the longest pause that it saw lately and that ended with the same leader. The messages of a leader that is
//! gone never come, so they make nobody patient, and failover takes what it did.
//!
//! Invariants:
//! - Only messages that the core accepted from a leader count, never answers to this node's own questions.
//! - A node asks for votes after at most [`PATIENCE_MAX`] times `election_max`. One whose data are not those of the
//!   others never does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::rt::WatchReceiver;
use openraft_rt::Instant as _;
use quorate_env::{Instant, sleep};
use quorate_model::{NodeId, StoreFault};

use crate::desk::{Desk, Running};
use crate::membership;
use crate::peers::lock;

/// A follower waits for so many times the longest pause that it saw.
const PAUSES: u32 = 3;

/// It waits for at most so many times `election_max`.
const PATIENCE_MAX: u32 = 4;

/// A pause is remembered for this long, and at most twice as long.
const REMEMBERED: Duration = Duration::from_secs(150);

/// What was heard of leaders.
#[derive(Debug, Default)]
pub(crate) struct Led(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    /// The leader that was heard last, and when.
    last: Option<(u64, Instant)>,
    /// The longest pauses between two messages of one leader: in the present period, and in the one before.
    pauses: [Duration; 2],
    /// When the present period began.
    since: Option<Instant>,
}

impl Led {
    /// A message of a leader was accepted.
    pub(crate) fn heard(&self, leader: u64) {
        self.heard_at(leader, Instant::now());
    }

    fn heard_at(&self, leader: u64, now: Instant) {
        let mut heard = lock(&self.0);
        let since = *heard.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= REMEMBERED {
            let [present, _] = heard.pauses;
            (heard.pauses, heard.since) = ([Duration::ZERO, present], Some(now));
        }
        if let Some((_, at)) = heard.last.filter(|(last, _)| *last == leader) {
            let [present, before] = heard.pauses;
            heard.pauses = [present.max(now.saturating_duration_since(at)), before];
        }
        heard.last = Some((leader, now));
    }

    fn last(&self) -> Option<(u64, Duration)> {
        lock(&self.0).last.map(|(leader, at)| (leader, at.elapsed()))
    }

    /// How long this node waits for a silent leader before it asks for votes.
    fn patience(&self, election_max: Duration) -> Duration {
        let longest = lock(&self.0).pauses.into_iter().max().unwrap_or_default();
        longest.saturating_mul(PAUSES).clamp(election_max, election_max.saturating_mul(PATIENCE_MAX))
    }
}

/// Lets this node ask for votes, or not, for ever. The core itself waits for `election_max` at least.
pub(crate) async fn be_patient(desk: Arc<Desk>, running: Running) {
    let timing = desk.config.timing;
    loop {
        let patience = desk.led.patience(timing.election_max);
        let is_waiting = patience > timing.election_max;
        let is_silent = desk.led.last().is_none_or(|(_, silence)| silence >= patience);
        let has_diverged = matches!(running.store.fault(), Some(StoreFault::Diverged(_)));
        running.raft.runtime_config().elect(!has_diverged && (!is_waiting || is_silent));
        sleep(if is_waiting { timing.heartbeat } else { timing.election_min }).await;
    }
}

/// What a node knows of its place in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The last leader that the node knew, be it gone by now.
    pub last_leader: Option<NodeId>,
    /// How long neither entries nor heartbeats of a leader have come; none if they never did in this life. Zero for a
    /// node that leads.
    pub leader_silent_for: Option<Duration>,
    /// Whether the node has applied its own admission: before that it may have nothing of the cluster's data.
    pub joined: bool,
    /// Whether each majority that the cluster needs is counted with this node.
    pub votes: bool,
}

/// The leader, if a majority or this node has heard of it lately, and the rest.
///
/// One that is silent for longer than a failover takes is not named: there is another, or there is none.
pub(crate) fn standing(desk: &Desk, running: &Running) -> (Option<NodeId>, Standing) {
    let own = desk.home.identity().id;
    let timing = desk.config.timing;
    let limit = timing.election_max.saturating_mul(2);
    let (known, quorum_acked) = {
        let metrics = running.raft.metrics();
        let metrics = metrics.borrow_watched();
        let acked = metrics.last_quorum_acked.map(|at| at.into_inner().elapsed());
        (metrics.current_leader, acked)
    };
    let heard = desk.led.last();
    let leads = known == Some(own);
    let is_there = if leads {
        quorum_acked.is_some_and(|silence| silence <= limit) || membership::hears_majority(desk, &running.raft)
    } else {
        heard.is_some_and(|(leader, silence)| Some(leader) == known && silence <= limit)
    };
    let membership = crate::belong::applied_membership(&running.store.applied());
    let configs = membership.as_ref().map(|(_, membership)| membership.get_joint_config().clone()).unwrap_or_default();
    let standing = Standing {
        last_leader: known.or(heard.map(|(leader, _)| leader)).map(NodeId),
        leader_silent_for: if leads { Some(Duration::ZERO) } else { heard.map(|(_, silence)| silence) },
        joined: membership.is_some_and(|(_, membership)| membership.get_node(&own).is_some()),
        votes: !configs.is_empty() && configs.iter().all(|voters| voters.contains(&own)),
    };
    (known.filter(|_| is_there).map(NodeId), standing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_millis(600);

    /// Patience after messages of leaders that come so many milliseconds after each other.
    fn patience(messages: &[(u64, u64)]) -> u128 {
        let led = Led::default();
        let mut now = Instant::now();
        for (leader, millis) in messages {
            now += Duration::from_millis(*millis);
            led.heard_at(*leader, now);
        }
        led.patience(MAX).as_millis()
    }

    #[test]
    fn pauses_that_end_make_a_follower_patient_and_a_lost_leader_does_not() {
        assert_eq!(patience(&[(1, 0), (1, 80), (1, 190)]), 600, "no more than usual");
        assert_eq!(patience(&[(1, 0), (1, 400)]), 1_200);
        assert_eq!(patience(&[(1, 0), (1, 5_000)]), 2_400, "it is bounded");
        assert_eq!(patience(&[(1, 0), (2, 1_100), (2, 80)]), 600, "another leader took over");
        let calm = u64::try_from(REMEMBERED.as_millis()).unwrap_or(0);
        assert_eq!(patience(&[(1, 0), (1, 400), (2, calm), (2, 80)]), 1_200);
        assert_eq!(patience(&[(1, 0), (1, 400), (2, calm), (2, 80), (3, calm), (3, 80)]), 600, "it is forgotten");
    }
}
