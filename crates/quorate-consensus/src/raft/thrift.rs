//! Chooses the followers that get new entries at once: as many as a majority needs. The other followers get the entries
//! a few milliseconds later and more at a time, which costs all nodes less.
//!
//! The followers that acknowledge first are chosen, for a second at a time. So a follower that becomes slow or goes
//! away soon loses its place. Until then the acknowledgements of the others are late by at most [`PAUSE`].
//!
//! Sending to no more than a quorum is known as thriftiness (Moraru, Andersen, Kaminsky: "There Is More Consensus in
//! Egalitarian Parliaments", 2013).
//!
//! Invariant: this module decides when a follower gets entries, but not whether, and not what is committed.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use quorate_env::{Instant, lock};

use super::types::RaftMembership;

/// The pause between requests of entries for a follower that no majority needs.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// How long the choice of followers is valid.
const PLACE: Duration = Duration::from_secs(1);

/// The followers that get new entries at once.
#[derive(Debug, Default)]
pub(crate) struct Thrift(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    voters: BTreeSet<u64>,
    /// How many followers form a majority together with the leader. `None` if there are two voter sets, or if the
    /// leader does not vote: then no follower may wait.
    needed: Option<usize>,
    first: BTreeSet<u64>,
    /// Until when `first` is valid.
    until: Option<Instant>,
    /// The highest index that a follower has acknowledged.
    highest: u64,
}

impl Thrift {
    /// Sets the voters. `own` is the id of this node.
    pub(crate) fn set_members(&self, own: u64, membership: &RaftMembership) {
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let is_simple = membership.get_joint_config().len() == 1 && voters.contains(&own);
        let needed = is_simple.then_some(voters.len() / 2);
        *lock(&self.0) = State { voters, needed, ..State::default() };
    }

    /// Records that a follower has acknowledged the entries up to an index.
    pub(crate) fn acknowledged(&self, id: u64, index: u64) {
        let mut state = lock(&self.0);
        state.renew();
        // A follower that still has to catch up does not help a majority.
        if index >= state.highest {
            state.highest = index;
            if state.voters.contains(&id) && state.needed.is_some_and(|needed| state.first.len() < needed) {
                state.first.insert(id);
            }
        }
    }

    /// Whether the other nodes form a majority without this follower.
    pub(crate) fn may_wait(&self, id: u64) -> bool {
        let mut state = lock(&self.0);
        state.renew();
        state.needed.is_some_and(|needed| state.first.len() >= needed) && !state.first.contains(&id)
    }
}

impl State {
    fn renew(&mut self) {
        let now = Instant::now();
        if self.until.is_none_or(|until| now >= until) {
            self.until = Some(now + PLACE);
            self.first.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::raft::types::Member;

    const LEADER: u64 = 1;

    /// Returns a value for these voters, in one or two sets, and a learner with the id 9.
    fn thrift(voters: &[&[u64]]) -> Thrift {
        let sets: Vec<BTreeSet<u64>> = voters.iter().map(|set| set.iter().copied().collect()).collect();
        let ids = sets.iter().flatten().copied().chain([9]);
        let members: BTreeMap<u64, Member> = ids.map(|id| (id, Member::default())).collect();
        let thrift = Thrift::default();
        thrift.set_members(LEADER, &RaftMembership::new(sets, members).unwrap());
        thrift
    }

    /// Returns the followers that may wait.
    fn waiting(thrift: &Thrift) -> Vec<u64> {
        (2..=9).filter(|id| thrift.may_wait(*id)).collect()
    }

    #[test]
    fn the_first_to_acknowledge_are_served_first() {
        let three = thrift(&[&[1, 2, 3]]);
        assert!(waiting(&three).is_empty(), "no follower has acknowledged yet");
        three.acknowledged(9, 10);
        assert!(waiting(&three).is_empty(), "a learner is in no majority");
        three.acknowledged(3, 10);
        three.acknowledged(2, 10);
        assert_eq!(waiting(&three), [2, 4, 5, 6, 7, 8, 9]);

        let five = thrift(&[&[1, 2, 3, 4, 5]]);
        five.acknowledged(4, 10);
        assert!(waiting(&five).is_empty(), "one is not enough");
        five.acknowledged(5, 7);
        assert!(waiting(&five).is_empty(), "one that is behind helps no majority");
        five.acknowledged(5, 10);
        assert_eq!(waiting(&five), [2, 3, 6, 7, 8, 9]);
    }

    #[test]
    fn the_choice_expires() {
        let thrift = thrift(&[&[1, 2, 3]]);
        thrift.acknowledged(2, 10);
        assert!(thrift.may_wait(3));
        lock(&thrift.0).until = Some(Instant::now());
        assert!(!thrift.may_wait(3));
        thrift.acknowledged(3, 11);
        assert!(thrift.may_wait(2) && !thrift.may_wait(3));
    }

    #[test]
    fn no_follower_waits_if_the_quorum_is_not_simple() {
        for voters in [&[&[1, 2, 3][..], &[1, 2, 4]][..], &[&[2, 3, 4]]] {
            let thrift = thrift(voters);
            (2..5).for_each(|id| thrift.acknowledged(id, 10));
            assert!(waiting(&thrift).is_empty(), "{voters:?}");
        }
    }
}
