//! The metrics of a node's part in a group.

use std::sync::Arc;

use openraft::rt::WatchReceiver;
use quorate_env::metrics::{Counter, Histogram};
use quorate_model::FailureKind;

use crate::error::ProposeError;
use crate::raft::Raft;

/// The metrics of a node's part in one group.
#[derive(Clone, Debug, Default)]
pub struct GroupMetrics {
    /// Writes that were proposed here.
    pub writes: WriteMetrics,
    /// The durations of rounds that confirmed a read position, including the call to the leader.
    pub read_rounds: Histogram,
    /// Rounds that failed to confirm a read position.
    pub read_rounds_failed: Counter,
    /// The durations of holds on writes for interactive transactions.
    pub holds: Histogram,
    /// The pauses of the leader while the stores of a majority were behind.
    pub pauses: Histogram,
    /// The terms that began, as far as this node learned of them. Each is an election, won or not.
    pub terms: Counter,
    /// How often this node learned of a leader other than the one before.
    pub leader_changes: Counter,
    /// Images that were delivered.
    pub images_sent: Counter,
    /// Images that could not be delivered.
    pub images_not_sent: Counter,
    /// Images that were received and installed.
    pub images_received: Counter,
    /// Images that could not be received or installed.
    pub images_not_received: Counter,
}

/// The metrics of the writes that were proposed on this node. Only writes with an outcome have times, and only the
/// leader gives outcomes.
#[derive(Clone, Debug, Default)]
pub struct WriteMetrics {
    /// From arrival to outcome: the sum of `queue`, `append`, `replicate` and `apply`.
    pub total: Histogram,
    /// From arrival to proposal: the wait for the previous batch.
    pub queue: Histogram,
    /// From the proposal until the log's writer has it.
    pub append: Histogram,
    /// From when the log's writer has it until it is durable on this node. Part of `replicate`, or longer than that if
    /// the other nodes have faster disks.
    pub fsync: Histogram,
    /// From when the log's writer has it until it is durable on a majority, and so committed.
    pub replicate: Histogram,
    /// From the commit to the outcome.
    pub apply: Histogram,
    /// Writes that took effect.
    pub done: Counter,
    /// Writes whose outcome is a failure.
    pub failed: FailureCounts,
    /// Writes that were forwarded to the leader, which counts their results.
    pub forwarded: Counter,
    /// Writes that were refused because this node does not lead and knows no leader.
    pub not_leader: Counter,
    /// Writes that were refused because too many were queued.
    pub overloaded: Counter,
    /// Writes that were refused because this node is stopping.
    pub stopped: Counter,
    /// Writes that were proposed but whose outcomes are unknown.
    pub unknown: Counter,
}

/// The number of failures of each kind.
#[derive(Clone, Debug, Default)]
pub struct FailureCounts([Counter; FailureKind::ALL.len()]);

impl FailureCounts {
    /// Returns each kind with its number of failures.
    pub fn iter(&self) -> impl Iterator<Item = (FailureKind, u64)> {
        FailureKind::ALL.into_iter().zip(self.0.iter().map(Counter::get))
    }

    fn count(&self, kind: FailureKind) {
        let counts = FailureKind::ALL.iter().zip(&self.0);
        counts.filter(|(known, _)| **known == kind).for_each(|(_, count)| count.inc());
    }
}

impl WriteMetrics {
    /// Counts a write by its result.
    pub(crate) fn count(&self, result: &crate::combiner::ProposeResult) {
        match result {
            Ok((_, Ok(_))) => self.done.inc(),
            Ok((_, Err(failure))) => self.failed.count(failure.kind),
            Err(error) => self.count_error(error),
        }
    }

    pub(crate) fn count_error(&self, error: &ProposeError) {
        let count = match error {
            ProposeError::NotLeader { .. } | ProposeError::Unreachable(_) => &self.not_leader,
            ProposeError::Overloaded => &self.overloaded,
            ProposeError::Stopped(_) => &self.stopped,
            ProposeError::Unknown(_) => &self.unknown,
        };
        count.inc();
    }
}

/// Counts the terms and the changes of the leader until the core ends. If leaders follow each other quickly, this node
/// may learn only of the last one.
pub(crate) async fn watch_leaders(raft: Raft, metrics: Arc<GroupMetrics>) {
    let mut watched = raft.server_metrics();
    let (mut term, mut leader) = (watched.borrow_watched().vote.leader_id.term, None);
    loop {
        let (now, leads) = {
            let seen = watched.borrow_watched();
            (seen.vote.leader_id.term, seen.current_leader)
        };
        metrics.terms.add(now.saturating_sub(term));
        term = now.max(term);
        if leads.is_some() && leads != leader {
            metrics.leader_changes.inc();
            leader = leads;
        }
        if watched.changed().await.is_err() {
            return;
        }
    }
}
