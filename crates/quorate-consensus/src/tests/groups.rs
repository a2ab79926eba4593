//! A second group beside `main` on the same nodes: it has its own leader, log and positions, and its members follow
//! those of `main`.

use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Instant, sleep, timeout};
use quorate_env_sim::SimWorld;
use quorate_model::{GroupId, NodeId, Position, StateMachine};

use super::cluster::{BESIDE, Cluster, LOG_SEGMENT_BYTES, NAMES, SOON};
use super::members::{admission, admit, follower};
use super::store::MemStore;
use crate::peer::messages::{ReadPositionAsk, encode, method};
use crate::{Admission, Admitted, Group, KEEP_LOG_BYTES};

/// Runs a test on a cluster whose nodes have a second group, once both groups have a leader. The logs keep this many
/// bytes.
fn run(seed: u64, keep_log_bytes: u64, test: impl AsyncFn(Cluster, &SimWorld)) {
    let world = SimWorld::new(seed);
    let done = world.run(async {
        let mut cluster = Cluster::new(&world);
        cluster.keep_log_bytes = keep_log_bytes;
        cluster.beside = Some(Default::default());
        NAMES.into_iter().for_each(|name| cluster.start(name));
        cluster.until("a leader of each group", || cluster.leader().is_some() && leader(&cluster).is_some()).await;
        test(cluster, &world).await;
    });
    done.unwrap();
}

fn group(cluster: &Cluster, name: &str) -> Option<Group> {
    cluster.node(name)?.group(BESIDE).cloned()
}

fn leader(cluster: &Cluster) -> Option<(&'static str, Group)> {
    NAMES.into_iter().filter_map(|name| Some((name, group(cluster, name)?))).find(|(_, group)| group.is_leader())
}

/// Makes a node lead the second group.
async fn lead(cluster: &Cluster, name: &'static str) {
    let (leads, group) = leader(cluster).unwrap();
    if leads != name {
        crate::membership::transfer_to(&group.peers, &group.raft, Some(name)).await.unwrap();
    }
    cluster.until("the leader of the group", || leader(cluster).is_some_and(|(leads, _)| leads == name)).await;
}

/// Waits until the second group has the voters of `main`, on all of these nodes.
async fn followed(cluster: &Cluster, names: &[&'static str]) {
    let follows = |name: &&str| {
        let voters = voters(cluster, name);
        voters.len() == names.len() && voters == voters_of_main(cluster, name)
    };
    cluster.until("the group's new voters", || names.iter().all(follows)).await;
}

fn store(cluster: &Cluster, name: &'static str) -> MemStore {
    cluster.beside.as_ref().unwrap().lock().unwrap().entry(name).or_default().clone()
}

fn voters(cluster: &Cluster, name: &str) -> Vec<NodeId> {
    let mut voters = group(cluster, name).map(|group| group.status().voters).unwrap_or_default();
    voters.sort_unstable();
    voters
}

fn voters_of_main(cluster: &Cluster, name: &str) -> Vec<NodeId> {
    let members = cluster.node(name).map(|node| node.status().members).unwrap_or_default();
    let mut voters: Vec<NodeId> = members.iter().filter(|member| member.voter).map(|member| member.id).collect();
    voters.sort_unstable();
    voters
}

/// Writes to the second group until the write is acknowledged.
async fn write(cluster: &Cluster, text: &'static str) -> Position {
    let deadline = Instant::now() + SOON;
    loop {
        assert!(Instant::now() < deadline, "{text} was never acknowledged");
        if let Some((_, group)) = leader(cluster)
            && let Ok(Ok((position, _))) =
                timeout(Duration::from_secs(2), group.propose(Bytes::from_static(text.as_bytes()))).await
        {
            return position;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn has(store: &MemStore, text: &str) -> bool {
    store.kept().proposals.iter().any(|(_, bytes)| bytes == text)
}

#[test]
fn each_group_has_its_own_log_and_positions() {
    run(81, KEEP_LOG_BYTES, async |cluster, _| {
        for number in 0..20 {
            cluster.write(&format!("to main {number}")).await;
        }
        let written = write(&cluster, "beside").await;
        assert_eq!(written.group, BESIDE);
        assert!(written.index < 20, "it does not count the entries of main: {written}");
        let everywhere = || NAMES.iter().all(|name| has(&store(&cluster, name), "beside"));
        cluster.until("the write on all nodes", everywhere).await;
        assert!(NAMES.iter().all(|name| !has(&cluster.store(name), "beside")), "main does not have it");
        for name in NAMES {
            let position = group(&cluster, name).unwrap().read_position().await.unwrap();
            assert!(position.group == BESIDE && position.index >= written.index && position.index < 20, "{position}");
            let main = cluster.node(name).unwrap().main().read_position().await.unwrap();
            assert!(main.group == GroupId::MAIN && main.index >= 20, "{main}");
            let status = cluster.node(name).unwrap().status();
            let beside: Vec<_> = status.groups.iter().map(|group| group.applied.group).collect();
            assert_eq!((status.main.applied.group, beside.as_slice()), (GroupId::MAIN, &[BESIDE][..]));
        }
        cluster.check().await;
    });
}

#[test]
fn a_wiped_node_is_replaced_in_all_groups() {
    run(82, KEEP_LOG_BYTES, async |cluster, _| {
        write(&cluster, "before").await;
        let (victim, _) = leader(&cluster).unwrap();
        let old = cluster.node(victim).unwrap().status().node;
        cluster.wipe(victim).await;
        write(&cluster, "while it is gone").await;
        cluster.start(victim);
        let follows = |name: &str| {
            let voters = voters(&cluster, name);
            voters.len() == NAMES.len() && !voters.contains(&old) && voters == voters_of_main(&cluster, name)
        };
        cluster.until("the new member's vote in both groups", || NAMES.iter().all(|name| follows(name))).await;
        let has_all = |store: MemStore| has(&store, "before") && has(&store, "while it is gone");
        cluster.until("its data", || has_all(store(&cluster, victim))).await;
        cluster.check().await;
    });
}

/// The members of `main` change again only after the group has followed, so each change finds a majority of it.
#[test]
fn a_group_follows_members_that_are_added_and_removed() {
    run(83, KEEP_LOG_BYTES, async |cluster, _| {
        write(&cluster, "before").await;
        cluster.start("d");
        admit(&cluster, &admission("d")).await.unwrap();
        let gone = follower(&cluster);
        super::members::remove(&cluster, gone, false).await.unwrap();
        let left: Vec<_> = NAMES.into_iter().chain(["d"]).filter(|name| *name != gone).collect();
        followed(&cluster, &left).await;
        write(&cluster, "after").await;
        cluster.until("it on the new member", || has(&store(&cluster, "d"), "after")).await;
        cluster
            .until("the end of the removed", || cluster.node(gone).is_none_or(|node| node.removed().is_some()))
            .await;
    });
}

#[test]
fn a_group_survives_the_loss_of_its_leader_and_of_power() {
    run(84, KEEP_LOG_BYTES, async |cluster, _| {
        write(&cluster, "one").await;
        let (name, _) = leader(&cluster).unwrap();
        cluster.crash(name).await;
        write(&cluster, "two").await;
        cluster.start(name);
        for name in NAMES {
            cluster.crash(name).await;
        }
        NAMES.into_iter().for_each(|name| cluster.start(name));
        write(&cluster, "three").await;
        let is_whole = |name| ["one", "two", "three"].iter().all(|text| has(&store(&cluster, name), text));
        cluster.until("all writes on all nodes", || NAMES.into_iter().all(is_whole)).await;
        let histories = NAMES.map(|name| store(&cluster, name).kept().proposals);
        assert!(histories.iter().all(|history| *history == histories[0]), "the nodes differ");
    });
}

/// Each group has its own leader, so the status of a group says of its leader what that of the cluster says of main's.
#[test]
fn the_status_of_a_group_names_no_leader_without_a_majority() {
    run(86, KEEP_LOG_BYTES, async |cluster, world| {
        write(&cluster, "one").await;
        let (name, old) = leader(&cluster).unwrap();
        let own = cluster.node(name).unwrap().status().node;
        cluster.until("a leader that is heard", || old.status().leader == Some(own)).await;
        world.net().isolate(name);
        cluster.until("the leader to notice that it is alone", || old.status().leader.is_none()).await;
        let another = |name: &&str| group(&cluster, name).is_some_and(|group| group.status().leader.is_some());
        cluster.until("another leader", || NAMES.iter().filter(|other| **other != name).all(&another)).await;
    });
}

/// A node that comes back after the log was purged gets an image of the second group.
#[test]
fn an_image_of_a_group_replaces_the_store_of_that_group() {
    run(85, 64 << 10, async |cluster, _| {
        write(&cluster, "early").await;
        let (leads, _) = leader(&cluster).unwrap();
        let victim = NAMES.into_iter().find(|name| *name != leads).unwrap();
        cluster.wipe(victim).await;
        let purged = |name: &&str| group(&cluster, name).is_some_and(|group| group.log.purged().is_some());
        let large: &'static str = "x".repeat(300 << 10).leak();
        for _ in 0..24 {
            write(&cluster, large).await;
        }
        cluster.until("a purge", || NAMES.iter().filter(|name| **name != victim).all(&purged)).await;
        cluster.start(victim);
        cluster.until("its data", || has(&store(&cluster, victim), "early")).await;
        assert!(store(&cluster, victim).installed() > 0);
        assert_eq!(store(&cluster, victim).applied().log_id.map(|id| id.index > 20), Some(true));
    });
}

/// A node of another version may have other groups. It must never take one for another.
#[test]
fn a_group_that_a_node_does_not_have_is_refused() {
    run(87, KEEP_LOG_BYTES, async |cluster, _| {
        let (_, leader) = cluster.leader().unwrap();
        let follower = cluster.node(follower(&cluster)).unwrap();
        let asked = |group: u32| {
            follower.call_member(leader.status().node, method::READ_POSITION, encode(&ReadPositionAsk { group }), SOON)
        };
        assert!(asked(GroupId::MAIN.0).await.is_ok());
        let refused = asked(99).await.unwrap_err().to_string();
        assert!(refused.contains("has no group 99"), "{refused}");
    });
}

/// A removed node takes no further part in any group, so a group needs a majority of its voters without that node until
/// it has followed `main`.
#[test]
fn a_replacement_waits_until_every_group_can_follow_it() {
    run(88, KEEP_LOG_BYTES, async |cluster, _| {
        write(&cluster, "before").await;
        let (main, _) = cluster.leader().unwrap();
        let others: Vec<_> = NAMES.into_iter().filter(|name| *name != main).collect();
        let (gone, down) = (others[0], others[1]);
        lead(&cluster, gone).await;
        let down_id = cluster.node(down).unwrap().status().node;
        cluster.crash(down).await;
        cluster.start("d");
        let admission = Admission { replaces: Some(gone.to_owned()), ..admission("d") };
        let leader_of_main = cluster.node(main).unwrap();
        cluster.until("the silence of a member", || !leader_of_main.main().peers.is_heard(down_id.0)).await;
        let deadline = Instant::now() + SOON;
        loop {
            assert!(Instant::now() < deadline, "the replacement is not refused");
            let admitted = leader_of_main.admit(admission.clone()).await.unwrap();
            assert_ne!(admitted, Admitted::Voter, "the group has lost its majority");
            if let Admitted::Learner { why, .. } = admitted
                && why.contains("1 of the 3 voters of group 2")
            {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        cluster.start(down);
        admit(&cluster, &admission).await.unwrap();
        let left: Vec<_> = NAMES.into_iter().chain(["d"]).filter(|name| *name != gone).collect();
        followed(&cluster, &left).await;
        write(&cluster, "after").await;
    });
}

/// Files are freed from the oldest on. A quiet group has entries in the oldest, which the absent member may need.
#[test]
fn a_quiet_group_does_not_hold_the_log_of_main_for_an_absent_member() {
    const KEEP: u64 = 128 << 10;
    run(89, KEEP, async |cluster, _| {
        write(&cluster, "early").await;
        cluster.until("all nodes", || cluster.others("").len() == NAMES.len()).await;
        let (leads, _) = cluster.leader().unwrap();
        lead(&cluster, leads).await;
        let away = follower(&cluster);
        cluster.crash(away).await;
        for number in 0..100 {
            cluster.write(&format!("{number} {}", "y".repeat(30_000))).await;
        }
        // What both groups may keep, the file that holds its beginning, the one that is written to, and two spares.
        let most = 2 * KEEP + 4 * LOG_SEGMENT_BYTES;
        // The core of a leader puts a purge off while it sends to the absent member, with one group or with several.
        let follows = NAMES.into_iter().find(|name| ![leads, away].contains(name)).unwrap();
        let follower = cluster.node(follows).unwrap();
        cluster.until("a bounded log", || follower.log_bytes() <= most).await;
        write(&cluster, "late").await;
        cluster.start(away);
        let has_all = |store: MemStore| has(&store, "early") && has(&store, "late");
        cluster.until("the group's data on the absent member", || has_all(store(&cluster, away))).await;
        cluster.check().await;
    });
}

/// A new file is begun for an idle log, so that the old one can go. While `main` needs the old one, that would be in
/// vain.
#[test]
fn an_idle_group_does_not_begin_files_while_main_is_busy() {
    run(90, KEEP_LOG_BYTES, async |cluster, _| {
        write(&cluster, "early").await;
        for number in 0..10 {
            cluster.write(&format!("{number} {}", "y".repeat(30_000))).await;
        }
        let (_, node) = cluster.leader().unwrap();
        let is_idle = || node.group(BESIDE).is_some_and(|group| group.log.purged() == group.log.last());
        cluster.until("the group to be purged", is_idle).await;
        let before = node.log_metrics().0;
        for number in 0..60 {
            cluster.write(&format!("{number}")).await;
            sleep(Duration::from_millis(500)).await;
        }
        let after = node.log_metrics().0;
        let needed = (after.bytes_written - before.bytes_written).div_ceil(LOG_SEGMENT_BYTES);
        let begun = after.segments_begun - before.segments_begun;
        assert!(begun <= needed + 1, "{begun} files were begun, and {needed} were needed");
    });
}
