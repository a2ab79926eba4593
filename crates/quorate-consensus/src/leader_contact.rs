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
//! - A node asks for votes after at most [`PATIENCE_MAX`] times `election_max`.

use std::sync::Mutex;
use std::time::Duration;

use quorate_env::{Instant, lock};

/// A follower waits for so many times the longest pause that it saw.
const PAUSES: u32 = 3;

/// It waits for at most so many times `election_max`.
const PATIENCE_MAX: u32 = 4;

/// A pause is remembered for this long, and at most twice as long.
const REMEMBERED: Duration = Duration::from_secs(150);

/// What was heard of leaders.
#[derive(Debug, Default)]
pub(crate) struct LeaderContact(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    /// The leader that was heard last, and when.
    last: Option<(u64, Instant)>,
    /// The longest pauses between two messages of one leader: in the present period, and in the one before.
    pauses: [Duration; 2],
    /// When the present period began.
    since: Option<Instant>,
}

impl LeaderContact {
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

    pub(crate) fn last(&self) -> Option<(u64, Duration)> {
        lock(&self.0).last.map(|(leader, at)| (leader, at.elapsed()))
    }

    /// How long this node waits for a silent leader before it asks for votes.
    pub(crate) fn patience(&self, election_max: Duration) -> Duration {
        let longest = lock(&self.0).pauses.into_iter().max().unwrap_or_default();
        longest.saturating_mul(PAUSES).clamp(election_max, election_max.saturating_mul(PATIENCE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_millis(600);

    /// Patience after messages of leaders that come so many milliseconds after each other.
    fn patience(messages: &[(u64, u64)]) -> u128 {
        let contact = LeaderContact::default();
        let mut now = Instant::now();
        for (leader, millis) in messages {
            now += Duration::from_millis(*millis);
            contact.heard_at(*leader, now);
        }
        contact.patience(MAX).as_millis()
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
