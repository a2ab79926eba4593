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

/// What a failed sync has lost in secret shows when the power fails in a later life: by then the log may be purged up
/// to what the store called durable.
#[test]
fn what_a_failed_sync_lost_in_secret_is_not_relied_upon_after_a_kill() {
    for seed in 0..8 {
        let world = SimWorld::new(seed);
        let history = History::new(world.trace());
        let cluster = Cluster::new(&world, &history, Durability::Fsync);
        let name = NAMES[1];
        let whole = async || assert!(cluster.until(Duration::from_secs(60), Cluster::is_whole).await, "seed {seed}");
        let run = async {
            cluster.names().iter().for_each(|name| cluster.start(name));
            whole().await;
            let sql = cluster.sql(NAMES[0]).unwrap();
            let write = async |count| {
                for _ in 0..count {
                    sql.execute("INSERT INTO t VALUES (randomblob(2000))", ()).await.unwrap();
                }
            };
            sql.execute("CREATE TABLE t (x)", ()).await.unwrap();
            write(100).await;
            cluster.doom(name, |disk| disk.fail_sync_of("quorate.db-wal"));
            write(300).await;
            cluster.end(name, End::Kill).await;
            cluster.start(name);
            whole().await;
            write(30).await;
            sleep(Duration::from_millis(2_500)).await;
            cluster.end(name, End::Power).await;
            cluster.start(name);
            whole().await;
            cluster.sample();
        };
        world.run_within(Duration::from_secs(400), run).unwrap();
        assert!(history.violations().is_empty(), "seed {seed}: {:?}", history.violations());
    }
}
