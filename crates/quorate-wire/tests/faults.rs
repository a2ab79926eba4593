//! Calls while servers die and networks fail: the results of the calls are compared with what the server did.
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

/// How often each call was executed. Outlives restarts of the server.
type Done = Arc<Mutex<BTreeMap<u64, u32>>>;

/// Executes a call after a delay, or refuses it.
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

/// The result of each call.
type Results = Arc<Mutex<BTreeMap<u64, Result<(), CallError>>>>;

/// Makes calls with distinct ids through a dialer that reconnects.
async fn make_calls(env: Env, first_id: u64, results: Results) {
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
        let (results, method) = (Arc::clone(&results), u16::from(rng.chance(0.1)));
        let mut body = id.to_le_bytes().to_vec();
        body.resize(8 + usize::try_from(rng.below(60_000)).unwrap(), 1);
        let limit = Duration::from_millis(20 + rng.below(1500));
        env.spawn(async move {
            let answer = client.call(method, body.clone().into(), quorate_env::Instant::now() + limit).await;
            results.lock().unwrap().insert(id, answer.map(|reply| assert_eq!(reply, body)));
        });
    }
}

/// Injects one fault and ends it.
async fn inject_fault(world: &SimWorld, server: &mut Option<quorate_wire::Server>, done: &Done) {
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

/// Runs one seed. Returns the hash of the trace and the number of calls with each kind of result.
fn run(seed: u64) -> (u64, [usize; 4]) {
    let world = SimWorld::new(seed);
    let (done, results) = (Done::default(), Results::default());
    let scenario = async {
        let mut server = Some(serve(&world.node("server"), &done).await);
        for (number, first_id) in (0..CALLERS).zip((0..).step_by(1000)) {
            let env = world.node(&format!("caller-{number}"));
            env.spawn(make_calls(env.clone(), first_id, Arc::clone(&results)));
        }
        for _ in 0..8 {
            sleep(Duration::from_millis(world.rng().below(300))).await;
            inject_fault(&world, &mut server, &done).await;
        }
        sleep(seconds(30)).await;

        // The server serves again once the network has healed.
        let client = common::connect(&world.node("last"), Purpose::Client).await;
        client.call(0, u64::MAX.to_le_bytes().to_vec().into(), in_seconds(9)).await.unwrap();
    };
    world.run(scenario).unwrap();
    let counts = check(&done.lock().unwrap(), &results.lock().unwrap());
    (world.trace().hash(), counts)
}

/// Checks the results against what the server did, and counts them by kind.
fn check(done: &BTreeMap<u64, u32>, results: &BTreeMap<u64, Result<(), CallError>>) -> [usize; 4] {
    assert!(done.values().all(|times| *times == 1), "a call was executed twice");
    let mut counts = [0; 4];
    for (id, answer) in results {
        let was_done = done.contains_key(id);
        match answer {
            Ok(()) => assert!(was_done, "call {id} was answered but not executed"),
            Err(error) => assert!(error.is_outcome_unknown() || !was_done, "call {id} was executed: {error}"),
        }
        counts[match answer {
            Ok(()) => 0,
            Err(CallError::NotSent(_)) => 1,
            Err(CallError::Failed(_)) => 2,
            Err(CallError::Broken | CallError::TimedOut) => 3,
        }] += 1;
    }
    counts
}

#[test]
fn results_agree_with_what_the_server_did() {
    let mut counts = [0; 4];
    for seed in 0..60 {
        let (_, more) = run(seed);
        for (sum, count) in counts.iter_mut().zip(more) {
            *sum += count;
        }
    }
    assert!(counts.iter().all(|count| *count > 10), "each kind of result occurs: {counts:?}");
}

#[test]
fn equal_seeds_replay_and_different_seeds_differ() {
    let hashes: Vec<u64> = (0..10).map(|seed| run(seed).0).collect();
    let again: Vec<u64> = (0..10).map(|seed| run(seed).0).collect();
    assert_eq!(hashes, again);
    let distinct: std::collections::BTreeSet<u64> = hashes.into_iter().collect();
    assert_eq!(distinct.len(), 10);
}
