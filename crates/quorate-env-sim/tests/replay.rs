//! A seed replays a whole world: nodes that exchange a counter, workers that write it, deaths and partitions.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_env::disk::{File, OpenMode};
use quorate_env::worker::{Signal, Step, Worker};
use quorate_env::{Env, Instant, sleep};
use quorate_env_sim::{SimWorld, Trace};
use quorate_wire::{
    CallFailure, Dialer, DialerConfig, Handler, Identity, Keys, PeerInfo, Purpose, Role, Secret, ServerConfig, serve,
};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

fn secret() -> Secret {
    Secret::new("sixteen bytes or more").unwrap()
}

/// Writes the counter to disk and syncs it.
struct Writer {
    file: Arc<dyn File>,
    counter: Arc<AtomicU64>,
}

impl Worker for Writer {
    fn run_once(&mut self) -> Step {
        let counter = self.counter.load(Ordering::Relaxed);
        let written = self.file.write_at(&counter.to_le_bytes(), 0).and_then(|()| self.file.sync_data());
        if written.is_ok() { Step::Wait } else { Step::Done }
    }
}

/// Takes the counter of a caller and replies with the next value.
struct CounterService {
    counter: Arc<AtomicU64>,
    signal: Signal,
}

impl Handler for CounterService {
    fn call(&self, _: &PeerInfo, _: u16, body: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>> {
        let received = u64::from_le_bytes(body[..].try_into().unwrap());
        let counter = self.counter.fetch_max(received, Ordering::Relaxed).max(received) + 1;
        self.signal.wake();
        async move { Ok(counter.to_le_bytes().to_vec().into()) }.boxed()
    }
}

/// Runs a life of a node: it reads the counter from its disk, serves, and sends the counter to the others.
async fn live(env: Env, name: &'static str, trace: Trace) {
    let file = env.disk().open(Path::new("/counter"), OpenMode::Create).unwrap();
    let mut bytes = [0; 8];
    let _ = file.read_at(&mut bytes, 0).unwrap();
    let counter = Arc::new(AtomicU64::new(u64::from_le_bytes(bytes)));
    trace.add(name, format_args!("starts with counter {counter:?}"));
    let signal = Signal::new();
    let _worker = env.start_worker("writer", Writer { file, counter: Arc::clone(&counter) }, &signal).unwrap();

    let number = u64::from(name.as_bytes()[5]);
    let identity = Identity::new(1, number);
    let listener = env.net().listen(&format!("{name}:1")).await.unwrap();
    let config = ServerConfig::new(identity.clone(), Keys::peers_only(secret()));
    let _server = serve(
        &env,
        listener,
        config,
        Arc::new(CounterService { counter: Arc::clone(&counter), signal: signal.clone() }),
    );
    let dialers = NODES.map(|peer| {
        let config = DialerConfig {
            addr: format!("{peer}:1"),
            identity: identity.clone(),
            secret: secret(),
            role: Role::Peer,
            purpose: Purpose::Data,
            expected: None,
            connect_limit: Duration::from_millis(100),
        };
        Dialer::new(&env, config)
    });
    loop {
        sleep(Duration::from_millis(env.rng().below(20))).await;
        let dialer = &dialers[usize::try_from(env.rng().below(3)).unwrap()];
        let Ok(client) = dialer.client().await else { continue };
        let sent = counter.load(Ordering::Relaxed).to_le_bytes().to_vec();
        let deadline = Instant::now() + Duration::from_millis(200);
        if let Ok(back) = client.call(1, sent.into(), deadline).await {
            counter.fetch_max(u64::from_le_bytes(back[..].try_into().unwrap()), Ordering::Relaxed);
            signal.wake();
        }
    }
}

fn start(world: &SimWorld, name: &'static str) {
    let env = world.node(name);
    env.start_runtime("node", live(env.clone(), name, world.trace().clone())).unwrap();
}

/// Runs some seconds with ten faults. Returns the hash and the number of events.
fn run(seed: u64) -> (u64, u64) {
    let world = SimWorld::new(seed);
    let scenario = async {
        for name in NODES {
            start(&world, name);
        }
        for _ in 0..10 {
            let pick = || NODES[usize::try_from(world.rng().below(3)).unwrap()];
            let (one, other) = (pick(), pick());
            sleep(Duration::from_millis(world.rng().below(300))).await;
            match world.rng().below(6) {
                0 => world.net().cut(one, other),
                1 => world.net().cut_way(one, other),
                2 => world.net().isolate(one),
                3 => world.net().heal_all(),
                4 => world.kill(one).await,
                _ => world.crash(one).await,
            }
            if !world.is_alive(one) {
                start(&world, one);
            }
        }
    };
    world.run(scenario).unwrap();
    (world.trace().hash(), world.trace().count())
}

#[test]
fn equal_seeds_replay_and_different_seeds_differ() {
    let first: Vec<_> = (0..20).map(run).collect();
    let second: Vec<_> = (0..20).map(run).collect();
    assert_eq!(first, second);
    assert!(first.iter().all(|(_, count)| *count > 200), "too few events: {first:?}");
    let distinct: BTreeSet<u64> = first.iter().map(|(hash, _)| *hash).collect();
    assert_eq!(distinct.len(), first.len());
}
