//! Nodes that have moved: members take in the new address, and a node that nobody replicates to knows it.

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

/// Kills a node and starts it at another address, under the one that it announces.
async fn moves(cluster: &Cluster, name: &'static str, listen: &str, announced: &str) {
    cluster.kill(name).await;
    cluster.moved.lock().unwrap().insert(name, (listen.to_owned(), announced.to_owned()));
    cluster.start(name);
}

#[test]
fn the_address_that_a_member_announces_is_taken_in() {
    let world = SimWorld::new(61);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("before").await;
        let name = follower(&cluster);
        let addr = format!("{name}:2");
        moves(&cluster, name, &addr, &addr).await;
        let is_known = || {
            let all = NAMES.into_iter().map(|other| cluster.node(other).and_then(|node| addr_of(&node, name)));
            all.into_iter().all(|known| known.as_ref() == Some(&addr))
        };
        cluster.until("the new address on all nodes", is_known).await;
        cluster.write("after").await;
        cluster.check().await;
        let hears = || cluster.node(name).is_some_and(|node| node.status().leader.is_some());
        cluster.until("a leader that reaches it", hears).await;
    });
    done.unwrap();
}

/// No majority without the node that moved: it is needed for the entry that says so, and for the election before.
#[test]
fn a_member_that_moved_is_called_before_the_list_says_where() {
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
            // The log of the leader is longer, so that the node which moved can't be elected.
            cluster.write("without the one that moves").await;
            cluster.kill(lost).await;
            if loses_leader {
                cluster.kill(leader).await;
                cluster.start(leader);
            }
            let addr = format!("{mover}:2");
            moves(&cluster, mover, &addr, &addr).await;
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
        // The machines behind the names are others: the lists name them as before, each has a new address.
        *cluster.listed.lock().unwrap() = Some(2);
        for name in NAMES {
            let addr = format!("{name}:2");
            moves(&cluster, name, &addr, &addr).await;
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
fn a_node_that_nobody_replicates_to_knows_it() {
    let world = SimWorld::new(63);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.until("all", || NAMES.into_iter().all(|name| cluster.node(name).is_some())).await;
        cluster.write("before").await;
        let name = follower(&cluster);
        let hears = || cluster.node(name).is_some_and(|node| node.status().leader.is_some());
        cluster.until("a leader that reaches it", hears).await;
        // It announces the old address: nobody can know the new one.
        moves(&cluster, name, &format!("{name}:2"), &format!("{name}:1")).await;
        cluster.until("its start", || cluster.node(name).is_some()).await;
        cluster.write("without it").await;
        sleep(Duration::from_secs(5)).await;
        let node = cluster.node(name).unwrap();
        let status = node.status();
        assert_eq!((status.leader, status.standing.leader_silent_for), (None, None));
        let leader = cluster.leader().unwrap().1;
        assert!(status.members.iter().all(|member| member.silent_for < config(name).timing.silence), "all answer it");
        assert_eq!(status.standing.last_leader, Some(leader.status().node));
        assert!(status.applied < leader.status().applied);
    });
    done.unwrap();
}

#[test]
fn no_leader_is_named_once_the_majority_is_lost() {
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
            assert_eq!(cluster.node(left).unwrap().status().leader, None, "the leader was {leader}, {left} is left");
        });
        done.unwrap();
    }
}

#[test]
fn a_node_has_joined_when_it_has_applied_its_own_admission() {
    let world = SimWorld::new(65);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("before").await;
        let committed = cluster.leader().unwrap().1.status().committed.unwrap().index;
        cluster.start("d");
        cluster.until("its start", || cluster.node("d").is_some()).await;
        let node = cluster.node("d").unwrap();
        sleep(Duration::from_secs(5)).await;
        assert!(!node.has_joined() && !node.status().standing.votes);
        super::members::admit(&cluster, &super::members::admission("d")).await.unwrap();
        cluster.until("its own word", || node.has_joined() && node.status().standing.votes).await;
        assert!(node.status().applied.index > committed);
        // It stays so over a restart.
        cluster.kill("d").await;
        cluster.start("d");
        cluster.until("its start", || cluster.node("d").is_some()).await;
        assert!(cluster.node("d").unwrap().has_joined());
    });
    done.unwrap();
}
