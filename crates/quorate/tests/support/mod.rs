//! Clusters of nodes in one process, on real disk and TCP.

#![allow(dead_code, reason = "each test file uses its part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

pub mod dying;
pub mod events;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quorate::sim::SimHooks;
use quorate::{Admin, Client, ClientConfig, Config, Error, Node, SecretSource, Sql, StartError};
use quorate_env::Env;
use quorate_env::disk::{Disk as _, RealDisk};
use quorate_wire::{CallError, Dialer, DialerConfig, Identity, Purpose, Role, Secret};
use tempfile::TempDir;

pub const SECRET: &str = "a secret for tests only";

/// The time limit of every wait.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn secret() -> SecretSource {
    SecretSource::Inline(SECRET.to_owned())
}

/// Returns an address on which nobody listens, once. The system gives its port to no other socket, so that a node that
/// is down keeps it.
pub fn free_addr() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Each process begins elsewhere.
    let first = std::process::id().wrapping_mul(61) % 8_000;
    let steps = std::iter::repeat_with(|| (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 8_000);
    let mut addrs = steps.take(8_000).map(|step| format!("127.0.0.1:{}", 12_000 + step));
    addrs.find(|addr| TcpListener::bind(addr.as_str()).is_ok()).unwrap()
}

/// Calls a method in a role.
pub async fn call(addr: &str, role: Role, method: u16, body: Bytes) -> Result<Bytes, CallError> {
    let config = DialerConfig {
        addr: addr.to_owned(),
        identity: Identity::default(),
        secret: Secret::new(SECRET).unwrap(),
        role,
        purpose: Purpose::Client,
        expected: None,
        connect_limit: PATIENCE,
    };
    let client = Dialer::new(&Env::real(), config).client().await.unwrap();
    client.call(method, body, quorate_env::Instant::now() + PATIENCE).await
}

/// The time limit of a test, which may sync a thousand times on a slow disk.
const TEST_MAX: Duration = Duration::from_secs(300);

/// Runs a test on its own runtime.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_MAX, test).await.expect("the test takes too long") })
}

/// Runs a test with both kinds of handles, each with its own database.
pub fn on_both<F: Future<Output = Result<(), Error>>>(test: impl Fn(Sql) -> F) {
    run(async {
        let single = Single::start().await;
        test(single.node.sql()).await.expect("on a node's own handle");
        single.node.stop().await;
        let single = Single::start().await;
        let remote = single.client().await;
        test(remote.sql()).await.expect("on a remote handle");
        remote.close().await;
        single.node.stop().await;
    });
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Removes a member, once the leader has applied its log and heard of enough voters: a new one may not have yet.
pub async fn remove(admin: &Admin, name: &str) {
    let (deadline, mut is_in_doubt) = (Instant::now() + PATIENCE, false);
    while let Err(error) = admin.remove(name, false).await {
        let text = error.to_string();
        if is_in_doubt && text.contains("there is no member") {
            return;
        }
        is_in_doubt |= error.is_retryable();
        let is_early = ["has not yet applied all entries", "voters that would be left"].map(|why| text.contains(why));
        assert!((error.is_retryable() || is_early.contains(&true)) && Instant::now() < deadline, "{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Starts a node in the directory of one that may have been dropped: a worker of that may still wait for the disk.
pub async fn start_again(config: &Config) -> Node {
    try_start_again(config).await.unwrap()
}

/// Does the same, or returns why the node does not start.
pub async fn try_start_again(config: &Config) -> Result<Node, StartError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Node::start(config.clone()).await {
            Err(StartError::InUse(_)) if Instant::now() < deadline => {}
            started => return started,
        }
    }
}

/// A node that runs alone, with a directory that is deleted with it.
pub struct Single {
    pub dir: TempDir,
    pub node: Node,
}

impl Single {
    pub async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let node = Node::start(Self::config(&dir)).await.unwrap();
        Self { dir, node }
    }

    pub fn config(dir: &TempDir) -> Config {
        Config::single(dir.path()).with_secret(secret())
    }

    pub async fn client(&self) -> Client {
        Client::connect(ClientConfig::new([self.node.local_addr()], secret())).await.unwrap()
    }
}

/// Three nodes; each can be ended and started again.
pub struct Cluster {
    dir: TempDir,
    members: BTreeMap<String, String>,
    nodes: BTreeMap<String, Node>,
    world: World,
}

/// Returns the environment of a node, after changing its configuration if necessary.
pub type World = Box<dyn Fn(&str, &mut Config) -> (Env, SimHooks)>;

impl Cluster {
    /// Founds a cluster of three.
    pub async fn start() -> Self {
        Self::start_in(Box::new(|_, _| (Env::real(), SimHooks::default()))).await
    }

    /// Founds a cluster whose nodes have these environments.
    pub async fn start_in(world: World) -> Self {
        let mut cluster = Self::prepare_in(world);
        cluster.start_all().await;
        cluster
    }

    /// Prepares three configurations with empty directories.
    pub fn prepare() -> Self {
        Self::prepare_in(Box::new(|_, _| (Env::real(), SimHooks::default())))
    }

    fn prepare_in(world: World) -> Self {
        let members = ["a", "b", "c"].map(|name| (name.to_owned(), free_addr())).into();
        Self { dir: TempDir::new().unwrap(), members, nodes: BTreeMap::new(), world }
    }

    pub fn config(&self, name: &str) -> Config {
        let mut config = Config::single(self.dir.path().join(name));
        (config.name, config.members, config.secret) = (name.to_owned(), self.members.clone(), secret());
        config
    }

    /// Starts the nodes that are not running.
    pub async fn start_all(&mut self) {
        let absent: Vec<String> = self.members.keys().filter(|name| !self.nodes.contains_key(*name)).cloned().collect();
        let starts = absent.iter().map(|name| self.start_node(name));
        let started = futures_util::future::join_all(starts).await;
        for (name, node) in absent.into_iter().zip(started) {
            self.nodes.insert(name, node);
        }
    }

    async fn start_node(&self, name: &str) -> Node {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut config = self.config(name);
            let (env, seams) = (self.world)(name, &mut config);
            match Node::start_with(env, config, seams).await {
                // A worker of the node that was killed may still wait for the disk.
                Err(StartError::InUse(_)) if Instant::now() < deadline => {}
                started => return started.unwrap(),
            }
        }
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn node(&self, name: &str) -> &Node {
        &self.nodes[name]
    }

    pub fn sql(&self, name: &str) -> Sql {
        self.nodes[name].sql()
    }

    pub fn addrs(&self) -> Vec<String> {
        self.members.values().cloned().collect()
    }

    pub async fn client(&self) -> Client {
        Client::connect(ClientConfig::new(self.addrs(), secret())).await.unwrap()
    }

    /// Returns the name of the leader, once there is one.
    pub async fn leader(&self) -> String {
        let mut leader = None;
        until("a leader", || {
            leader = self.nodes.iter().find(|(_, node)| node.is_leader()).map(|(name, _)| name.clone());
            leader.is_some()
        })
        .await;
        leader.unwrap()
    }

    /// Ends a node as if its process had been killed.
    pub fn kill(&mut self, name: &str) {
        drop(self.nodes.remove(name).unwrap());
    }

    /// Stops a node in good order.
    pub async fn stop(&mut self, name: &str) {
        self.nodes.remove(name).unwrap().stop().await;
    }

    pub async fn stop_all(&mut self) {
        for (_, node) in std::mem::take(&mut self.nodes) {
            node.stop().await;
        }
    }

    pub async fn restart(&mut self, name: &str) {
        let node = self.start_node(name).await;
        self.nodes.insert(name.to_owned(), node);
    }

    /// Returns the database file of a node's latest generation.
    pub fn database(&self, name: &str) -> PathBuf {
        let items = std::fs::read_dir(self.config(name).data_dir.join("db")).unwrap().map(|item| item.unwrap().path());
        items.filter(|path| path.is_dir()).max().unwrap().join("quorate.db")
    }

    /// Deletes the directory of a node that was stopped or killed, once its last worker has left it.
    pub async fn wipe(&self, name: &str) {
        let dir = self.config(name).data_dir;
        let mut claim = None;
        until("the node has left its directory", || {
            claim = RealDisk.lock_dir(&dir).ok();
            claim.is_some()
        })
        .await;
        std::fs::remove_dir_all(dir).unwrap();
    }
}
