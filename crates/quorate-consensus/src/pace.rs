//! Keeps the stores of a majority near the leader's.
//!
//! A write is acknowledged when a majority has it in its logs and the leader has applied it; the other nodes apply it
//! later. If their stores are slower than the leader's, they fall behind for as long as clients write as fast as they
//! can. Then reads at these nodes wait, and after a change of the leader all clients do, because the new leader first
//! applies what it lacks. So followers say what they have applied in each answer to entries or a heartbeat, and the
//! leader pauses after each batch while a majority needs more than [`BEHIND_MAX`] for what the leader has applied.
//!
//! Invariants:
//! - A follower that no majority needs slows nobody. Neither does one that has not said what it has applied.
//! - This module decides when a batch begins, and nothing else. A pause is at most [`PAUSE_MAX`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_env::{Instant, lock, sleep};
use quorate_model::StateMachine;

use crate::metrics::GroupMetrics;
use crate::raft::Raft;

/// How far behind the stores of a majority may be.
const BEHIND_MAX: Duration = Duration::from_millis(500);

/// The part of the time beyond that for which the leader pauses: one eighth.
const BEHIND_PER_PAUSE: u32 = 8;

/// The longest pause after a batch.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// At most so much of the time between two batches counts. Followers say about as often what they have applied, and
/// while nobody writes, nobody is behind.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// What the followers have applied, as they have said.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<BTreeMap<u64, u64>>);

/// Pauses the leader of a group.
pub(crate) struct Pacer {
    pace: Arc<Pace>,
    store: Arc<dyn StateMachine>,
    metrics: Arc<GroupMetrics>,
    behind: Behind,
}

/// How far a majority is behind the leader.
#[derive(Debug, Default)]
struct Behind {
    /// What the leader had applied at some time.
    mark: u64,
    /// How long a majority has needed for that since then.
    time: Duration,
    looked: Option<Instant>,
}

impl Pace {
    /// Notes what a follower has applied. Older versions do not say it.
    pub(crate) fn heard(&self, id: u64, applied: Option<u64>) {
        if let Some(applied) = applied {
            lock(&self.0).insert(id, applied);
        }
    }

    /// Returns the last index that a majority of the voters has applied. `own` is the id of this node with what it has
    /// applied.
    fn of_majority(&self, own: (u64, u64), voters: impl Iterator<Item = u64>) -> u64 {
        let said = lock(&self.0);
        let applied = |id| if id == own.0 { own.1 } else { said.get(&id).copied().unwrap_or(u64::MAX) };
        let mut all: Vec<u64> = voters.map(applied).collect();
        all.sort_unstable_by_key(|index| std::cmp::Reverse(*index));
        all.get(all.len() / 2).copied().unwrap_or(u64::MAX)
    }
}

impl Pacer {
    pub(crate) fn new(pace: Arc<Pace>, store: Arc<dyn StateMachine>, metrics: Arc<GroupMetrics>) -> Self {
        Self { pace, store, metrics, behind: Behind::default() }
    }

    /// Pauses if this node leads, and a majority is behind.
    pub(crate) async fn keep(&mut self, raft: &Raft) {
        if !raft.is_leader() {
            return;
        }
        let own = (*raft.node_id(), self.store.applied().index());
        let majority = self.pace.of_majority(own, raft.voter_ids());
        let pause = self.behind.pause(Instant::now(), own.1, majority);
        if !pause.is_zero() {
            self.metrics.pauses.observe(pause);
            sleep(pause).await;
        }
    }
}

impl Behind {
    /// Returns how long the leader pauses, given the indexes that it and a majority have applied.
    fn pause(&mut self, now: Instant, leader: u64, majority: u64) -> Duration {
        let passed = self.looked.map_or(Duration::ZERO, |looked| now.saturating_duration_since(looked));
        self.looked = Some(now);
        if majority >= self.mark {
            (self.mark, self.time) = (leader, Duration::ZERO);
            return Duration::ZERO;
        }
        self.time = self.time.saturating_add(passed.min(LOOK_MAX));
        (self.time.saturating_sub(BEHIND_MAX) / BEHIND_PER_PAUSE).min(PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: (u64, u64) = (1, 100);

    #[test]
    fn what_a_majority_has_applied_leaves_the_slowest_out() {
        let pace = Pace::default();
        let of = |voters: u64| pace.of_majority(OWN, 1..=voters);
        assert_eq!((of(1), of(3), of(5)), (100, u64::MAX, u64::MAX), "who says nothing is not behind");
        for (id, applied) in [(2, Some(7)), (3, Some(90)), (3, None), (9, Some(1))] {
            pace.heard(id, applied);
        }
        assert_eq!((of(1), of(2), of(3)), (100, 7, 90));
        pace.heard(4, Some(50));
        pace.heard(5, Some(60));
        assert_eq!((of(4), of(5)), (50, 60));
    }

    #[test]
    fn pauses_grow_while_a_majority_is_behind_and_end_when_it_is_not() {
        let (mut behind, mut now) = (Behind::default(), Instant::now());
        let mut after = |behind: &mut Behind, millis, majority| {
            now += Duration::from_millis(millis);
            behind.pause(now, OWN.1, majority)
        };
        assert_eq!(after(&mut behind, 0, 90), Duration::ZERO, "it has until now to apply 100");
        let pauses: Vec<_> = (0..12).map(|_| after(&mut behind, 100, 99)).collect();
        assert!(pauses[..5].iter().all(Duration::is_zero) && pauses[5] > Duration::ZERO, "{pauses:?}");
        assert!(pauses.is_sorted() && pauses[11] == PAUSE_MAX, "{pauses:?}");
        assert_eq!(after(&mut behind, 100, 100), Duration::ZERO);
        assert_eq!(after(&mut behind, 60_000, 99), Duration::ZERO, "nobody wrote for a minute");
    }
}
