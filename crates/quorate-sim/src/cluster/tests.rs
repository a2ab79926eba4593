//! Tests of how long a lost leader delays writes, of a kill right after an image, and of data that a disk loses
//! silently.

#![allow(clippy::unwrap_used, reason = "tests")]

use futures_util::future::join_all;
use quorate::{Client, ClientConfig};
use quorate_env_sim::Latency;

use super::*;
use crate::ledger::Ledger;
use crate::load::{self, Load};

/// How long a write to a lost leader may take: an election and some time more.
const SERVED_MAX: Duration = Duration::from_millis(1_800);

/// A fault that strikes the leader.
type Strike = fn(&Cluster, &'static str);

/// The writers whose waiting time is measured.
#[derive(Clone, Copy)]
enum Writers {
    /// A client that follows the leader.
    Client,
    /// The handles of the other nodes, all at once.
    Followers,
}

/// Returns the longest time that a write takes after the leader was struck, over four seeds.
fn served_after(who: Writers, strike: Strike) -> Duration {
    (0..4).map(|seed| served_in(seed, who, strike)).max().unwrap_or_default()
}

fn served_in(seed: u64, who: Writers, strike: Strike) -> Duration {
    let world = SimWorld::new(seed);
    let cluster = Cluster::new(&world, &History::new(world.trace()), Durability::Fsync);
    let run = async {
        cluster.names().iter().for_each(|name| cluster.start(name));
        assert!(cluster.until(Duration::from_secs(60), Cluster::is_whole).await);
        let config = ClientConfig::new(cluster.addrs(), Cluster::secret());
        let remote = Client::connect_in(world.node("client"), config).await.unwrap();
        remote.sql().execute("CREATE TABLE t (x)", ()).await.unwrap();
        let leader = cluster.leader().unwrap();
        let followers = cluster.names().iter().filter(|name| **name != leader);
        let handles: Vec<Sql> = match who {
            Writers::Client => vec![remote.sql()],
            Writers::Followers => followers.map(|name| cluster.sql(name).unwrap()).collect(),
        };
        strike(&cluster, leader);
        let begun = Instant::now();
        let written = join_all(handles.iter().map(|sql| sql.execute("INSERT INTO t VALUES (1)", ()))).await;
        assert!(written.iter().all(Result::is_ok), "{written:?}");
        begun.elapsed()
    };
    world.run_within(Duration::from_secs(240), run).unwrap()
}

fn pause(cluster: &Cluster, leader: &'static str) {
    cluster.world.host(leader).unwrap().pause();
}

fn cut(cluster: &Cluster, leader: &'static str) {
    let others = cluster.names().iter().filter(|name| **name != leader);
    others.for_each(|name| cluster.world.net().cut(leader, name));
}

fn cut_and_kill(cluster: &Cluster, leader: &'static str) {
    cut(cluster, leader);
    let cluster = cluster.clone();
    drop(cluster.world.node("operator").spawn(async move { cluster.end(leader, End::Kill).await }));
}

#[test]
fn clients_and_followers_leave_a_lost_leader() {
    let strikes: [(&str, Strike); 3] =
        [("paused", pause), ("cut off from the others", cut), ("cut off and killed", cut_and_kill)];
    for (what, strike) in strikes {
        for (who, waiting) in [(Writers::Client, "a client"), (Writers::Followers, "followers")] {
            let slowest = served_after(who, strike);
            assert!(slowest < SERVED_MAX, "{waiting} waited {slowest:?} for a leader that was {what}");
        }
    }
}

/// A node that is killed right after an image has replaced its state, before the entries up to the image's end arrive,
/// has lost nothing. So it must keep its id, which the history checks.
#[test]
fn a_kill_right_after_an_image_keeps_the_id() {
    let mut installs = 0;
    for seed in 0..8 {
        let world = SimWorld::new(seed);
        let history = History::new(world.trace());
        let cluster = Cluster::new(&world, &history, Durability::Fsync);
        let name = NAMES[2];
        let run = async {
            cluster.names().iter().for_each(|name| cluster.start(name));
            assert!(cluster.until(Duration::from_secs(60), Cluster::is_whole).await, "seed {seed}");
            let ledger = Ledger::default();
            let sql = cluster.sql(NAMES[0]).unwrap();
            load::prepare(&sql, cluster.world()).await.unwrap();
            let load = Load::start(&cluster, &ledger, 1);
            assert!(cluster.until(Duration::from_secs(60), |cluster| cluster.history.last_index() > 100).await);
            // Delays the entries that follow the image.
            let usual_max = Duration::from_millis(80);
            world.net().set_latency(Latency { usual_max, ..Latency::default() });
            cluster.end(name, End::Wipe).await;
            cluster.start(name);
            while history.installs() == 0 && !cluster.is_whole() {
                sleep(Duration::from_millis(1)).await;
            }
            cluster.look();
            cluster.end(name, End::Kill).await;
            cluster.start(name);
            // The verdict on an entry may wait for the lost disk: then an operator decides.
            while !cluster.until(Duration::from_secs(30), Cluster::is_whole).await {
                cluster.decide().await;
            }
            load.end().await;
            cluster.look();
        };
        world.run_within(Duration::from_secs(400), run).unwrap();
        assert!(history.violations().is_empty(), "seed {seed}: {:?}", history.violations());
        installs += history.installs();
    }
    assert!(installs > 4, "{installs}");
}

/// Data that a failed sync has lost silently are missing only after a power failure in a later life. By then the log
/// may be purged up to the position that the store reported as durable.
#[test]
fn a_failed_sync_is_not_trusted_after_a_kill() {
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
