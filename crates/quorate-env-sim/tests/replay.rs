//! A seed replays a whole world: nodes that throw a ball to each other, workers that write, deaths and partitions.
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

/// Writes the number of the ball to disk, and syncs it.
struct Writer {
    file: Arc<dyn File>,
    ball: Arc<AtomicU64>,
}

impl Worker for Writer {
    fn run_once(&mut self) -> Step {
        let ball = self.ball.load(Ordering::Relaxed);
        let written = self.file.write_at(&ball.to_le_bytes(), 0).and_then(|()| self.file.sync_data());
        if written.is_ok() { Step::Wait } else { Step::Done }
    }
}

/// Catches a ball and gives back the next.
struct Catcher {
    ball: Arc<AtomicU64>,
    signal: Signal,
}

impl Handler for Catcher {
    fn call(&self, _: &PeerInfo, _: u16, body: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>> {
        let caught = u64::from_le_bytes(body[..].try_into().unwrap());
        let ball = self.ball.fetch_max(caught, Ordering::Relaxed).max(caught) + 1;
        self.signal.wake();
        async move { Ok(ball.to_le_bytes().to_vec().into()) }.boxed()
    }
}

/// A life of a node: it starts from what is on its disk, serves, and throws to the others.
async fn live(env: Env, name: &'static str, trace: Trace) {
    let file = env.disk().open(Path::new("/ball"), OpenMode::Create).unwrap();
    let mut bytes = [0; 8];
    let _ = file.read_at(&mut bytes, 0).unwrap();
    let ball = Arc::new(AtomicU64::new(u64::from_le_bytes(bytes)));
    trace.add(name, format_args!("starts with ball {ball:?}"));
    let signal = Signal::new();
    let _worker = env.start_worker("writer", Writer { file, ball: Arc::clone(&ball) }, &signal).unwrap();

    let number = u64::from(name.as_bytes()[5]);
    let identity = Identity::new(1, number);
    let listener = env.net().listen(&format!("{name}:1")).await.unwrap();
    let config = ServerConfig::new(identity.clone(), Keys::peers_only(secret()));
    let _server = serve(&env, listener, config, Arc::new(Catcher { ball: Arc::clone(&ball), signal: signal.clone() }));
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
        let thrown = ball.load(Ordering::Relaxed).to_le_bytes().to_vec();
        let deadline = Instant::now() + Duration::from_millis(200);
        if let Ok(back) = client.call(1, thrown.into(), deadline).await {
            ball.fetch_max(u64::from_le_bytes(back[..].try_into().unwrap()), Ordering::Relaxed);
            signal.wake();
        }
    }
}

fn start(world: &SimWorld, name: &'static str) {
    let env = world.node(name);
    env.start_runtime("node", live(env.clone(), name, world.trace().clone())).unwrap();
}

/// Some seconds with a fault now and then. Gives the hash and the number of events.
fn run(seed: u64) -> (u64, u64) {
    let world = SimWorld::new(seed);
    let story = async {
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
    world.run(story).unwrap();
    (world.trace().hash(), world.trace().count())
}

#[test]
fn equal_seeds_replay_and_others_differ() {
    let first: Vec<_> = (0..20).map(run).collect();
    let second: Vec<_> = (0..20).map(run).collect();
    assert_eq!(first, second);
    assert!(first.iter().all(|(_, count)| *count > 200), "something happens: {first:?}");
    let distinct: BTreeSet<u64> = first.iter().map(|(hash, _)| *hash).collect();
    assert_eq!(distinct.len(), first.len());
}
