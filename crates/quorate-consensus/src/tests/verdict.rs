//! Entries that some nodes, most nodes or all nodes can't apply.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use futures_util::future::join_all;
use quorate_env::{Instant, sleep, timeout};
use quorate_env_sim::SimWorld;
use quorate_model::{FailureKind, GroupId, LogId, NodeId, StoreFault};

use super::cluster::{Cluster, NAMES, SOON, born};
use super::store::{MemStore, Trouble};
use crate::raft::types::to_raft;
use crate::{Consensus, Ended, MemberStatus, MembershipError, ProposeError, Timing};

pub(super) const POISON: &str = "poison";

/// After this much silence the connections to a node are given up.
const GONE_AFTER: Duration = Duration::from_secs(25);

pub(super) fn memory() -> Trouble {
    Trouble::Fault(StoreFault::Memory("of a test".to_owned()))
}

pub(super) fn damaged() -> Trouble {
    Trouble::Fault(StoreFault::Damaged("by a test".to_owned()))
}

fn too_much() -> Trouble {
    Trouble::Fault(StoreFault::TooMuch("in a test".to_owned()))
}

fn slow() -> Trouble {
    Trouble::Fault(StoreFault::Slow("in a test".to_owned()))
}

/// Makes these nodes fail at the poison.
pub(super) fn poison<'a>(cluster: &Cluster, names: impl IntoIterator<Item = &'a str>, trouble: &Trouble) {
    names.into_iter().for_each(|name| cluster.store(name).fail_at(POISON, trouble.clone()));
}

/// Returns the leader first, then the followers.
pub(super) fn by_rank(cluster: &Cluster) -> Vec<&'static str> {
    let leader = cluster.leader().map(|(name, _)| name).unwrap();
    [leader].into_iter().chain(NAMES.into_iter().filter(|name| *name != leader)).collect()
}

/// Proposes the poison at the leader. Returns whether it was rejected, or `None` if the outcome is unknown.
pub(super) async fn propose(cluster: &Cluster) -> Option<bool> {
    let (_, leader) = cluster.leader().unwrap();
    let answer = timeout(SOON, leader.main().propose(Bytes::from_static(POISON.as_bytes()))).await.ok()?;
    match answer {
        Ok((_, Err(failure))) => Some(failure.kind == FailureKind::Rejected),
        Ok((_, Ok(_))) => Some(false),
        Err(ProposeError::Unknown(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Whether a store has applied the poison.
pub(super) fn has_run(store: &MemStore) -> bool {
    store.kept().proposals.iter().any(|(_, bytes)| bytes.starts_with(POISON.as_bytes()))
}

pub(super) fn run(seed: u64, test: impl AsyncFn(&SimWorld, Cluster)) {
    let world = SimWorld::new(seed);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("before").await;
        test(&world, cluster).await;
    });
    done.unwrap();
}

#[test]
fn an_entry_that_no_node_can_apply_is_rejected() {
    for (seed, trouble) in (0..).zip([memory(), damaged()]) {
        run(seed, async |_, cluster| {
            poison(&cluster, NAMES, &trouble);
            assert_eq!(propose(&cluster).await, Some(true), "{trouble:?}");
            cluster.write("after").await;
            cluster.check().await;
            assert!(NAMES.iter().all(|name| cluster.store(name).condemned().is_none()));
        });
    }
}

#[test]
fn a_node_that_alone_fails_takes_an_image() {
    for (rank, trouble) in (0..3).flat_map(|rank| [(rank, memory()), (rank, damaged())]) {
        run(10 + rank as u64, async |_, cluster| {
            let names = by_rank(&cluster);
            poison(&cluster, [names[rank]], &trouble);
            // If the leader could not apply the entry, the outcome may stay unknown.
            assert_ne!(propose(&cluster).await, Some(true));
            cluster.write("after").await;
            cluster.check().await;
            assert!(NAMES.iter().all(|name| has_run(&cluster.store(name))));
        });
    }
}

#[test]
fn a_blocked_node_survives_damage_that_a_reader_finds() {
    for seed in 100..110 {
        run(seed, async |_, cluster| {
            let victim = by_rank(&cluster)[1];
            poison(&cluster, [victim], &damaged());
            let find = async {
                let node = cluster.node(victim).unwrap();
                let is_blocked = || node.status().main.blocked.is_some();
                cluster.until("blocked", is_blocked).await;
                cluster.store(victim).find_damage();
            };
            let (rejected, ()) = futures_util::future::join(propose(&cluster), find).await;
            assert_eq!(rejected, Some(false));
            cluster.write("after").await;
            cluster.check().await;
        });
    }
}

#[test]
fn an_entry_that_one_voter_has_applied_is_kept() {
    for (rank, trouble) in (0..3).flat_map(|rank| [(rank, memory()), (rank, damaged())]) {
        run(20 + rank as u64, async |_, cluster| {
            let names = by_rank(&cluster);
            let able = names[rank];
            poison(&cluster, names.iter().copied().filter(|name| *name != able), &trouble);
            assert_ne!(propose(&cluster).await, Some(true));
            cluster.write("after").await;
            cluster.check().await;
            assert!(NAMES.iter().all(|name| has_run(&cluster.store(name))));
        });
    }
}

#[test]
fn an_entry_applied_and_lost_by_a_voter_is_kept() {
    for seed in 160..180 {
        run(seed, async |_, cluster| {
            let [able, others @ ..] = &by_rank(&cluster)[..] else { panic!("three nodes") };
            poison(&cluster, others.iter().copied(), &memory());
            assert_eq!(propose(&cluster).await, Some(false));
            cluster.kill(able).await;
            cluster.store(able).lose_last();
            let is_stuck = |name: &&str| cluster.node(name).is_some_and(|node| node.status().main.blocked.is_some());
            cluster.until("the others are stuck", || others.iter().all(is_stuck)).await;
            cluster.start(able);
            cluster.write("after").await;
            cluster.check().await;
            assert!(NAMES.iter().all(|name| has_run(&cluster.store(name))));
        });
    }
}

#[test]
fn a_failing_leader_hands_over_to_a_node_that_applied() {
    let handed_over = std::cell::Cell::new(0);
    for seed in 120..130 {
        run(seed, async |_, cluster| {
            let [leader, stuck, able] = by_rank(&cluster)[..] else { panic!("three nodes") };
            poison(&cluster, [leader, stuck], &slow());
            let begun = Instant::now();
            let leads = || cluster.leader().is_some_and(|(name, _)| name == able);
            // If the third node has not tried the entry when it is asked, all nodes agree to reject the entry.
            let is_rejected = || !cluster.store(leader).kept().rejected.is_empty();
            let watch = async {
                cluster.until("a hand-over", || leads() || is_rejected()).await;
                assert!(begun.elapsed() < Timing::default().status, "{:?}", begun.elapsed());
                handed_over.set(handed_over.get() + usize::from(leads()));
            };
            futures_util::future::join(propose(&cluster), watch).await;
            cluster.write("after").await;
            cluster.check().await;
        });
    }
    assert!(handed_over.get() > 1, "{} times", handed_over.get());
}

#[test]
fn a_leader_rejects_what_exceeds_its_limits_alone() {
    for (seed, trouble) in (140..150).flat_map(|seed| [(seed, slow()), (seed, too_much())]) {
        run(seed, async |_, cluster| {
            let [leader, followers @ ..] = &by_rank(&cluster)[..] else { panic!("three nodes") };
            let stores = || followers.iter().map(|name| cluster.store(name));
            stores().for_each(|store| store.fail_at("long", Trouble::Long));
            cluster.write("long").await;
            cluster.until("behind", || stores().all(|store| store.is_held())).await;
            assert!(cluster.store(leader).was_awaited() && stores().all(|store| !store.was_awaited()));
            poison(&cluster, [*leader], &trouble);
            assert_eq!(propose(&cluster).await, Some(true));
            cluster.write("after").await;
            stores().for_each(|store| store.go_on());
            cluster.check().await;
            assert!(NAMES.iter().all(|name| !has_run(&cluster.store(name))));
        });
    }
}

#[test]
fn a_store_with_a_failing_disk_is_condemned() {
    run(30, async |_, cluster| {
        let names = by_rank(&cluster);
        poison(&cluster, [names[2]], &Trouble::Fault(StoreFault::Io("of a test".to_owned())));
        assert_ne!(propose(&cluster).await, Some(true));
        cluster.until("condemned", || cluster.store(names[2]).condemned().is_some()).await;
        assert!(has_run(&cluster.store(names[0])) && has_run(&cluster.store(names[1])));
    });
}

#[test]
fn an_entry_that_kills_every_process_is_rejected() {
    run(40, async |_, cluster| {
        poison(&cluster, NAMES, &Trouble::Crash);
        let (_, leader) = cluster.leader().unwrap();
        let _ = timeout(Duration::from_secs(1), leader.main().propose(Bytes::from_static(POISON.as_bytes()))).await;
        drop(leader);
        let rejected = || NAMES.iter().all(|name| cluster.store(name).kept().rejected.len() == 1);
        let mut starts = 0;
        let watching = async {
            while !rejected() {
                for name in NAMES.into_iter().filter(|name| cluster.store(name).take_crashed()) {
                    cluster.kill(name).await;
                    cluster.start(name);
                    starts += 1;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SOON, watching).await.expect("it is never rejected");
        assert!(starts <= 5 * NAMES.len(), "{starts} starts");
        cluster.write("after").await;
        cluster.check().await;
    });
}

/// The process ended for another reason, and the other nodes send no images.
#[test]
fn a_node_that_gets_no_copy_tries_the_entry_again() {
    run(47, async |_, cluster| {
        let names = by_rank(&cluster);
        poison(&cluster, [names[2]], &Trouble::Crash);
        assert_eq!(propose(&cluster).await, Some(false));
        names[..2].iter().for_each(|name| cluster.node(name).unwrap().main().withhold_images(true));
        let blocked = || cluster.node(names[2]).and_then(|node| node.status().main.blocked);
        while blocked().is_none() {
            cluster.until("a crash or a block", || blocked().is_some() || cluster.store(names[2]).take_crashed()).await;
            if blocked().is_none() {
                cluster.kill(names[2]).await;
                cluster.start(names[2]);
            }
        }
        cluster.store(names[2]).go_on();
        cluster.until("it is applied", || has_run(&cluster.store(names[2]))).await;
        assert_eq!(cluster.store(names[2]).installed(), 0, "a copy came");
        cluster.check().await;
    });
}

/// Lets only the leader apply the poison, and calls `go`, which makes it go away before the others have a copy of its
/// data. Returns the leader's name and the entry.
async fn only_the_leader_applies(cluster: &Cluster, go: impl AsyncFn(&'static str)) -> (&'static str, u64) {
    let names = by_rank(cluster);
    poison(cluster, names[1..].iter().copied(), &memory());
    assert_eq!(propose(cluster).await, Some(false));
    go(names[0]).await;
    let blocked = || cluster.leader().and_then(|(_, leader)| leader.status().main.blocked);
    cluster.until("a leader that can't apply it", || blocked().is_some()).await;
    (names[0], blocked().unwrap().index)
}

fn is_rejected(cluster: &Cluster) -> bool {
    NAMES.iter().any(|name| !cluster.store(name).kept().rejected.is_empty())
}

#[test]
fn the_only_node_with_a_write_is_not_removed() {
    run(45, async |_, cluster| {
        let (gone, _) = only_the_leader_applies(&cluster, async |name| cluster.kill(name).await).await;
        let (_, leader) = cluster.leader().unwrap();
        let Err(MembershipError::Refused(why)) = leader.remove(gone, false).await else { panic!("it was removed") };
        assert!(why.contains("has not yet applied"), "{why}");
        drop(leader);
        cluster.start(gone);
        cluster.write("after").await;
        cluster.check().await;
        assert!(!is_rejected(&cluster));
    });
}

#[test]
fn an_operator_decides_what_a_lost_disk_may_hold() {
    run(46, async |_, cluster| {
        let (_, leader) = cluster.leader().unwrap();
        assert!(leader.main().reject_entry(3).is_err(), "nothing waits");
        drop(leader);
        let (gone, index) = only_the_leader_applies(&cluster, async |name| cluster.wipe(name).await).await;
        // Otherwise it would apply the entry as a learner, and the others would take a copy of its data.
        poison(&cluster, [gone], &memory());
        cluster.start(gone);
        // If the new id could replace the old one, it would be a voter by then, and the entry would be rejected.
        let is_silent = || {
            let Some((_, leader)) = cluster.leader() else { return false };
            let silence = leader.timing().silence + Duration::from_secs(20);
            leader.status().members.iter().any(|member| member.name == gone && member.silent_for > silence)
        };
        cluster.until("the old id to be silent for long", is_silent).await;
        assert!(!is_rejected(&cluster), "it was acknowledged");
        let (_, leader) = cluster.leader().unwrap();
        leader.main().reject_entry(index).unwrap();
        drop(leader);
        cluster.write("after").await;
        cluster.check().await;
        assert!(is_rejected(&cluster));
    });
}

#[test]
fn a_learner_applies_nothing_that_the_voters_may_reject() {
    for seed in 500..520 {
        run(seed, async |_, cluster| {
            let [leader, other, joins] = by_rank(&cluster)[..] else { panic!("three nodes") };
            cluster.wipe(joins).await;
            cluster.start(joins);
            let is_learner = || {
                let members = cluster.leader().map(|(_, leader)| leader.status().members).unwrap_or_default();
                members.iter().any(|member| member.name == joins && !member.voter)
            };
            cluster.until("a learner", is_learner).await;
            poison(&cluster, [leader, other], &memory());
            assert_eq!(propose(&cluster).await, Some(true));
            cluster.write("after").await;
            cluster.check().await;
            assert!(NAMES.iter().all(|name| !has_run(&cluster.store(name))));
        });
    }
}

/// Restarts nodes that end by themselves, until `happened` is true. Returns how many have ended.
async fn keep_running(cluster: &Cluster, happened: impl Fn() -> bool) -> usize {
    let mut ends = 0;
    let watching = async {
        while !happened() {
            for name in NAMES {
                let Some(node) = cluster.node(name) else {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                };
                if let Ok(ended) = timeout(Duration::from_millis(10), node.ended()).await {
                    assert!(matches!(ended, Ended::Store(StoreFault::Stuck(_))), "{ended}");
                    cluster.kill(name).await;
                    cluster.store(name).reopen();
                    cluster.start(name);
                    ends += 1;
                }
            }
        }
    };
    timeout(SOON, watching).await.expect("it never happens");
    ends
}

#[test]
fn an_entry_in_which_every_node_is_stuck_is_rejected() {
    run(41, async |_, cluster| {
        poison(&cluster, NAMES, &Trouble::Endless);
        let (_, leader) = cluster.leader().unwrap();
        // The entries that are handed over together with it can be applied.
        let texts =
            ["before it", POISON, "behind it"].map(|text| leader.main().propose(Bytes::from_static(text.as_bytes())));
        let _ = timeout(Duration::from_secs(1), join_all(texts)).await;
        drop(leader);
        let rejected = || NAMES.iter().all(|name| cluster.store(name).kept().rejected.len() == 1);
        assert_eq!(keep_running(&cluster, rejected).await, NAMES.len(), "each ends once");
        cluster.write("after").await;
        cluster.check().await;
        assert!(NAMES.iter().all(|name| !has_run(&cluster.store(name))));
    });
}

#[test]
fn a_node_that_alone_is_stuck_takes_an_image() {
    for rank in 0..3 {
        run(42 + rank as u64, async |_, cluster| {
            poison(&cluster, [by_rank(&cluster)[rank]], &Trouble::Endless);
            let _ = propose(&cluster).await;
            let applied = || NAMES.iter().all(|name| has_run(&cluster.store(name)));
            assert_eq!(keep_running(&cluster, applied).await, 1);
            cluster.write("after").await;
            cluster.check().await;
        });
    }
}

#[test]
fn a_voter_that_may_have_applied_is_awaited() {
    run(50, async |_, cluster| {
        let (gone, index) = only_the_leader_applies(&cluster, async |name| cluster.kill(name).await).await;
        let (_, leader) = cluster.leader().unwrap();
        let proposed = timeout(Duration::from_secs(20), leader.main().propose(Bytes::from_static(b"x"))).await;
        assert!(proposed.is_err(), "it can't be decided without the third voter");
        assert_eq!(leader.status().main.blocked.map(|blocked| blocked.index), Some(index));
        drop(leader);
        cluster.start(gone);
        cluster.write("after").await;
        cluster.check().await;
        assert!(!is_rejected(&cluster));
    });
}

#[test]
fn a_voter_without_the_commit_is_not_awaited() {
    for (seed, trouble) in (60..70).zip([memory(), slow()].into_iter().cycle()) {
        run(seed, async |world, cluster| {
            let names = by_rank(&cluster);
            // The third node could apply it, and has it in its log in half of the cases.
            poison(&cluster, [names[0], names[1]], &trouble);
            if seed % 4 < 2 {
                cluster.kill(names[2]).await;
            } else {
                world.net().cut(names[0], names[2]);
                world.net().cut(names[1], names[2]);
                // Data in flight on the old connection may still arrive.
                let is_gone = |member: &MemberStatus| member.name == names[2] && member.silent_for > GONE_AFTER;
                let leader = cluster.leader().unwrap().1;
                cluster.until("silence", || leader.status().members.iter().any(is_gone)).await;
            }
            let begun = Instant::now();
            assert_eq!(propose(&cluster).await, Some(true), "{trouble:?}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
            cluster.write("after").await;
            world.net().heal_all();
            if seed % 4 < 2 {
                cluster.start(names[2]);
            }
            // The third node is killed once its log has the entry, perhaps before it has the rejection.
            let index = cluster.store(names[0]).kept().rejected[0];
            let last = |node: &Consensus| node.0.service.home.wal.last_log_id(GroupId::MAIN).map_or(0, |id| id.index);
            let has_entry = || cluster.node(names[2]).is_some_and(|node| last(&node) >= index);
            cluster.until("the entry in its log", has_entry).await;
            cluster.kill(names[2]).await;
            cluster.start(names[2]);
            cluster.write("behind it").await;
            cluster.check().await;
            assert!(NAMES.iter().all(|name| !has_run(&cluster.store(name))));
        });
    }
}

#[test]
fn a_commit_is_ignored_until_the_rejection_is_logged() {
    run(71, async |_, cluster| {
        let names = by_rank(&cluster);
        cluster.kill(names[2]).await;
        poison(&cluster, NAMES, &memory());
        assert_eq!(propose(&cluster).await, Some(true));
        let verdicts = |name| Arc::clone(&cluster.node(name).unwrap().main().verdicts);
        let rejected = cluster.store(names[0]).kept().rejected;
        let id = |index| Some(to_raft(LogId { term: 1, node: NodeId(1), index }));
        // The leader announces both.
        assert_eq!(verdicts(names[0]).announce(1, id(rejected[0])), (id(rejected[0]), rejected.clone()));

        let is_applied = || cluster.store(names[1]).kept().rejected == rejected;
        cluster.until("the rejection on the follower", is_applied).await;
        let applied = cluster.store(names[1]).kept().applied.index();
        let follower = verdicts(names[1]);
        let end = id(applied);
        assert!(follower.may_accept_commit(id(applied + 1), end, &rejected), "it has applied that entry as rejected");
        assert!(follower.may_accept_commit(id(applied + 1), end, &[applied + 2]));
        assert!(!follower.may_accept_commit(id(applied + 2), end, &[rejected[0], applied + 2]));
        assert!(follower.may_accept_commit(None, end, &[applied + 2]));
        follower.appended([(applied + 3, applied + 2)].into_iter());
        assert!(follower.may_accept_commit(id(applied + 3), id(applied + 3), &[applied + 2]));
        assert!(
            !follower.may_accept_commit(id(applied + 3), id(applied + 2), &[applied + 2]),
            "it may be of another leader"
        );
    });
}
