//! What a node's part in consensus measures about itself.

use std::sync::Arc;

use openraft::rt::WatchReceiver;
use quorate_env::metrics::{Counter, Histogram};
use quorate_model::FailureKind;

use crate::error::ProposeError;
use crate::raft::Raft;

/// What a node's part in consensus measures.
#[derive(Clone, Debug, Default)]
pub struct ConsensusMetrics {
    /// Writes that were proposed here.
    pub writes: WriteMetrics,
    /// How long each round took that confirmed a read position, the question to the leader included.
    pub read_rounds: Histogram,
    /// Rounds that confirmed none.
    pub read_rounds_failed: Counter,
    /// How long writes were held back for interactive transactions, each time.
    pub holds: Histogram,
    /// Terms that began, as far as this node heard: each is an election, won or not.
    pub terms: Counter,
    /// Times that a node other than the one before was heard of as the leader.
    pub leader_changes: Counter,
    /// Images that were delivered.
    pub images_sent: Counter,
    /// Images that were not.
    pub images_not_sent: Counter,
    /// Images that were received and installed.
    pub images_received: Counter,
    /// Images that were not.
    pub images_not_received: Counter,
}

/// What is measured of the writes that were proposed here. Times are those of writes that got an outcome, which only
/// the leader gives.
#[derive(Clone, Debug, Default)]
pub struct WriteMetrics {
    /// From arrival until the outcome was there: `queue`, `append`, `replicate` and `apply` together.
    pub total: Histogram,
    /// From arrival until proposed: waiting for the batch before.
    pub queue: Histogram,
    /// From proposed until handed to the writer of the log.
    pub append: Histogram,
    /// From handed to the writer of the log until durable on this node: a part of `replicate`, or longer than it when
    /// the disks of the others are faster.
    pub fsync: Histogram,
    /// From handed to the writer of the log until durable on a majority: committed.
    pub replicate: Histogram,
    /// From committed until the outcome was there.
    pub apply: Histogram,
    /// Writes that took effect.
    pub done: Counter,
    /// Writes whose outcome is a failure.
    pub failed: FailureCounts,
    /// Handed on to the leader: what came of them is counted there.
    pub forwarded: Counter,
    /// Refused, because this node does not lead and knows nobody else who does.
    pub not_leader: Counter,
    /// Refused, because too much was waiting.
    pub overloaded: Counter,
    /// Refused, because this node is going down.
    pub stopped: Counter,
    /// Proposed, and no outcome is known.
    pub unknown: Counter,
}

/// How many failures there were of each kind.
#[derive(Clone, Debug, Default)]
pub struct FailureCounts([Counter; FailureKind::ALL.len()]);

impl FailureCounts {
    /// Each kind with its number.
    pub fn iter(&self) -> impl Iterator<Item = (FailureKind, u64)> {
        FailureKind::ALL.into_iter().zip(self.0.iter().map(Counter::get))
    }

    fn count(&self, kind: FailureKind) {
        let counts = FailureKind::ALL.iter().zip(&self.0);
        counts.filter(|(known, _)| **known == kind).for_each(|(_, count)| count.inc());
    }
}

impl WriteMetrics {
    /// Counts a write by what came of it.
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

/// Counts the terms and the leaders that this node hears of, until the core ends. Of those that follow each other at
/// once it hears of the last.
pub(crate) async fn watch_leaders(raft: Raft, metrics: Arc<ConsensusMetrics>) {
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
