//! Contact with the leader: members learn the new address of a node that moved, and a node without replication notices.

use std::time::Duration;

use quorate_env::sleep;
use quorate_env_sim::SimWorld;

use super::cluster::{Cluster, NAMES, born, config};
use super::members::follower;
use crate::Consensus;

fn addr_of(node: &Consensus, name: &str) -> Option<String> {
    let members = node.status().members;
    members.into_iter().find(|member| member.name == name).map(|member| member.addr)
}

/// Kills a node and starts it so that it listens at one address and announces another, perhaps the same.
async fn move_node(cluster: &Cluster, name: &'static str, listen: &str, announced: &str) {
    cluster.kill(name).await;
    cluster.moved.lock().unwrap().insert(name, (listen.to_owned(), announced.to_owned()));
    cluster.start(name);
}

#[test]
fn an_announced_address_is_recorded() {
    let world = SimWorld::new(61);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("before").await;
        let name = follower(&cluster);
        let addr = format!("{name}:2");
        move_node(&cluster, name, &addr, &addr).await;
        let is_known = || {
            let all = NAMES.into_iter().map(|other| cluster.node(other).and_then(|node| addr_of(&node, name)));
            all.into_iter().all(|known| known.as_ref() == Some(&addr))
        };
        cluster.until("the new address on all nodes", is_known).await;
        cluster.write("after").await;
        cluster.check().await;
        let hears = || cluster.node(name).is_some_and(|node| node.status().main.leader.is_some());
        cluster.until("a leader that reaches it", hears).await;
    });
    done.unwrap();
}

/// There is no majority without the node that moved: its vote is needed for the entry with the new address, and for the
/// election before.
#[test]
fn a_moved_member_is_called_before_the_list_changes() {
    for loses_leader in [false, true] {
        let world = SimWorld::new(66);
        let done = world.run(async {
            let cluster = born(&world).await;
            cluster.until("all", || NAMES.into_iter().all(|name| cluster.node(name).is_some())).await;
            cluster.write("before").await;
            let (leader, _) = cluster.leader().unwrap();
            let mover = follower(&cluster);
            let lost = NAMES.into_iter().find(|name| ![leader, mover].contains(name)).unwrap();
            cluster.kill(mover).await;
            // Makes the leader's log longer, so that the node that moved can't be elected.
            cluster.write("without the one that moves").await;
            cluster.kill(lost).await;
            if loses_leader {
                cluster.kill(leader).await;
                cluster.start(leader);
            }
            let addr = format!("{mover}:2");
            move_node(&cluster, mover, &addr, &addr).await;
            cluster.write("after").await;
            let is_known = || cluster.node(leader).and_then(|node| addr_of(&node, mover)) == Some(addr.clone());
            cluster.until("the new address", is_known).await;
        });
        done.unwrap();
    }
}

#[test]
fn nodes_that_have_all_moved_find_each_other() {
    let world = SimWorld::new(62);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("before").await;
        for name in NAMES {
            cluster.kill(name).await;
        }
        // The lists of members have new ports, and each node has a new address.
        *cluster.listed.lock().unwrap() = Some(2);
        for name in NAMES {
            let addr = format!("{name}:2");
            move_node(&cluster, name, &addr, &addr).await;
        }
        cluster.write("after").await;
        let all = || {
            let nodes: Vec<Consensus> = NAMES.into_iter().filter_map(|name| cluster.node(name)).collect();
            nodes.iter().all(|node| NAMES.iter().all(|name| addr_of(node, name) == Some(format!("{name}:2"))))
        };
        cluster.until("the new addresses on all nodes", all).await;
        cluster.check().await;
    });
    done.unwrap();
}

#[test]
fn a_node_without_replication_knows_no_leader() {
    let world = SimWorld::new(63);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.until("all", || NAMES.into_iter().all(|name| cluster.node(name).is_some())).await;
        cluster.write("before").await;
        let name = follower(&cluster);
        let hears = || cluster.node(name).is_some_and(|node| node.status().main.leader.is_some());
        cluster.until("a leader that reaches it", hears).await;
        // It announces its old address, so no other node can know the new one.
        move_node(&cluster, name, &format!("{name}:2"), &format!("{name}:1")).await;
        cluster.until("its start", || cluster.node(name).is_some()).await;
        cluster.write("without it").await;
        sleep(Duration::from_secs(5)).await;
        let node = cluster.node(name).unwrap();
        let status = node.status();
        assert_eq!((status.main.leader, status.standing.leader_silent_for), (None, None));
        let leader = cluster.leader().unwrap().1;
        assert!(
            status.members.iter().all(|member| member.silent_for < config(name).timing.silence),
            "all nodes answer it"
        );
        assert_eq!(status.standing.last_leader, Some(leader.status().node));
        assert!(status.main.applied < leader.status().main.applied);
    });
    done.unwrap();
}

#[test]
fn no_leader_is_reported_without_a_majority() {
    for is_leader_left in [false, true] {
        let world = SimWorld::new(64);
        let done = world.run(async {
            let cluster = born(&world).await;
            cluster.until("all", || NAMES.into_iter().all(|name| cluster.node(name).is_some())).await;
            cluster.write("before").await;
            let (leader, _) = cluster.leader().unwrap();
            let left = if is_leader_left { leader } else { follower(&cluster) };
            for name in NAMES.into_iter().filter(|name| *name != left) {
                cluster.kill(name).await;
            }
            sleep(Duration::from_secs(10)).await;
            assert_eq!(
                cluster.node(left).unwrap().status().main.leader,
                None,
                "the leader was {leader}, {left} is left"
            );
        });
        done.unwrap();
    }
}

#[test]
fn a_node_joins_by_applying_its_own_admission() {
    let world = SimWorld::new(65);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("before").await;
        let committed = cluster.leader().unwrap().1.status().main.committed.unwrap().index;
        cluster.start("d");
        cluster.until("its start", || cluster.node("d").is_some()).await;
        let node = cluster.node("d").unwrap();
        sleep(Duration::from_secs(5)).await;
        assert!(!node.has_joined() && !node.status().standing.votes);
        super::members::admit(&cluster, &super::members::admission("d")).await.unwrap();
        cluster.until("its admission", || node.has_joined() && node.status().standing.votes).await;
        assert!(node.status().main.applied.index > committed);
        // This holds after a restart too.
        cluster.kill("d").await;
        cluster.start("d");
        cluster.until("its start", || cluster.node("d").is_some()).await;
        assert!(cluster.node("d").unwrap().has_joined());
    });
    done.unwrap();
}
