//! Readiness: whether a node can serve, and if not, why.

use std::time::Duration;

use quorate_consensus::{Blocked, MemberStatus};
use quorate_model::StoreFault;

use crate::status::{ArchiveStatus, Status};

/// The largest number of known but unapplied entries with which a node is still ready: about one second of the highest
/// load.
pub const BEHIND_MAX: u64 = 50_000;

/// A reason why a node can't serve at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReady {
    /// The node was asked to stop.
    #[error("the node is stopping")]
    Stopping,
    /// The node has stopped, or has ended by itself.
    #[error("the node has ended: {0}")]
    Ended(String),
    /// The cluster has not admitted the node as a member yet.
    #[error("the node is not a member of the cluster yet")]
    NotMember,
    /// The node is a member that does not vote yet, because the cluster still counts on the node that it replaces.
    #[error(
        "the node does not vote yet: it catches up, or waits until the node that it replaces was silent for long \
         enough"
    )]
    Learner,
    /// There is no leader, or the node does not know it.
    #[error("no leader is known")]
    NoLeader,
    /// The last known leader is silent.
    #[error("the leader, '{name}', has not been heard from for {} s", .silence.as_secs())]
    LeaderSilent {
        /// Its name.
        name: String,
        /// The time since the node last heard from it.
        silence: Duration,
    },
    /// The leader answers calls, but sends this node neither entries nor heartbeats.
    #[error(
        "the leader, '{name}', is up but sends this node neither entries nor heartbeats: it can't reach the node at \
         {addr}, the address in the list of members"
    )]
    Unreached {
        /// The leader's name.
        name: String,
        /// The address under which the members contact this node.
        addr: String,
    },
    /// The node leads, but can't reach a majority and so can't commit anything.
    #[error("only {reachable} of {voters} voters can be reached: without a majority nothing can be written")]
    NoMajority {
        /// The number of voters that can be reached, including this node.
        reachable: usize,
        /// The number of all voters.
        voters: usize,
    },
    /// The database has a fault.
    #[error("{0}")]
    Store(StoreFault),
    /// The log waits for disk space.
    #[error("no space left for the log; free some, and the node continues by itself")]
    LogFull,
    /// The node has stopped before an entry that can't be applied.
    #[error("entry {index} can't be applied: {why}; see 'Entries that can't be applied' in docs/operate.md")]
    Blocked {
        /// The index of the entry.
        index: u64,
        /// The reason, or what the node waits for.
        why: String,
    },
    /// The node has not received the cluster's database yet.
    #[error("the node has not received the cluster's database yet")]
    NoDatabase,
    /// The node lags behind and has to catch up first.
    #[error("the database is {entries} entries behind; the node is catching up")]
    Behind {
        /// The number of entries that it lacks.
        entries: u64,
    },
    /// The node is the archiver, and what waits to be archived has waited for longer than is allowed.
    #[error("the archive is {} s late: {why}", .lag.as_secs())]
    ArchiveLate {
        /// For how long it has waited.
        lag: Duration,
        /// The last failure, or that there was none.
        why: String,
    },
}

/// For how long something may last that does not make a node unready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long a member that can be reached is silent at most.
    pub(crate) silence: Duration,
    /// How late the archive may be; `None` for any time.
    pub(crate) archive_lag: Option<Duration>,
}

/// Returns the reasons that follow from a node's status.
pub(crate) fn not_ready(status: &Status, patience: Patience) -> Vec<NotReady> {
    let silence_max = patience.silence;
    if let Some(why) = &status.stopped {
        return vec![NotReady::Ended(why.clone())];
    }
    let Some(own) = status.members.iter().find(|member| member.id == status.node) else {
        return vec![NotReady::NotMember];
    };
    let mut reasons: Vec<NotReady> = no_leader(status, own, silence_max).into_iter().collect();
    if !status.standing.votes {
        reasons.push(NotReady::Learner);
    }
    reasons.extend(status.blocked.clone().map(|Blocked { index, why }| NotReady::Blocked { index, why }));
    let heard = status.members.iter().filter(|member| member.silent_for <= silence_max);
    let furthest = heard.map(|member| member.applied_index).max().unwrap_or(0).max(status.committed_index);
    let entries = furthest.saturating_sub(status.applied.index);
    if !status.standing.joined {
        // The index at which a restored history begins is not a number of missing entries.
        reasons.push(NotReady::NoDatabase);
    } else if entries > BEHIND_MAX {
        reasons.push(NotReady::Behind { entries });
    }
    reasons.extend(status.archive.as_ref().and_then(|archive| late(archive, patience.archive_lag?)));
    reasons
}

/// Returns the reason if the archive is later than it may be.
fn late(archive: &ArchiveStatus, lag_max: Duration) -> Option<NotReady> {
    let why = || archive.failure.clone().unwrap_or_else(|| "no request has failed, but the store is slow".to_owned());
    (archive.lag > lag_max).then(|| NotReady::ArchiveLate { lag: archive.lag, why: why() })
}

/// Returns the reason if the node has no usable leader. Only the leader's own messages prove that it leads this node;
/// its answers to calls do not.
fn no_leader(status: &Status, own: &MemberStatus, silence_max: Duration) -> Option<NotReady> {
    let last = status.leader.or(status.standing.last_leader);
    let Some(leader) = status.members.iter().find(|member| Some(member.id) == last) else {
        return Some(NotReady::NoLeader);
    };
    if leader.id == status.node {
        let (reachable, voters) = status.reachable_voters(silence_max);
        return (reachable <= voters / 2).then_some(NotReady::NoMajority { reachable, voters });
    }
    let silence = status.standing.leader_silent_for;
    if silence.is_some_and(|silence| silence <= silence_max) {
        return None;
    }
    let name = leader.name.clone();
    // A leader that has died may have answered a call a little later than it has sent its last heartbeat.
    if leader.silent_for <= silence_max / 2 {
        return Some(NotReady::Unreached { name, addr: own.addr.clone() });
    }
    Some(NotReady::LeaderSilent { name, silence: silence.unwrap_or(leader.silent_for).max(leader.silent_for) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests stop at the first surprise")]

    use quorate_consensus::{ClusterId, Standing};
    use quorate_model::{NodeId, Position};

    use super::*;

    const SILENCE_MAX: Duration = Duration::from_secs(5);
    const LONG: Duration = Duration::from_secs(60);

    /// Node 1 of three, led by node 2, all up to date.
    fn healthy() -> Status {
        let members = [1, 2, 3].map(|id| MemberStatus {
            id: NodeId(id),
            name: format!("n{id}"),
            addr: format!("n{id}:1"),
            voter: true,
            silent_for: if id == 1 { Duration::ZERO } else { Duration::from_millis(900) },
            applied_index: 1_000_000,
            format_level: 1,
        });
        Status {
            cluster: ClusterId(1),
            node: NodeId(1),
            name: "n1".to_owned(),
            leader: Some(NodeId(2)),
            archiver: None,
            archive: None,
            term: 3,
            last_index: 1_000_000,
            committed_index: 1_000_000,
            applied: Position { index: 1_000_000, ..Position::default() },
            durable_index: 0,
            format_level: 1,
            log_bytes: 0,
            database_bytes: 0,
            members: members.into(),
            blocked: None,
            fault: None,
            stopped: None,
            groups: Vec::new(),
            standing: Standing {
                last_leader: Some(NodeId(2)),
                leader_silent_for: Some(Duration::from_millis(80)),
                joined: true,
                votes: true,
            },
        }
    }

    fn reasons(change: impl FnOnce(&mut Status)) -> Vec<NotReady> {
        let mut status = healthy();
        change(&mut status);
        not_ready(&status, Patience { silence: SILENCE_MAX, archive_lag: Some(LONG) })
    }

    #[test]
    fn a_healthy_node_is_ready() {
        assert_eq!(reasons(|_| {}), []);
        assert_eq!(reasons(|status| status.members[2].silent_for = LONG), [], "one of three may be gone");
        assert_eq!(reasons(|status| status.applied.index -= BEHIND_MAX), []);
    }

    /// An operator that restarts nodes one by one continues when this node is ready. By then the cluster must be able
    /// to count on it, instead of on the node that it replaces.
    #[test]
    fn a_learner_is_not_ready() {
        assert_eq!(reasons(|status| status.standing.votes = false), [NotReady::Learner]);
        let is_empty = |status: &mut Status| {
            (status.standing.votes, status.standing.joined, status.applied.index) = (false, false, 0);
        };
        assert_eq!(reasons(is_empty), [NotReady::Learner, NotReady::NoDatabase]);
    }

    #[test]
    fn a_follower_needs_a_leader_that_is_heard() {
        let none = |status: &mut Status| (status.leader, status.standing.last_leader) = (None, None);
        assert_eq!(reasons(none), [NotReady::NoLeader]);
        let silent = NotReady::LeaderSilent { name: "n2".to_owned(), silence: LONG };
        assert_eq!(silent.to_string(), "the leader, 'n2', has not been heard from for 60 s");
        let is_gone = |status: &mut Status| {
            status.leader = None;
            status.standing.leader_silent_for = Some(LONG);
            status.members[1].silent_for = LONG;
        };
        assert_eq!(reasons(is_gone), [silent]);
        let fails_over = |status: &mut Status| {
            status.leader = None;
            status.standing.leader_silent_for = Some(Duration::from_secs(2));
        };
        assert_eq!(reasons(fails_over), [], "another one is being elected");
    }

    #[test]
    fn a_leader_that_only_answers_is_not_enough() {
        for silence in [None, Some(LONG)] {
            let unreached = |status: &mut Status| (status.leader, status.standing.leader_silent_for) = (None, silence);
            let expected = NotReady::Unreached { name: "n2".to_owned(), addr: "n1:1".to_owned() };
            assert_eq!(reasons(unreached), [expected]);
        }
    }

    #[test]
    fn a_leader_that_died_after_an_answer_is_silent() {
        let silence = SILENCE_MAX + Duration::from_millis(1);
        let died = |status: &mut Status| {
            (status.leader, status.standing.leader_silent_for) = (None, Some(silence));
            status.members[1].silent_for = SILENCE_MAX - Duration::from_secs(1);
        };
        assert_eq!(reasons(died), [NotReady::LeaderSilent { name: "n2".to_owned(), silence }]);
    }

    #[test]
    fn a_leader_needs_a_majority() {
        let lead = |silent: usize| {
            reasons(|status| {
                status.leader = (silent < 2).then_some(NodeId(1));
                status.standing.last_leader = Some(NodeId(1));
                status.members.iter_mut().skip(1).take(silent).for_each(|member| member.silent_for = LONG);
            })
        };
        assert_eq!((lead(0), lead(1)), (vec![], vec![]));
        assert_eq!(lead(2), [NotReady::NoMajority { reachable: 1, voters: 3 }]);
    }

    #[test]
    fn a_node_that_lags_is_not_ready() {
        let behind = [NotReady::Behind { entries: BEHIND_MAX + 1 }];
        assert_eq!(reasons(|status| status.applied.index -= BEHIND_MAX + 1), behind);
        // Its log ends where its database does, but it has heard that other nodes have later entries.
        let lags = |status: &mut Status| {
            status.applied.index -= BEHIND_MAX + 1;
            status.committed_index = status.applied.index;
        };
        assert_eq!(reasons(lags), behind);
    }

    #[test]
    fn an_archiver_whose_archive_is_late_is_not_ready() {
        let late = |lag| {
            let failure = Some("the bucket is gone".to_owned());
            reasons(|status| status.archive = Some(ArchiveStatus { lag, failure, ..ArchiveStatus::default() }))
        };
        assert_eq!(late(LONG), []);
        let lag = LONG + Duration::from_secs(1);
        assert_eq!(late(lag), [NotReady::ArchiveLate { lag, why: "the bucket is gone".to_owned() }]);
    }

    #[test]
    fn a_node_that_stops_before_an_entry_is_not_ready() {
        let blocked = Blocked { index: 7, why: "no memory".to_owned() };
        let reason = NotReady::Blocked { index: 7, why: "no memory".to_owned() };
        assert_eq!(reasons(|status| status.blocked = Some(blocked)), [reason]);
    }

    #[test]
    fn an_ended_or_foreign_node_gives_one_reason() {
        assert_eq!(reasons(|status| drop(status.members.remove(0))), [NotReady::NotMember]);
        let ended = |status: &mut Status| (status.stopped, status.leader) = (Some("disk".to_owned()), None);
        assert_eq!(reasons(ended), [NotReady::Ended("disk".to_owned())]);
    }
}
