//! Three nodes in the simulated world: they found a cluster, are killed, wiped and cut off, and lose no acknowledged
//! write.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quorate_env::{Env, Instant, sleep, timeout};
use quorate_env_sim::SimWorld;
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{GroupId, StateMachine};
use quorate_wire::{CallFailure, FailureKind, PeerInfo, Secret, StreamReceiver, StreamSender};

use super::store::MemStore;
use crate::{
    Consensus, ConsensusConfig, Durability, KEEP_FOR_ARCHIVE_BYTES, KEEP_LOG_BYTES, Member, OpenStore, ProposeError,
    Service, StartError, Timing,
};

pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// The maximum virtual time that a test waits for anything.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// A group beside `main`.
pub(super) const BESIDE: GroupId = GroupId(2);

/// Small, so that logs have several segments.
pub(super) const LOG_SEGMENT_BYTES: u64 = 64 << 10;

pub(super) struct Nothing;

impl Service for Nothing {
    fn call(&self, _: &PeerInfo, method: u16, _: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>> {
        Box::pin(async move { Err(CallFailure::new(FailureKind::UnknownMethod, format!("{method}"))) })
    }

    fn stream(&self, _: &PeerInfo, method: u16, sender: StreamSender, _: StreamReceiver) -> BoxFuture<'static, ()> {
        sender.fail(CallFailure::new(FailureKind::UnknownMethod, format!("{method}")));
        Box::pin(std::future::ready(()))
    }
}

/// Three nodes, their stores, and the acknowledged writes.
pub(super) struct Cluster {
    world: SimWorld,
    pub(super) stores: Mutex<BTreeMap<&'static str, MemStore>>,
    /// The stores of the group [`BESIDE`], if the nodes have it.
    pub(super) beside: Option<Mutex<BTreeMap<&'static str, MemStore>>>,
    nodes: Arc<Mutex<BTreeMap<&'static str, Consensus>>>,
    /// The errors of failed starts, in their order.
    pub(super) failed: Arc<Mutex<Vec<StartError>>>,
    acknowledged: Mutex<Vec<Bytes>>,
    /// The size of the log that nodes keep.
    pub(super) keep_log_bytes: u64,
    /// The size of the log that nodes keep for an archive.
    pub(super) keep_for_archive_bytes: u64,
    /// The durabilities in the configurations; fsync for nodes that are not in this map.
    pub(super) durability: Mutex<BTreeMap<&'static str, Durability>>,
    /// The nodes whose cluster is to begin with a restored state.
    pub(super) begin_restored: Mutex<BTreeSet<&'static str>>,
    /// The port of all nodes in the lists of members, if it was changed.
    pub(super) listed: Mutex<Option<u16>>,
    /// For nodes that have moved, the addresses at which they listen and that they announce.
    pub(super) moved: Mutex<BTreeMap<&'static str, (String, String)>>,
}

impl Cluster {
    pub(super) fn new(world: &SimWorld) -> Self {
        let stores = NAMES.into_iter().map(|name| (name, MemStore::default())).collect();
        Self {
            world: world.clone(),
            stores: Mutex::new(stores),
            beside: None,
            keep_log_bytes: KEEP_LOG_BYTES,
            keep_for_archive_bytes: KEEP_FOR_ARCHIVE_BYTES,
            nodes: Arc::default(),
            failed: Arc::default(),
            acknowledged: Mutex::default(),
            durability: Mutex::default(),
            begin_restored: Mutex::default(),
            moved: Mutex::default(),
            listed: Mutex::default(),
        }
    }

    pub(super) fn start(&self, name: &'static str) {
        let env = data_dir(self.world.node(name));
        let store: Arc<dyn StateMachine> = Arc::new(self.stores.lock().unwrap().entry(name).or_default().clone());
        let mut stores = stores_of([(GroupId::MAIN, store)]);
        if let Some(beside) = &self.beside {
            let store: Arc<dyn StateMachine> = Arc::new(beside.lock().unwrap().entry(name).or_default().clone());
            stores.extend(stores_of([(BESIDE, store)]));
        }
        let (nodes, failed, inside) = (Arc::clone(&self.nodes), Arc::clone(&self.failed), env.clone());
        let durability = self.durability.lock().unwrap().get(name).copied().unwrap_or_default();
        let (keep_log_bytes, keep_for_archive_bytes) = (self.keep_log_bytes, self.keep_for_archive_bytes);
        let mut config = ConsensusConfig { durability, keep_log_bytes, keep_for_archive_bytes, ..config(name) };
        config.begins_restored = self.begin_restored.lock().unwrap().contains(name);
        if let Some(port) = *self.listed.lock().unwrap() {
            config.members.iter_mut().for_each(|member| member.addr = format!("{}:{port}", member.name));
        }
        if let Some((listen, announced)) = self.moved.lock().unwrap().get(name).cloned() {
            (config.listen, config.advertise) = (listen, Some(announced));
        }
        let up = async move {
            match Consensus::start(&inside, config, Path::new("/data/log"), stores, Arc::new(Nothing)).await {
                Ok(node) => drop(nodes.lock().unwrap().insert(name, node)),
                Err(error) => failed.lock().unwrap().push(error),
            }
            std::future::pending::<()>().await;
        };
        env.start_runtime(name, up).unwrap();
    }

    pub(super) async fn crash(&self, name: &'static str) {
        self.nodes.lock().unwrap().remove(name);
        self.world.crash(name).await;
    }

    pub(super) async fn kill(&self, name: &'static str) {
        self.nodes.lock().unwrap().remove(name);
        self.world.kill(name).await;
    }

    pub(super) async fn wipe(&self, name: &'static str) {
        self.nodes.lock().unwrap().remove(name);
        self.world.wipe(name).await;
        self.stores.lock().unwrap().insert(name, MemStore::default());
        if let Some(beside) = &self.beside {
            beside.lock().unwrap().insert(name, MemStore::default());
        }
    }

    pub(super) fn node(&self, name: &str) -> Option<Consensus> {
        self.nodes.lock().unwrap().get(name).cloned()
    }

    pub(super) fn store(&self, name: &str) -> MemStore {
        self.stores.lock().unwrap()[name].clone()
    }

    pub(super) fn leader(&self) -> Option<(&'static str, Consensus)> {
        let nodes = self.nodes.lock().unwrap();
        nodes.iter().find(|(_, node)| node.main().is_leader()).map(|(name, node)| (*name, node.clone()))
    }

    /// Returns the nodes other than `name`.
    pub(super) fn others(&self, name: &str) -> Vec<Consensus> {
        NAMES.into_iter().filter(|other| *other != name).filter_map(|other| self.node(other)).collect()
    }

    pub(super) async fn until(&self, what: &str, happened: impl Fn() -> bool) {
        let waiting = async {
            while !happened() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("{what} did not happen"));
    }

    /// Writes through the leader until the write is acknowledged.
    pub(super) async fn write(&self, text: &str) {
        self.write_through(text, |_| self.leader().map(|(_, leader)| leader)).await;
    }

    /// Writes through one node after the other until the write is acknowledged.
    async fn write_anywhere(&self, text: &str) {
        let first = self.acknowledged.lock().unwrap().len();
        self.write_through(text, |attempt| self.node(NAMES[(first + attempt) % NAMES.len()])).await;
    }

    /// Writes through nodes until the write is acknowledged. Each attempt is a proposal of its own.
    async fn write_through(&self, text: &str, node: impl Fn(usize) -> Option<Consensus>) {
        let deadline = Instant::now() + SOON;
        for attempt in 0.. {
            assert!(Instant::now() < deadline, "{text} was never acknowledged");
            let bytes = Bytes::from(format!("{text}#{attempt}"));
            let Some(node) = node(attempt) else {
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            match timeout(Duration::from_secs(2), node.main().propose(bytes.clone())).await {
                Ok(Ok(_)) => return self.acknowledged.lock().unwrap().push(bytes),
                Ok(Err(error)) if error == ProposeError::Overloaded => panic!("{text}: {error}"),
                Ok(Err(_)) | Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Checks that all nodes have the same history, with each acknowledged write exactly once.
    pub(super) async fn check(&self) {
        let stores = self.stores.lock().unwrap().clone();
        let applied = |store: &MemStore| store.kept().applied.index();
        let equal = || {
            let all: Vec<u64> = stores.values().map(applied).collect();
            all.iter().all(|index| *index == all[0])
        };
        self.until("agreement", equal).await;
        let history = |store: &MemStore| (store.kept().proposals, store.kept().rejected);
        let histories: Vec<_> = stores.values().map(history).collect();
        assert!(histories.iter().all(|history| *history == histories[0]), "the nodes differ");
        stores.values().for_each(|store| self.check_held(store));
    }

    /// Checks that a store has each acknowledged write exactly once.
    pub(super) fn check_held(&self, store: &MemStore) {
        let history = store.kept().proposals;
        for bytes in self.acknowledged.lock().unwrap().iter() {
            let count = history.iter().filter(|(_, applied)| applied == bytes).count();
            assert_eq!(count, 1, "{bytes:?} was applied {count} times");
        }
    }
}

/// Returns stores for the start of a node, which are open already.
pub(super) fn stores_of<const N: usize>(stores: [(GroupId, Arc<dyn StateMachine>); N]) -> BTreeMap<GroupId, OpenStore> {
    let open = |store| -> OpenStore { Box::new(move |_| Ok(store)) };
    stores.into_iter().map(|(group, store)| (group, open(store))).collect()
}

/// Creates the data directory durably, as an operator does before a node starts.
pub(super) fn data_dir(env: Env) -> Env {
    env.disk().create_dir_all(Path::new("/data")).unwrap();
    env.disk().sync_dir(Path::new("/")).unwrap();
    env
}

/// Returns a configuration whose list has the three nodes, and this node if it is another one.
pub(super) fn config(name: &str) -> ConsensusConfig {
    let listed = NAMES.into_iter().chain([name].into_iter().filter(|name| !NAMES.contains(name)));
    let members = listed.map(|name| Member { name: name.to_owned(), addr: format!("{name}:1") });
    ConsensusConfig {
        level: FORMAT_LEVEL,
        archives: false,
        name: name.to_owned(),
        listen: format!("{name}:1"),
        advertise: None,
        members: members.collect(),
        secret: Secret::new("a secret of some length").unwrap(),
        timing: Timing { silence: Duration::from_secs(3), ..Timing::default() },
        durability: Durability::default(),
        keep_log_bytes: KEEP_LOG_BYTES,
        keep_for_archive_bytes: KEEP_FOR_ARCHIVE_BYTES,
        log_segment_bytes: LOG_SEGMENT_BYTES,
        had_store: false,
        begins_restored: false,
    }
}

pub(super) async fn born(world: &SimWorld) -> Cluster {
    born_with(world, Durability::Fsync).await
}

pub(super) async fn born_with(world: &SimWorld, durability: Durability) -> Cluster {
    let cluster = Cluster::new(world);
    cluster.durability.lock().unwrap().extend(NAMES.map(|name| (name, durability)));
    NAMES.into_iter().for_each(|name| cluster.start(name));
    cluster.until("a leader", || cluster.leader().is_some()).await;
    cluster
}

/// Runs a cluster with crashes, power failures and partitions in an order that the seed determines. Returns the hash of
/// the trace.
fn crashes_and_partitions(seed: u64) -> u64 {
    let world = SimWorld::new(seed);
    let done = world.run(async {
        let cluster = born(&world).await;
        for round in 0..6 {
            cluster.write_anywhere(&format!("w{round}")).await;
            let victim = NAMES[usize::try_from(world.rng().below(3)).unwrap()];
            match world.rng().below(3) {
                0 => {
                    cluster.crash(victim).await;
                    cluster.write_anywhere(&format!("x{round}")).await;
                    cluster.start(victim);
                }
                1 => {
                    world.net().isolate(victim);
                    sleep(Duration::from_millis(world.rng().below(1_500))).await;
                    world.net().heal_all();
                }
                _ => {
                    for name in NAMES {
                        cluster.crash(name).await;
                    }
                    NAMES.into_iter().for_each(|name| cluster.start(name));
                }
            }
        }
        cluster.write_anywhere("last").await;
        cluster.check().await;
    });
    done.unwrap();
    world.trace().hash()
}

#[test]
fn acknowledged_writes_survive_crashes() {
    for seed in 0..8 {
        crashes_and_partitions(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    assert_eq!(crashes_and_partitions(42), crashes_and_partitions(42));
    assert_ne!(crashes_and_partitions(42), crashes_and_partitions(43));
}

#[test]
fn a_wiped_node_comes_back_as_a_new_member() {
    let world = SimWorld::new(7);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("before").await;
        let (victim, old) = cluster.leader().unwrap();
        let old_id = old.status().node;
        cluster.wipe(victim).await;
        cluster.write("while it is gone").await;
        cluster.start(victim);
        let is_back = || {
            let Some(node) = cluster.node(victim) else { return false };
            let status = node.status();
            let voters: Vec<_> = status.members.iter().filter(|member| member.voter).map(|member| member.id).collect();
            voters.contains(&status.node) && !voters.contains(&old_id) && voters.len() == 3
        };
        cluster.until("the new member's vote", is_back).await;
        assert_ne!(cluster.node(victim).unwrap().status().node, old_id);
        cluster.write("after").await;
        cluster.check().await;
    });
    done.unwrap();
}

#[test]
fn a_read_position_covers_all_acknowledged_writes() {
    let world = SimWorld::new(11);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("one").await;
        let written = cluster.stores.lock().unwrap().values().map(|store| store.kept().applied.index()).max().unwrap();
        for name in NAMES {
            cluster.until("a start", || cluster.node(name).is_some()).await;
            let node = cluster.node(name).unwrap();
            node.main().wait_leader(Instant::now() + SOON).await.unwrap();
            assert!(node.main().read_position().await.unwrap().index >= written);
        }
    });
    done.unwrap();
}

#[test]
fn a_cut_off_leader_gives_no_read_position() {
    let world = SimWorld::new(13);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("one").await;
        let (name, old) = cluster.leader().unwrap();
        world.net().isolate(name);
        let another =
            || NAMES.iter().any(|n| *n != name && cluster.node(n).is_some_and(|node| node.main().is_leader()));
        cluster.until("another leader", another).await;
        assert!(old.main().read_position().await.is_err());
    });
    done.unwrap();
}

#[test]
fn a_bounded_read_reuses_a_recent_round() {
    let world = SimWorld::new(23);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("one").await;
        let age = Duration::from_secs(5);
        for name in NAMES {
            let node = cluster.node(name).unwrap();
            let rounds = || node.main().metrics().read_rounds.count();
            let (first, before) = (node.main().read_position_within(age).await.unwrap(), rounds());
            cluster.write("two").await;
            assert!(node.main().read_position().await.unwrap() > first);
            let second = node.main().read_position_within(age).await.unwrap();
            assert!(second > first && rounds() == before + 1, "it reuses the round of the linearizable read");
            world.net().isolate(name);
            assert_eq!(node.main().read_position_within(age).await.unwrap(), second);
            // Longer than `age`, because a round may take no virtual time.
            sleep(age + Duration::from_millis(1)).await;
            assert!(node.main().read_position_within(age).await.is_err(), "{name} can't confirm a position");
            world.net().heal_all();
            let again = async {
                while node.main().read_position_within(age).await.is_err() {
                    sleep(Duration::from_millis(20)).await;
                }
            };
            timeout(SOON, again).await.unwrap();
        }
    });
    done.unwrap();
}

#[test]
fn leadership_can_be_handed_over() {
    let world = SimWorld::new(17);
    let done = world.run(async {
        let cluster = born(&world).await;
        cluster.write("one").await;
        let (_, old) = cluster.leader().unwrap();
        let taken = old.transfer_leadership(None).await.unwrap();
        assert_ne!(taken, old.status().node);
        cluster.write("two").await;
        cluster.check().await;
    });
    done.unwrap();
}

#[test]
fn a_lone_node_needs_no_other() {
    let world = SimWorld::new(19);
    let done = world.run(async {
        let env = data_dir(world.node("a"));
        let store = MemStore::default();
        let kept: Arc<dyn StateMachine> = Arc::new(store.clone());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let inside = env.clone();
        let up = async move {
            let alone = ConsensusConfig { members: Vec::new(), ..config("a") };
            let node = Consensus::start(
                &inside,
                alone,
                Path::new("/data/log"),
                stores_of([(GroupId::MAIN, kept)]),
                Arc::new(Nothing),
            )
            .await
            .unwrap();
            let _ = sender.send(node);
            std::future::pending::<()>().await;
        };
        env.start_runtime("a", up).unwrap();
        let node = receiver.await.unwrap();
        node.main().wait_leader(Instant::now() + SOON).await.unwrap();
        let (_, outcome) = node.main().propose(Bytes::from_static(b"alone")).await.unwrap();
        assert!(outcome.is_ok());
        assert_eq!(store.kept().proposals.len(), 1);
    });
    done.unwrap();
}
