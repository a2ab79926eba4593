//! Starts of nodes whose log and store do not match, in the simulated world.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Instant, sleep};
use quorate_env_sim::SimWorld;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{Applied, GroupId, LogId, NodeId, StateMachine};
use tokio::sync::oneshot;

use super::cluster::{SOON, config, data_dir, stores_of};
use super::reboot::start_alone;
use super::store::MemStore;
use crate::group_log::GroupLog;
use crate::start::{open_home, open_stores};
use crate::{Durability, StartError};

const MAIN: GroupId = GroupId::MAIN;

fn id(term: u64, index: u64) -> LogId {
    LogId { term, node: NodeId(1), index }
}

/// Runs a test in a world of its own.
fn run(seed: u64, test: impl AsyncFn(&SimWorld)) {
    let world = SimWorld::new(seed);
    world.run(test(&world)).unwrap();
}

/// Returns a store that has applied everything up to an entry.
fn store_at(applied: LogId) -> MemStore {
    let store = MemStore::default();
    store.set_applied(Applied { log_id: Some(applied), ..Applied::default() });
    store
}

/// Opens the log of a node and reconciles it with its store. The node runs until it is killed.
async fn start(world: &SimWorld, store: &MemStore) -> Result<GroupLog, StartError> {
    let (env, store) = (data_dir(world.node("a")), Arc::new(store.clone()) as Arc<dyn StateMachine>);
    let (sender, receiver) = oneshot::channel();
    let inside = env.clone();
    let up = async move {
        let opened = open_home(&inside, &config("a"), Path::new("/data/log"), &[MAIN]).await;
        let (home, restart) = opened.unwrap();
        let stores = stores_of([(MAIN, store)]);
        let reconciled = open_stores(&home, stores, restart).await;
        drop(sender.send(reconciled.map(|_| GroupLog::new(&home, MAIN))));
        std::future::pending::<()>().await;
    };
    env.start_runtime("a", up).unwrap();
    receiver.await.unwrap()
}

/// Appends an entry of each index and waits until they and a vote are durable.
async fn append(log: &GroupLog, term: u64, indexes: RangeInclusive<u64>) {
    let entries = indexes.map(|index| (id(term, index), Bytes::from_static(b"entry"))).collect();
    let (sender, receiver) = oneshot::channel();
    log.wal().append(MAIN, entries, Box::new(drop)).unwrap();
    log.wal().save_vote(MAIN, Bytes::from_static(b"vote"), Box::new(move |done| drop(sender.send(done)))).unwrap();
    receiver.await.unwrap().unwrap();
}

#[test]
fn a_store_may_be_ahead_after_a_power_failure() {
    for is_power_lost in [true, false] {
        run(37, async |world| {
            append(&start(world, &MemStore::default()).await.unwrap(), 1, 1..=3).await;
            let ahead = store_at(id(1, 5));
            if is_power_lost {
                world.crash("a").await;
            } else {
                world.kill("a").await;
                let error = start(world, &ahead).await.err().unwrap();
                return assert!(matches!(error, StartError::LogCut { log: 3, database: 5 }), "{error}");
            }
            // The first process is killed right after its start. The second finds no trace of the power failure.
            for _ in 0..2 {
                let log = start(world, &ahead).await.unwrap();
                assert_eq!(log.last(), Some(id(1, 5)));
                world.kill("a").await;
            }
        });
    }
}

#[test]
fn a_log_yields_to_the_entry_the_store_has_applied() {
    run(38, async |world| {
        append(&start(world, &MemStore::default()).await.unwrap(), 1, 1..=6).await;
        world.crash("a").await;
        let log = start(world, &store_at(id(2, 4))).await.unwrap();
        let ends = |log: &GroupLog| (log.purged(), log.last());
        assert_eq!(ends(&log), (Some(id(2, 4)), Some(id(2, 4))));
        append(&log, 2, 5..=5).await;
        world.crash("a").await;
        let log = start(world, &store_at(id(2, 4))).await.unwrap();
        assert_eq!(ends(&log), (Some(id(2, 4)), Some(id(2, 5))));
    });
}

#[test]
fn a_store_that_lacks_purged_entries_is_damaged() {
    run(39, async |world| {
        let log = start(world, &MemStore::default()).await.unwrap();
        append(&log, 1, 1..=6).await;
        log.wal().purge(MAIN, id(1, 4)).unwrap();
        append(&log, 1, 7..=7).await;
        for (applied, is_whole) in [(3, false), (4, true), (5, true)] {
            world.kill("a").await;
            match start(world, &store_at(id(1, applied))).await {
                Ok(_) => assert!(is_whole),
                Err(error) => assert!(!is_whole && matches!(error, StartError::StoreCut { held: 4, .. }), "{error}"),
            }
        }
        world.kill("a").await;
        let error = start(world, &MemStore::default()).await.err().unwrap();
        assert!(matches!(error, StartError::StoreCut { database: None, held: 4, .. }), "{error}");
    });
}

/// The second image was recorded, but the process died before it was installed.
#[test]
fn a_store_may_be_either_of_the_last_two_images() {
    run(41, async |world| {
        let log = start(world, &MemStore::default()).await.unwrap();
        append(&log, 1, 1..=3).await;
        log.note_image(10).await.unwrap();
        log.note_image(20).await.unwrap();
        world.kill("a").await;
        let error = start(world, &store_at(id(1, 15))).await.err().unwrap();
        assert!(matches!(error, StartError::LogCut { log: 3, database: 15 }), "{error}");
        for end in [10, 20] {
            world.kill("a").await;
            start(world, &store_at(id(1, end))).await.unwrap();
        }
    });
}

#[test]
fn an_image_may_end_before_the_damaged_data() {
    run(42, async |world| {
        let log = start(world, &MemStore::default()).await.unwrap();
        append(&log, 1, 1..=9).await;
        log.note_stored(8).await.unwrap();
        log.note_image(5).await.unwrap();
        world.kill("a").await;
        start(world, &store_at(id(1, 5))).await.unwrap();
    });
}

/// Nothing is purged here, but the node has recorded what the store held durably.
#[test]
fn a_store_that_lacks_durable_entries_is_damaged() {
    run(40, async |world| {
        let store = MemStore::default();
        let node = start_alone(world, &store, Durability::Fsync).await.unwrap();
        let deadline = Instant::now() + SOON;
        node.main().wait_leader(deadline).await.unwrap();
        while store.kept().applied.level < FORMAT_LEVEL {
            assert!(Instant::now() < deadline, "the level is not raised");
            sleep(Duration::from_millis(10)).await;
        }
        node.main().propose(Bytes::from_static(b"one")).await.unwrap().1.unwrap();
        let held = store.kept().applied.index();
        let deadline = Instant::now() + SOON;
        while node.0.service.home.identity().notes(GroupId::MAIN).stored != Some(held) {
            assert!(Instant::now() < deadline, "what the store holds is not recorded");
            sleep(Duration::from_millis(10)).await;
        }
        drop(node);
        world.kill("a").await;
        store.lose_last();
        let error = start_alone(world, &store, Durability::Fsync).await.err().unwrap();
        let expected = |database, known| (database, known) == (Some(held - 1), held);
        assert!(matches!(error, StartError::StoreCut { database, held, .. } if expected(database, held)), "{error}");
        assert!(error.to_string().contains("alone it needs a backup"), "{error}");
    });
}
