//! Nodes with durability `os` in the simulated world: processes are killed, machines lose power.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use quorate_env::disk::Disk as _;
use quorate_env::{Instant, sleep};
use quorate_env_sim::SimWorld;
use quorate_model::{GroupId, NodeId, StateMachine};

use super::cluster::{Cluster, NAMES, Nothing, SOON, born_with, config, data_dir, stores_of};
use super::store::MemStore;
use crate::identity::{Identity, durability_name, durability_number};
use crate::{Consensus, ConsensusConfig, Durability, StartError};

/// Returns the names of the items in a node's directory.
fn items_of(world: &SimWorld, name: &str) -> Vec<String> {
    let items = world.disk(name).list(Path::new("/data")).unwrap();
    items.into_iter().map(|item| item.name).collect()
}

fn id(cluster: &Cluster, name: &str) -> Option<NodeId> {
    cluster.node(name).map(|node| node.status().node)
}

/// Whether a node knows exactly the three running nodes as members, and all of them as voters.
fn is_whole_with(cluster: &Cluster, name: &str) -> bool {
    let Some(node) = cluster.node(name) else { return false };
    let status = node.status();
    let voters: Vec<NodeId> = status.members.iter().filter(|member| member.voter).map(|member| member.id).collect();
    let present: Vec<NodeId> = NAMES.into_iter().filter_map(|name| id(cluster, name)).collect();
    voters.len() == 3 && status.members.len() == 3 && present.len() == 3 && present.iter().all(|id| voters.contains(id))
}

async fn ended(cluster: &Cluster, count: usize) -> Vec<StartError> {
    cluster.until("the ends", || cluster.failed.lock().unwrap().len() == count).await;
    std::mem::take(&mut *cluster.failed.lock().unwrap())
}

/// Kills all processes and starts them again.
async fn kill_all(cluster: &Cluster) {
    for name in NAMES {
        cluster.kill(name).await;
    }
    NAMES.into_iter().for_each(|name| cluster.start(name));
}

/// A killed process leaves no database that is ahead of its log, so no node comes back under a new id.
#[test]
fn killing_all_processes_loses_nothing() {
    for seed in 0..16 {
        let world = SimWorld::new(3_200 + seed);
        let done = world.run(async {
            let durability = if seed % 2 == 0 { Durability::Os } else { Durability::Fsync };
            let cluster = born_with(&world, durability).await;
            let ids = || NAMES.map(|name| id(&cluster, name));
            cluster.until("three", || is_whole_with(&cluster, "a")).await;
            let first = ids();
            for round in 0..3 {
                cluster.write(&format!("w{round}")).await;
                kill_all(&cluster).await;
                cluster.write(&format!("x{round}")).await;
            }
            cluster.check().await;
            assert_eq!((ids(), cluster.failed.lock().unwrap().len()), (first, 0), "seed {seed}");
        });
        done.unwrap();
    }
}

#[test]
fn a_node_that_may_have_lost_entries_is_a_new_member() {
    for (durability, boot_id_is_hidden) in [(Durability::Os, false), (Durability::Os, true), (Durability::Fsync, false)]
    {
        let world = SimWorld::new(32);
        let done = world.run(async {
            let cluster = born_with(&world, durability).await;
            cluster.write("before").await;
            let (victim, old) = cluster.leader().unwrap();
            let old = old.status().node;
            // If the boot id can't be read, a killed process can't be distinguished from a restarted machine.
            world.disk(victim).hide_boot_id(boot_id_is_hidden);
            if boot_id_is_hidden {
                cluster.kill(victim).await
            } else {
                cluster.crash(victim).await
            }
            cluster.write("while it is gone").await;
            cluster.start(victim);
            cluster.until("its return", || is_whole_with(&cluster, victim)).await;
            let is_new = durability == Durability::Os;
            assert_eq!(id(&cluster, victim) != Some(old), is_new);
            let aside = items_of(&world, victim).into_iter().filter(|item| item.starts_with("log.rebooted-")).count();
            assert_eq!(aside, usize::from(is_new), "the former log is kept");
            cluster.write("after").await;
            cluster.check().await;
        });
        done.unwrap();
    }
}

#[test]
fn a_reboot_after_an_orderly_stop_loses_nothing() {
    let world = SimWorld::new(33);
    let done = world.run(async {
        let cluster = born_with(&world, Durability::Os).await;
        cluster.write("before").await;
        let (name, node) = cluster.leader().unwrap();
        let former = node.status().node;
        node.stop().await;
        drop(node);
        cluster.crash(name).await;
        cluster.start(name);
        cluster.until("its return", || is_whole_with(&cluster, name)).await;
        assert_eq!(id(&cluster, name), Some(former));
        cluster.write("after").await;
        cluster.check().await;
    });
    done.unwrap();
}

#[test]
fn repeated_power_failures_do_no_harm() {
    for seed in 0..6 {
        let world = SimWorld::new(3_000 + seed);
        let done = world.run(async {
            let cluster = born_with(&world, Durability::Os).await;
            let victim = NAMES[usize::try_from(seed).unwrap() % 3];
            cluster.until("a start", || cluster.node(victim).is_some()).await;
            cluster.write("before").await;
            for round in 0..8 {
                cluster.crash(victim).await;
                cluster.start(victim);
                sleep(Duration::from_millis(world.rng().below(60))).await;
                cluster.write(&format!("w{round}")).await;
            }
            cluster.until("its return", || is_whole_with(&cluster, victim)).await;
            cluster.write("after").await;
            cluster.check().await;
        });
        done.unwrap();
    }
}

#[test]
fn power_failures_of_minorities_lose_nothing() {
    for seed in 0..8 {
        let world = SimWorld::new(3_100 + seed);
        let done = world.run(async {
            let cluster = born_with(&world, Durability::Os).await;
            for round in 0..5 {
                cluster.write(&format!("w{round}")).await;
                let victim = NAMES[usize::try_from(world.rng().below(3)).unwrap()];
                cluster.until("three", || is_whole_with(&cluster, victim)).await;
                if world.rng().chance(0.5) {
                    cluster.crash(victim).await;
                    cluster.write(&format!("x{round}")).await;
                    cluster.start(victim);
                } else {
                    kill_all(&cluster).await;
                }
            }
            cluster.write("last").await;
            cluster.check().await;
        });
        done.unwrap();
    }
}

#[test]
fn nodes_that_all_lost_power_found_no_cluster() {
    let world = SimWorld::new(34);
    let done = world.run(async {
        let cluster = born_with(&world, Durability::Os).await;
        cluster.write("before").await;
        for name in NAMES {
            cluster.crash(name).await;
        }
        for end_again in [false, true] {
            for name in NAMES {
                if end_again {
                    cluster.kill(name).await;
                }
                cluster.start(name);
            }
            sleep(SOON).await;
            assert!(NAMES.into_iter().all(|name| cluster.node(name).is_none()), "a node has founded another cluster");
            assert!(cluster.failed.lock().unwrap().is_empty());
        }
        for name in NAMES {
            let aside = items_of(&world, name).into_iter().filter(|item| item.starts_with("log.rebooted-")).count();
            assert_eq!(aside, 1, "the log is put aside once, and kept");
        }
        let stores = cluster.stores.lock().unwrap().clone();
        let last = stores.values().max_by_key(|store| store.kept().applied.index()).unwrap();
        cluster.check_held(last);
    });
    done.unwrap();
}

#[test]
fn a_majority_that_lost_power_never_votes_as_before() {
    let world = SimWorld::new(37);
    let done = world.run(async {
        let cluster = born_with(&world, Durability::Os).await;
        cluster.until("three", || is_whole_with(&cluster, "a")).await;
        cluster.write("before").await;
        for name in ["a", "b"] {
            cluster.crash(name).await;
            cluster.start(name);
        }
        sleep(SOON).await;
        assert!(cluster.leader().is_none(), "entries that only these two held may be lost");
        let voters = |status: crate::ClusterStatus| status.members.into_iter().filter(|member| member.voter).count();
        assert_eq!(voters(cluster.node("c").unwrap().status()), 3);
    });
    done.unwrap();
}

/// Starts a node that runs alone, and returns the result.
pub(super) async fn start_alone(
    world: &SimWorld,
    store: &MemStore,
    durability: Durability,
) -> Result<Consensus, StartError> {
    let env = data_dir(world.node("a"));
    let kept: Arc<dyn StateMachine> = Arc::new(store.clone());
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let inside = env.clone();
    let up = async move {
        let alone = ConsensusConfig { members: Vec::new(), durability, ..config("a") };
        let started = Consensus::start(
            &inside,
            alone,
            Path::new("/data/log"),
            stores_of([(GroupId::MAIN, kept)]),
            Arc::new(Nothing),
        )
        .await;
        let _ = sender.send(started);
        std::future::pending::<()>().await;
    };
    env.start_runtime("a", up).unwrap();
    receiver.await.unwrap()
}

#[test]
fn a_lone_node_that_lost_power_changes_nothing() {
    let world = SimWorld::new(35);
    let done = world.run(async {
        let store = MemStore::default();
        let node = start_alone(&world, &store, Durability::Os).await.unwrap();
        node.main().wait_leader(Instant::now() + SOON).await.unwrap();
        node.main().propose(Bytes::from_static(b"one")).await.unwrap().1.unwrap();
        drop(node);
        world.kill("a").await;
        let node = start_alone(&world, &store, Durability::Os).await.unwrap();
        node.main().wait_leader(Instant::now() + SOON).await.unwrap();
        node.main().propose(Bytes::from_static(b"two")).await.unwrap().1.unwrap();
        drop(node);
        for _ in 0..2 {
            world.crash("a").await;
            let error = start_alone(&world, &store, Durability::Os).await.err().unwrap();
            assert!(matches!(error, StartError::Rebooted), "{error}");
            assert!(error.to_string().contains("'quorate restore'"), "{error}");
            assert_eq!(items_of(&world, "a"), ["CLUSTER", "log"]);
        }
        assert_eq!(store.kept().proposals.len(), 2);
        // Another durability in the configuration does not avoid this.
        world.kill("a").await;
        let error = start_alone(&world, &store, Durability::Fsync).await.err().unwrap();
        assert!(matches!(error, StartError::Durability { .. }), "{error}");
    });
    done.unwrap();
}

#[test]
fn a_durability_unlike_the_clusters_is_refused() {
    let world = SimWorld::new(36);
    let done = world.run(async {
        let set = |cluster: &Cluster, name, durability| {
            cluster.durability.lock().unwrap().insert(name, durability);
        };
        let cluster = Cluster::new(&world);
        set(&cluster, "b", Durability::Os);
        NAMES.into_iter().for_each(|name| cluster.start(name));
        // No node founds a cluster. Each node that sees another durability fails with an error that names it.
        cluster.until("an end", || !cluster.failed.lock().unwrap().is_empty()).await;
        let error = cluster.failed.lock().unwrap().remove(0).to_string();
        assert!(error.contains("'os'") && error.contains("'fsync'") && error.contains("on all of them"), "{error}");
        for name in NAMES {
            assert!(cluster.node(name).is_none());
            cluster.kill(name).await;
            set(&cluster, name, Durability::Os);
        }
        cluster.failed.lock().unwrap().clear();
        NAMES.into_iter().for_each(|name| cluster.start(name));
        cluster.write("one").await;
        cluster.until("all", || is_whole_with(&cluster, "c")).await;

        // Neither a member nor a node with a new directory may join with another durability.
        set(&cluster, "c", Durability::Fsync);
        cluster.kill("c").await;
        cluster.start("c");
        let error = ended(&cluster, 1).await.remove(0);
        assert!(error.to_string().contains("that of this data directory's cluster is 'os'"), "{error}");
        cluster.wipe("c").await;
        cluster.start("c");
        let error = ended(&cluster, 1).await.remove(0);
        assert!(matches!(error, StartError::Durability { configured: Durability::Fsync, .. }), "{error}");
        set(&cluster, "c", Durability::Os);
        cluster.kill("c").await;
        cluster.start("c");
        cluster.until("its return", || is_whole_with(&cluster, "c")).await;
        cluster.check().await;
    });
    done.unwrap();
}

#[test]
fn a_record_without_a_durability_means_fsync() {
    // As versions before the durability wrote it.
    let before: [u8; 12] = [0x09, 1, 0, 0, 0, 0, 0, 0, 0, 0x12, 1, b'a'];
    assert_eq!(Identity::new(1, "a").encode_to_vec(), before);
    let read = Identity::decode(&before[..]).unwrap();
    assert_eq!(durability_name(read.durability), "fsync");
    let os = Identity { durability: durability_number(Durability::Os), ..read };
    let bytes = os.encode_to_vec();
    assert_eq!(bytes, [&before[..], &[0x40, 1]].concat());
    assert_eq!(durability_name(Identity::decode(&bytes[..]).unwrap().durability), "os");
    assert!(durability_name(2).contains("does not know"));
}
