//! Calls while servers die and networks fail: what callers are told is compared with what was done.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::{CALLER, CLUSTER, SERVER, in_seconds, seconds};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_env::{Env, sleep};
use quorate_env_sim::SimWorld;
use quorate_wire::{CallError, CallFailure, Dialer, FailureKind, Handler, Identity, PeerInfo, Purpose};

const CALLERS: usize = 3;
const CALLS: u64 = 60;

/// How often each call was done. Outlives the lives of the server.
type Done = Arc<Mutex<BTreeMap<u64, u32>>>;

/// Does a call after a while, or refuses it.
struct Ledger {
    done: Done,
    env: Env,
}

impl Handler for Ledger {
    fn call(&self, _peer: &PeerInfo, method: u16, body: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>> {
        let (done, env) = (Arc::clone(&self.done), self.env.clone());
        async move {
            if method == 1 {
                return Err(CallFailure::new(FailureKind::Unavailable, "not now"));
            }
            let id = u64::from_le_bytes(body.get(..8).unwrap().try_into().unwrap());
            sleep(Duration::from_millis(env.rng().below(20))).await;
            *done.lock().unwrap().entry(id).or_default() += 1;
            sleep(Duration::from_millis(env.rng().below(20))).await;
            Ok(body)
        }
        .boxed()
    }
}

async fn serve(env: &Env, done: &Done) -> quorate_wire::Server {
    common::start(env, Ledger { done: Arc::clone(done), env: env.clone() }).await
}

/// What callers were told.
type Told = Arc<Mutex<BTreeMap<u64, Result<(), CallError>>>>;

/// Makes calls, each with an id of its own, through a dialer that connects again and again.
async fn call_on(env: Env, first_id: u64, told: Told) {
    let config = quorate_wire::DialerConfig {
        identity: Identity::new(CLUSTER, CALLER + first_id),
        expected: Some(SERVER),
        connect_limit: Duration::from_millis(300),
        ..common::dialer_config(Purpose::Client)
    };
    let dialer = Dialer::new(&env, config);
    let rng = env.rng().clone();
    for id in first_id..first_id + CALLS {
        sleep(Duration::from_millis(rng.below(30))).await;
        let Ok(client) = dialer.client().await else { continue };
        let (told, method) = (Arc::clone(&told), u16::from(rng.chance(0.1)));
        let mut body = id.to_le_bytes().to_vec();
        body.resize(8 + usize::try_from(rng.below(60_000)).unwrap(), 1);
        let limit = Duration::from_millis(20 + rng.below(1500));
        env.spawn(async move {
            let answer = client.call(method, body.clone().into(), quorate_env::Instant::now() + limit).await;
            told.lock().unwrap().insert(id, answer.map(|reply| assert_eq!(reply, body)));
        });
    }
}

/// One fault, and how it ends.
async fn break_something(world: &SimWorld, server: &mut Option<quorate_wire::Server>, done: &Done) {
    let rng = world.rng();
    let names = ["caller-0", "caller-1", "caller-2"];
    let caller = names[usize::try_from(rng.below(3)).unwrap()];
    match rng.below(6) {
        0 => world.net().cut(caller, "server"),
        1 => world.net().cut_way(caller, "server"),
        2 => world.net().cut_way("server", caller),
        3 => world.net().reset(caller, "server"),
        4 => {
            if rng.chance(0.5) {
                world.kill("server").await
            } else {
                world.crash("server").await
            }
            sleep(Duration::from_millis(rng.below(300))).await;
            *server = Some(serve(&world.node("server"), done).await);
        }
        _ => {
            if let Some(server) = server.take() {
                server.stop(Duration::from_millis(rng.below(100))).await;
            }
            *server = Some(serve(&world.node("server"), done).await);
        }
    }
    sleep(Duration::from_millis(rng.below(400))).await;
    world.net().heal_all();
}

/// Runs one seed; gives the hash of what happened, and how many calls ended in each way.
fn run(seed: u64) -> (u64, [usize; 4]) {
    let world = SimWorld::new(seed);
    let (done, told) = (Done::default(), Told::default());
    let story = async {
        let mut server = Some(serve(&world.node("server"), &done).await);
        for (number, first_id) in (0..CALLERS).zip((0..).step_by(1000)) {
            let env = world.node(&format!("caller-{number}"));
            env.spawn(call_on(env.clone(), first_id, Arc::clone(&told)));
        }
        for _ in 0..8 {
            sleep(Duration::from_millis(world.rng().below(300))).await;
            break_something(&world, &mut server, &done).await;
        }
        sleep(seconds(30)).await;

        // Healed, it serves again.
        let client = common::connect(&world.node("last"), Purpose::Client).await;
        client.call(0, u64::MAX.to_le_bytes().to_vec().into(), in_seconds(9)).await.unwrap();
    };
    world.run(story).unwrap();
    let ends = check(&done.lock().unwrap(), &told.lock().unwrap());
    (world.trace().hash(), ends)
}

/// The oracle.
fn check(done: &BTreeMap<u64, u32>, told: &BTreeMap<u64, Result<(), CallError>>) -> [usize; 4] {
    assert!(done.values().all(|times| *times == 1), "a call was done twice");
    let mut ends = [0; 4];
    for (id, answer) in told {
        let was_done = done.contains_key(id);
        match answer {
            Ok(()) => assert!(was_done, "call {id} was answered and not done"),
            Err(error) => assert!(error.is_outcome_unknown() || !was_done, "call {id} was done: {error}"),
        }
        ends[match answer {
            Ok(()) => 0,
            Err(CallError::NotSent(_)) => 1,
            Err(CallError::Failed(_)) => 2,
            Err(CallError::Broken | CallError::TimedOut) => 3,
        }] += 1;
    }
    ends
}

#[test]
fn callers_are_told_the_truth() {
    let mut ends = [0; 4];
    for seed in 0..60 {
        let (_, more) = run(seed);
        for (sum, count) in ends.iter_mut().zip(more) {
            *sum += count;
        }
    }
    assert!(ends.iter().all(|count| *count > 10), "every end happens: {ends:?}");
}

#[test]
fn equal_seeds_replay_and_others_differ() {
    let hashes: Vec<u64> = (0..10).map(|seed| run(seed).0).collect();
    let again: Vec<u64> = (0..10).map(|seed| run(seed).0).collect();
    assert_eq!(hashes, again);
    let distinct: std::collections::BTreeSet<u64> = hashes.into_iter().collect();
    assert_eq!(distinct.len(), 10);
}
