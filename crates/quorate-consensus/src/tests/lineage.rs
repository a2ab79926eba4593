//! Nodes with damaged logs: a node whose directory belonged to a cluster never founds another.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use quorate_env::disk::Disk as _;
use quorate_env::{Instant, sleep};
use quorate_env_sim::SimWorld;

use super::cluster::{Cluster, NAMES, SOON, born};
use super::reboot::start_alone;
use super::store::MemStore;
use crate::{CLUSTER_FILE, Durability, StartError};

/// Damages the first bytes of the oldest segment.
fn damage_log(world: &SimWorld, name: &str) {
    let (disk, log) = (world.disk(name), Path::new("/data/log"));
    let mut segments: Vec<PathBuf> = disk.list(log).unwrap().into_iter().map(|item| log.join(item.name)).collect();
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    segments.sort();
    for bit in 0..64 {
        disk.flip_bit(&segments[0], 4 * bit, 0).unwrap();
    }
}

/// Kills a node, damages its log and empties its store.
async fn damage(world: &SimWorld, cluster: &Cluster, name: &'static str) {
    cluster.kill(name).await;
    damage_log(world, name);
    cluster.stores.lock().unwrap().insert(name, MemStore::default());
}

fn check_none_started(cluster: &Cluster) {
    assert!(NAMES.into_iter().all(|name| cluster.node(name).is_none()), "a second cluster was founded");
    assert!(cluster.failed.lock().unwrap().is_empty(), "{:?}", cluster.failed.lock().unwrap());
}

#[test]
fn nodes_whose_logs_are_all_damaged_found_no_cluster() {
    for is_file_lost in [false, true] {
        let world = SimWorld::new(51);
        let done = world.run(async {
            let cluster = born(&world).await;
            cluster.write("before").await;
            for name in NAMES {
                damage(&world, &cluster, name).await;
                if is_file_lost {
                    world.disk(name).remove_file(&Path::new("/data").join(CLUSTER_FILE)).unwrap();
                }
            }
            for _ in 0..2 {
                NAMES.into_iter().for_each(|name| cluster.start(name));
                sleep(SOON).await;
                check_none_started(&cluster);
                for name in NAMES {
                    cluster.kill(name).await;
                }
            }
        });
        done.unwrap();
    }
}

#[test]
fn a_wiped_node_founds_no_cluster_with_damaged_ones() {
    for wiped in NAMES {
        let world = SimWorld::new(52);
        let done = world.run(async {
            let cluster = born(&world).await;
            cluster.write("before").await;
            for name in NAMES.into_iter().filter(|name| *name != wiped) {
                damage(&world, &cluster, name).await;
            }
            cluster.wipe(wiped).await;
            NAMES.into_iter().for_each(|name| cluster.start(name));
            sleep(SOON).await;
            check_none_started(&cluster);
        });
        done.unwrap();
    }
}

#[test]
fn a_node_with_a_damaged_log_rejoins_its_cluster() {
    for is_file_lost in [false, true] {
        let world = SimWorld::new(53);
        let done = world.run(async {
            let cluster = born(&world).await;
            cluster.until("all", || NAMES.into_iter().all(|name| cluster.node(name).is_some())).await;
            cluster.write("before").await;
            let before = cluster.node("b").unwrap().status();
            damage(&world, &cluster, "b").await;
            if is_file_lost {
                world.disk("b").remove_file(&Path::new("/data").join(CLUSTER_FILE)).unwrap();
            }
            cluster.start("b");
            let is_back = || {
                let status = cluster.node("b").map(|node| node.status());
                status.is_some_and(|status| status.members.iter().any(|own| own.id == status.node && own.voter))
            };
            cluster.until("its return", is_back).await;
            let after = cluster.node("b").unwrap().status();
            assert_eq!(after.cluster, before.cluster);
            assert_ne!(after.node, before.node);
            cluster.write("after").await;
            cluster.check().await;
        });
        done.unwrap();
    }
}

#[test]
fn a_lone_node_without_its_log_fails_to_start() {
    let world = SimWorld::new(54);
    let done = world.run(async {
        let store = MemStore::default();
        let node = start_alone(&world, &store, Durability::Fsync).await.unwrap();
        node.main().wait_leader(Instant::now() + SOON).await.unwrap();
        node.main().propose(Bytes::from_static(b"one")).await.unwrap().1.unwrap();
        drop(node);
        world.kill("a").await;
        damage_log(&world, "a");
        let error = start_alone(&world, &store, Durability::Fsync).await.err().unwrap();
        assert!(matches!(error, StartError::LogDamaged(_)), "{error}");
        assert!(error.to_string().contains("'quorate restore'"), "{error}");
        world.kill("a").await;
        world.disk("a").rename(Path::new("/data/log"), Path::new("/data/elsewhere")).unwrap();
        let error = start_alone(&world, &store, Durability::Fsync).await.err().unwrap();
        assert!(matches!(error, StartError::Bereft(_)), "{error}");
        assert!(error.to_string().contains("restore a backup"), "{error}");
    });
    done.unwrap();
}
