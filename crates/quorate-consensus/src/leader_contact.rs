//! Records when the leader's entries and heartbeats reach this node.
//!
//! The answers to this node's own status calls say nothing about that: the other nodes may call this node at an address
//! that it no longer has.
//!
//! A follower that receives nothing from a leader for `election_max` asks for votes. On an overloaded machine the
//! leader's messages are late again and again, and each election costs more than it gains. So a follower waits longer:
//! [`PAUSES`] times the longest recent pause after which a message of the same leader arrived. No message follows from
//! a leader that is gone, so such a pause does not count, and failover takes no longer than before.
//!
//! Invariants:
//! - Only messages of a leader that the core accepted count, never the answers to this node's own calls.
//! - A node asks for votes after at most [`PATIENCE_MAX`] times `election_max`.

use std::sync::Mutex;
use std::time::Duration;

use quorate_env::{Instant, lock};

/// A follower waits for this many times the longest recent pause.
const PAUSES: u32 = 3;

/// A follower waits for at most this many times `election_max`.
const PATIENCE_MAX: u32 = 4;

/// A pause counts for at least this long, and for at most twice as long.
const REMEMBERED: Duration = Duration::from_secs(150);

/// When messages of leaders have arrived.
#[derive(Debug, Default)]
pub(crate) struct LeaderContact(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    /// The leader whose message arrived last, and when that was.
    last: Option<(u64, Instant)>,
    /// The longest pauses between two messages of one leader, in the current and in the previous period.
    pauses: [Duration; 2],
    /// When the current period began.
    since: Option<Instant>,
}

impl LeaderContact {
    /// Records that the core has accepted a message of a leader.
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

    /// Returns the leader whose message arrived last, and how long ago.
    pub(crate) fn last(&self) -> Option<(u64, Duration)> {
        lock(&self.0).last.map(|(leader, at)| (leader, at.elapsed()))
    }

    /// Returns how long this node waits for a silent leader before it asks for votes.
    pub(crate) fn patience(&self, election_max: Duration) -> Duration {
        let longest = lock(&self.0).pauses.into_iter().max().unwrap_or_default();
        longest.saturating_mul(PAUSES).clamp(election_max, election_max.saturating_mul(PATIENCE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_millis(600);

    /// Returns the patience after messages of leaders, each a number of milliseconds after the one before.
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
    fn only_pauses_that_ended_extend_the_wait() {
        assert_eq!(patience(&[(1, 0), (1, 80), (1, 190)]), 600, "no more than usual");
        assert_eq!(patience(&[(1, 0), (1, 400)]), 1_200);
        assert_eq!(patience(&[(1, 0), (1, 5_000)]), 2_400, "it is bounded");
        assert_eq!(patience(&[(1, 0), (2, 1_100), (2, 80)]), 600, "another leader took over");
        let calm = u64::try_from(REMEMBERED.as_millis()).unwrap_or(0);
        assert_eq!(patience(&[(1, 0), (1, 400), (2, calm), (2, 80)]), 1_200);
        assert_eq!(patience(&[(1, 0), (1, 400), (2, calm), (2, 80), (3, calm), (3, 80)]), 600, "it is forgotten");
    }
}
