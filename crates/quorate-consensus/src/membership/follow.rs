//! Keeps the members of a group the same as those of `main`.
//!
//! The leader of a group compares its members with those that `main` has committed, and takes the next step towards
//! them, one at a time: it adds learners, then replaces the voters by one joint change once all of them have caught up,
//! then removes the rest. The leader of `main` waits for that before it changes the voters again
//! ([`followed`](super::followed)).
//!
//! Invariant: a step is computed from a membership of `main` that was the latest when the step began. Otherwise a
//! leader that has not learned of the latest one could bring a removed id back.

use std::collections::{BTreeMap, BTreeSet};

use openraft::ChangeMembers;
use openraft::rt::WatchReceiver;
use quorate_env::{sleep, timeout};

use super::{APPLY_MAX, CAUGHT_UP, Progress, change, current, give_way, has_applied_all, progress};
use crate::Member;
use crate::belong::applied_membership;
use crate::error::MembershipError;
use crate::group::Group;
use crate::raft::types::RaftMembership;

/// Follows `main` while this node leads the group. Never returns.
pub(crate) async fn follow(main: Group, group: Group) {
    loop {
        sleep(group.config.timing.status).await;
        if group.raft.is_leader()
            && let Err(error) = step(&main, &group).await
        {
            tracing::info!(group = group.id().0, %error, "a group does not have the members of the cluster yet");
        }
    }
}

/// Takes the next step, if there is one.
async fn step(main: &Group, group: &Group) -> Result<(), MembershipError> {
    let now = current(&group.raft);
    let known = applied_membership(&main.store.applied());
    if known.is_none_or(|(_, wanted)| next(now.membership(), &wanted).is_none()) {
        return Ok(());
    }
    let Some(wanted) = latest(main).await? else { return Ok(()) };
    let Some(step) = next(now.membership(), &wanted) else { return Ok(()) };
    if let ChangeMembers::ReplaceAllVoters(voters) = &step {
        may_replace(group, now.membership(), voters).await?;
    }
    change(&group.raft, &now, step).await
}

/// Returns the latest membership of `main`, once this node has applied it.
async fn latest(main: &Group) -> Result<Option<RaftMembership>, MembershipError> {
    let unknown = |error: &dyn std::fmt::Display| MembershipError::Unconfirmed(error.to_string());
    let index = main.reads.get().await.map_err(|error| unknown(&error))?;
    let mut metrics = main.raft.metrics();
    let reached = async { while main.store.applied().index() < index && metrics.changed().await.is_ok() {} };
    timeout(APPLY_MAX, reached).await.map_err(|error| unknown(&error))?;
    Ok(applied_membership(&main.store.applied()).map(|(_, membership)| membership))
}

/// Fails unless the new voters have caught up, no removed one may be the only one that has applied an entry, and this
/// node stays. If it leaves, it hands leadership over.
async fn may_replace(group: &Group, now: &RaftMembership, voters: &BTreeSet<u64>) -> Result<(), MembershipError> {
    let own = group.raft.node_id();
    let lags = |id: &u64| {
        let Progress { matched, last } = progress(&group.raft, *id);
        matched.is_none_or(|index| index.saturating_add(CAUGHT_UP) < last)
    };
    if let Some(id) = new_voters(now, voters).into_iter().find(lags) {
        return Err(MembershipError::Unconfirmed(format!("the member {id:016x} catches up")));
    }
    if !voters.contains(own) {
        return Err(give_way(&group.peers, &group.raft, |id| voters.contains(&id)).await);
    }
    has_applied_all(&group.raft).await.map_err(MembershipError::Refused)
}

/// Returns the voters that do not vote yet. A voter that is down keeps no other from being replaced.
fn new_voters(now: &RaftMembership, voters: &BTreeSet<u64>) -> BTreeSet<u64> {
    voters - &now.voter_ids().collect()
}

/// Returns the next step from a membership to the wanted one; `None` if nothing is left to do, or `main` is in the
/// middle of a change.
fn next(now: &RaftMembership, wanted: &RaftMembership) -> Option<ChangeMembers<u64, Member>> {
    if let [_, .., last] = now.get_joint_config().as_slice() {
        return Some(ChangeMembers::ReplaceAllVoters(last.clone()));
    }
    let ([voters], [wanted_voters]) = (now.get_joint_config().as_slice(), wanted.get_joint_config().as_slice()) else {
        return None;
    };
    let is_new = |(id, _): &(&u64, &Member)| now.get_node(id).is_none();
    let owned = |(id, member): (&u64, &Member)| (*id, member.clone());
    let added: BTreeMap<u64, Member> = wanted.nodes().filter(is_new).map(owned).collect();
    if !added.is_empty() {
        return Some(ChangeMembers::AddNodes(added));
    }
    let has_moved = |(id, member): &(&u64, &Member)| now.get_node(id).is_some_and(|known| known != *member);
    let moved: BTreeMap<u64, Member> = wanted.nodes().filter(has_moved).map(owned).collect();
    if !moved.is_empty() {
        return Some(ChangeMembers::SetNodes(moved));
    }
    if voters != wanted_voters {
        return Some(ChangeMembers::ReplaceAllVoters(wanted_voters.clone()));
    }
    let removed: BTreeSet<u64> = now.nodes().map(|(id, _)| *id).filter(|id| wanted.get_node(id).is_none()).collect();
    (!removed.is_empty()).then_some(ChangeMembers::RemoveNodes(removed))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn membership(voters: &[&[u64]], nodes: &[(u64, &str)]) -> RaftMembership {
        let node = |(id, addr): &(u64, &str)| (*id, Member { name: format!("node {id}"), addr: (*addr).to_owned() });
        let sets = voters.iter().map(|set| set.iter().copied().collect()).collect();
        RaftMembership::new(sets, nodes.iter().map(node).collect::<BTreeMap<_, _>>()).unwrap()
    }

    #[test]
    fn a_replaced_member_is_followed_step_by_step() {
        let wanted = membership(&[&[1, 2, 4]], &[(1, "a"), (2, "b"), (4, "c")]);
        let before = membership(&[&[1, 2, 3]], &[(1, "a"), (2, "b"), (3, "c")]);
        let added = membership(&[&[1, 2, 3]], &[(1, "a"), (2, "b"), (3, "c"), (4, "c")]);
        let joint = membership(&[&[1, 2, 3], &[1, 2, 4]], &[(1, "a"), (2, "b"), (3, "c"), (4, "c")]);
        let replaced = membership(&[&[1, 2, 4]], &[(1, "a"), (2, "b"), (3, "c"), (4, "c")]);
        let steps = [&before, &added, &joint, &replaced, &wanted].map(|now| next(now, &wanted));
        let [add, replace, finish, remove, nothing] = steps;
        assert!(matches!(add, Some(ChangeMembers::AddNodes(nodes)) if nodes.keys().eq([&4])));
        assert!(matches!(replace, Some(ChangeMembers::ReplaceAllVoters(voters)) if voters.iter().eq([&1, &2, &4])));
        assert!(matches!(finish, Some(ChangeMembers::ReplaceAllVoters(voters)) if voters.iter().eq([&1, &2, &4])));
        assert!(matches!(remove, Some(ChangeMembers::RemoveNodes(nodes)) if nodes.iter().eq([&3])));
        assert!(nothing.is_none());
    }

    #[test]
    fn only_new_voters_must_have_caught_up() {
        let now = membership(&[&[1, 2, 3]], &[(1, "a"), (2, "b"), (3, "c"), (4, "c")]);
        assert_eq!(new_voters(&now, &[1, 2, 4].into()), [4].into());
    }

    #[test]
    fn a_moved_member_gets_its_address_and_a_change_of_main_is_awaited() {
        let now = membership(&[&[1, 2]], &[(1, "a"), (2, "b")]);
        let moved = membership(&[&[1, 2]], &[(1, "a"), (2, "elsewhere")]);
        assert!(matches!(next(&now, &moved), Some(ChangeMembers::SetNodes(nodes)) if nodes.keys().eq([&2])));
        let changing = membership(&[&[1, 2], &[1]], &[(1, "a"), (2, "b")]);
        assert!(next(&now, &changing).is_none());
    }
}
