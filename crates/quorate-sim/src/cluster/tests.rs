//! What clients see of a cluster whose leader is none any more.

#![allow(clippy::unwrap_used, reason = "tests")]

use quorate::{RemoteConfig, RemoteSql};

use super::*;

/// How soon a client's write is served that was on its way to such a leader: an election, and then some.
const SERVED_MAX: Duration = Duration::from_secs(3);

/// How long a client's write takes after the leader was struck.
fn served_after(seed: u64, strike: fn(&Cluster, &'static str)) -> Duration {
    let world = SimWorld::new(seed);
    let cluster = Cluster::new(&world, &History::new(world.trace()), Durability::Fsync);
    let run = async {
        cluster.names().iter().for_each(|name| cluster.start(name));
        assert!(cluster.until(Duration::from_secs(60), Cluster::is_whole).await);
        let config = RemoteConfig::new(cluster.addrs(), Cluster::secret());
        let remote = RemoteSql::connect_in(world.node("client"), config).await.unwrap();
        remote.execute("CREATE TABLE t (x)", ()).await.unwrap();
        strike(&cluster, cluster.leader().unwrap());
        let begun = Instant::now();
        remote.execute("INSERT INTO t VALUES (1)", ()).await.unwrap();
        begun.elapsed()
    };
    world.run_within(Duration::from_secs(240), run).unwrap()
}

#[test]
fn a_client_leaves_a_leader_that_stands_still() {
    let pause = |cluster: &Cluster, leader| cluster.world.host(leader).unwrap().pause();
    let slowest = (0..5).map(|seed| served_after(seed, pause)).max().unwrap();
    assert!(slowest < SERVED_MAX, "{slowest:?}");
}

#[test]
fn a_client_leaves_a_leader_that_only_clients_reach() {
    let cut = |cluster: &Cluster, leader| {
        let others = cluster.names().iter().filter(|name| **name != leader);
        others.for_each(|name| cluster.world.net().cut(leader, name));
    };
    let slowest = (0..5).map(|seed| served_after(seed, cut)).max().unwrap();
    assert!(slowest < SERVED_MAX, "{slowest:?}");
}
