//! Time and topics on three nodes, with the store for tests: items expire by ticks, and waiters are woken.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use quorate_apply::items;
use quorate_apply::waits::Woken;
use quorate_env::{sleep, timeout};
use quorate_env_sim::SimWorld;
use quorate_model::codec::encode_proposal;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{Command, CommandResult, ItemsCommand, ItemsReply, Outcome, Proposal, StateMachine};

use super::cluster::{Cluster, NAMES, born};

/// Longer than an election.
const SOON: Duration = Duration::from_secs(10);

/// A cluster of three nodes that uses the level of the store for tests.
async fn raised(world: &SimWorld) -> Cluster {
    let cluster = born(world).await;
    cluster.until("all nodes", || NAMES.into_iter().all(|name| cluster.node(name).is_some())).await;
    let is_raised = |name: &str| cluster.store(name).applied().level == FORMAT_LEVEL;
    cluster.until("the level", || NAMES.into_iter().all(is_raised)).await;
    cluster
}

/// Runs a command through the present leader, until it is acknowledged. Returns its index and outcome.
async fn run(cluster: &Cluster, command: ItemsCommand) -> (u64, Outcome) {
    let bytes = encode_proposal(&Proposal::new(None, vec![Command::Items(command)])).unwrap();
    let acknowledged = async {
        loop {
            if let Some((_, leader)) = cluster.leader()
                && let Ok((position, outcome)) = leader.main().propose(bytes.clone()).await
            {
                return (position.index, outcome);
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, acknowledged).await.unwrap()
}

fn add(key: &'static str, ttl: Duration) -> ItemsCommand {
    let ttl = u64::try_from(ttl.as_nanos()).unwrap();
    ItemsCommand::Add { key: Bytes::from_static(key.as_bytes()), value: Bytes::from_static(b"value"), ttl }
}

/// The last index of the log, on the nodes that run.
fn last_indexes(cluster: &Cluster) -> Vec<u64> {
    cluster.others("").iter().map(|node| node.status().main.last.map_or(0, |id| id.index)).collect()
}

/// Whether no node holds a row of the store for tests.
fn all_are_swept(cluster: &Cluster) -> bool {
    let running = NAMES.into_iter().filter(|name| cluster.node(name).is_some());
    running
        .map(|name| cluster.store(name).kept())
        .all(|kept| kept.items.0.rows().count() == 0 && kept.applied.due.is_none())
}

/// Checks that the nodes write nothing for a long time.
async fn is_idle(cluster: &Cluster) {
    let before = last_indexes(cluster);
    sleep(Duration::from_secs(300)).await;
    assert_eq!(last_indexes(cluster), before, "an idle cluster writes nothing");
}

#[test]
fn items_expire_by_ticks_over_a_failover() {
    let world = SimWorld::new(61);
    let done = world.run(async {
        let cluster = raised(&world).await;
        is_idle(&cluster).await;
        run(&cluster, add("soon", Duration::from_secs(2))).await.1.unwrap();
        run(&cluster, add("later", Duration::from_secs(30))).await.1.unwrap();
        let before = last_indexes(&cluster)[0];
        sleep(Duration::from_secs(20)).await;
        let rows = |name: &str| cluster.store(name).kept().items.0.rows().count();
        assert_eq!(NAMES.map(rows), [2; 3], "the item, and its due time");
        assert_eq!(last_indexes(&cluster)[0], before + 1, "one tick for one item");

        let (name, _) = cluster.leader().unwrap();
        cluster.kill(name).await;
        sleep(Duration::from_secs(11)).await;
        cluster.until("the sweep by the next leader", || all_are_swept(&cluster)).await;
        cluster.start(name);
        cluster.until("its return", || cluster.node(name).is_some() && all_are_swept(&cluster)).await;
        cluster.check().await;
        is_idle(&cluster).await;
    });
    done.unwrap();
}

#[test]
fn ticks_wait_while_the_leader_is_slowed() {
    let world = SimWorld::new(63);
    let done = world.run(async {
        let cluster = raised(&world).await;
        let slow = |is_slowed| {
            for name in NAMES {
                cluster.store(name).is_slowed.store(is_slowed, Ordering::Relaxed);
            }
        };
        run(&cluster, add("soon", Duration::from_secs(2))).await.1.unwrap();
        slow(true);
        is_idle(&cluster).await;
        assert!(!all_are_swept(&cluster));
        slow(false);
        cluster.until("the sweep", || all_are_swept(&cluster)).await;
        cluster.check().await;
    });
    done.unwrap();
}

/// A waiter on each follower waits for the same key. The leader is killed, and the item is added through the next one.
#[test]
fn waiters_on_all_nodes_are_woken_over_a_failover() {
    let world = SimWorld::new(62);
    let done = world.run(async {
        let cluster = raised(&world).await;
        let topic = items::topic(b"job");
        let (dead, _) = cluster.leader().unwrap();
        let alive: Vec<_> = NAMES.into_iter().filter(|name| *name != dead).collect();
        let mut waiters: Vec<_> = alive.iter().map(|name| cluster.store(name).waits.register(topic).unwrap()).collect();
        let other = run(&cluster, add("other", Duration::ZERO)).await.0;
        let is_applied = |index| alive.iter().all(|name| cluster.store(name).applied().index() >= index);
        cluster.until("the other item on both", || is_applied(other)).await;
        assert!(alive.iter().all(|name| cluster.store(name).waits.count() == 1), "another key wakes nobody");
        cluster.kill(dead).await;
        let job = run(&cluster, add("job", Duration::ZERO)).await.0;
        let mut taken = Vec::new();
        for waiter in &mut waiters {
            let woken = timeout(SOON, waiter.woken()).await.unwrap();
            assert_eq!(woken, Woken::By(job));
            let take = run(&cluster, ItemsCommand::Take(Bytes::from_static(b"job"))).await.1.unwrap();
            taken.push(take.results[0].clone());
        }
        let value = ItemsReply::Taken(Bytes::from_static(b"value"));
        assert_eq!(taken, [value, ItemsReply::Missing].map(CommandResult::Items), "one of two gets it");
        assert!(alive.iter().all(|name| cluster.store(name).waits.count() == 0));
    });
    done.unwrap();
}
