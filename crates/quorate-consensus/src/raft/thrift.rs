//! Which followers get new entries at once: as many as a majority needs. The others get them a few milliseconds later
//! and more at a time, which costs all nodes less.
//!
//! Whoever acknowledges first is among the first, for a second at a time; so a follower that became slow or went away
//! soon loses its place, and until then the others' acknowledgements come no later than [`PAUSE`].
//!
//! Sending to no more than a quorum is known as thriftiness (Moraru, Andersen, Kaminsky: "There Is More Consensus in
//! Egalitarian Parliaments", 2013).
//!
//! Invariant: it decides when a follower gets entries, and never whether, nor what is committed.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use quorate_env::{Instant, lock};

use super::types::RaftMembership;

/// How long after some entries a follower that no majority waits for gets no more.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// How long a follower is among the first before it must be so again.
const PLACE: Duration = Duration::from_secs(1);

/// Who is among the first.
#[derive(Debug, Default)]
pub(crate) struct Thrift(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    voters: BTreeSet<u64>,
    /// How many followers make a majority together with the leader; `None` while that is not so simple.
    needed: Option<usize>,
    first: BTreeSet<u64>,
    /// Until when they are.
    until: Option<Instant>,
    /// The highest index that somebody has acknowledged.
    highest: u64,
}

impl Thrift {
    /// Remembers who votes, as the leader with the id `own` sees it.
    pub(crate) fn set_members(&self, own: u64, membership: &RaftMembership) {
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let is_simple = membership.get_joint_config().len() == 1 && voters.contains(&own);
        let needed = is_simple.then_some(voters.len() / 2);
        *lock(&self.0) = State { voters, needed, ..State::default() };
    }

    /// A follower has acknowledged the entries up to an index.
    pub(crate) fn acknowledged(&self, id: u64, index: u64) {
        let mut state = lock(&self.0);
        state.renew();
        // One that still has to catch up helps no majority.
        if index >= state.highest {
            state.highest = index;
            if state.voters.contains(&id) && state.needed.is_some_and(|needed| state.first.len() < needed) {
                state.first.insert(id);
            }
        }
    }

    /// Whether others make a majority without this follower.
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

    /// With these voters in one or two sets, and a learner with the id 9.
    fn thrift(voters: &[&[u64]]) -> Thrift {
        let sets: Vec<BTreeSet<u64>> = voters.iter().map(|set| set.iter().copied().collect()).collect();
        let ids = sets.iter().flatten().copied().chain([9]);
        let members: BTreeMap<u64, Member> = ids.map(|id| (id, Member::default())).collect();
        let thrift = Thrift::default();
        thrift.set_members(LEADER, &RaftMembership::new(sets, members).unwrap());
        thrift
    }

    /// Who of the followers may wait.
    fn waiting(thrift: &Thrift) -> Vec<u64> {
        (2..=9).filter(|id| thrift.may_wait(*id)).collect()
    }

    #[test]
    fn those_who_acknowledge_first_make_the_majority_and_the_others_may_wait() {
        let three = thrift(&[&[1, 2, 3]]);
        assert!(waiting(&three).is_empty(), "nobody has acknowledged yet");
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
    fn a_place_is_kept_for_a_time() {
        let thrift = thrift(&[&[1, 2, 3]]);
        thrift.acknowledged(2, 10);
        assert!(thrift.may_wait(3));
        lock(&thrift.0).until = Some(Instant::now());
        assert!(!thrift.may_wait(3));
        thrift.acknowledged(3, 11);
        assert!(thrift.may_wait(2) && !thrift.may_wait(3));
    }

    #[test]
    fn nobody_waits_while_two_majorities_are_needed_or_the_leader_is_no_voter() {
        for voters in [&[&[1, 2, 3][..], &[1, 2, 4]][..], &[&[2, 3, 4]]] {
            let thrift = thrift(voters);
            (2..5).for_each(|id| thrift.acknowledged(id, 10));
            assert!(waiting(&thrift).is_empty(), "{voters:?}");
        }
    }
}
