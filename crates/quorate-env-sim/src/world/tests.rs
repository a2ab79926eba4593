//! Lives and deaths of nodes, scheduling and time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorate_env::worker::{Signal, Step, Worker};
use quorate_env::{Env, Instant, sleep};

use super::*;

/// Counts its steps. A test can tell from the count's references whether it was dropped.
struct Counter {
    steps: Arc<AtomicU64>,
    next: Step,
}

impl Worker for Counter {
    fn run_once(&mut self) -> Step {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.next
    }
}

fn count(env: &Env, next: Step) -> (Arc<AtomicU64>, Signal, quorate_env::worker::WorkerHandle) {
    let (steps, signal) = (Arc::new(AtomicU64::new(0)), Signal::new());
    let handle = env.start_worker("counter", Counter { steps: Arc::clone(&steps), next }, &signal).unwrap();
    (steps, signal, handle)
}

fn each_seed(scenario: impl AsyncFn(&SimWorld)) {
    for seed in 0..100 {
        let world = SimWorld::new(seed);
        world.run(scenario(&world)).unwrap();
    }
}

#[test]
fn a_worker_runs_when_its_step_asks_for_it() {
    each_seed(async |world| {
        let env = world.node("a");
        let (steps, signal, _handle) = count(&env, Step::Wait);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(steps.load(Ordering::Relaxed), 1);
        signal.wake();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(steps.load(Ordering::Relaxed), 2);

        let (steps, _, _handle) = count(&env, Step::WaitFor(Duration::from_millis(500)));
        sleep(Duration::from_secs(10)).await;
        assert!((15..=20).contains(&steps.load(Ordering::Relaxed)), "{steps:?}");

        let (steps, _, handle) = count(&env, Step::Done);
        handle.ended().await;
        assert_eq!(steps.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn no_task_of_a_killed_node_runs_or_remains() {
    each_seed(async |world| {
        let env = world.node("a");
        let (steps, signal, handle) = count(&env, Step::Again);
        let task_alive = Arc::new(());
        let kept = Arc::clone(&task_alive);
        env.spawn(async move {
            let _kept = kept;
            std::future::pending::<()>().await;
        });
        sleep(Duration::from_millis(world.rng().below(20))).await;
        world.kill("a").await;
        let at_death = steps.load(Ordering::Relaxed);
        assert_eq!(Arc::strong_count(&task_alive), 1, "its tasks are dropped");
        assert_eq!(Arc::strong_count(&steps), 1, "its workers are dropped");
        handle.ended().await;
        signal.wake();
        env.spawn(async { panic!("a dead node runs nothing") });
        let late = env.blocking(|| panic!("a dead node runs nothing")).await;
        assert!(late.is_none());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(steps.load(Ordering::Relaxed), at_death);
        assert!(!world.is_alive("a"));
    });
}

#[test]
fn a_paused_node_does_nothing_until_resumed() {
    each_seed(async |world| {
        let env = world.node("a");
        let (steps, _, _handle) = count(&env, Step::WaitFor(Duration::from_millis(10)));
        sleep(Duration::from_secs(1)).await;
        let host = world.host("a").unwrap();
        host.pause();
        let at_pause = steps.load(Ordering::Relaxed);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(steps.load(Ordering::Relaxed), at_pause);
        host.resume();
        sleep(Duration::from_secs(1)).await;
        assert!(steps.load(Ordering::Relaxed) > at_pause + 10);
    });
}

/// Returns the order in which several tasks that wait for one event continue.
fn order_of_waiters(seed: u64) -> Vec<usize> {
    let world = SimWorld::new(seed);
    let scenario = async {
        let env = world.node("a");
        let event = tokio::sync::watch::Sender::new(false);
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in 0..8 {
            let (mut seen, order) = (event.subscribe(), Arc::clone(&order));
            env.spawn(async move {
                seen.wait_for(|happened| *happened).await.unwrap();
                order.lock().unwrap().push(number);
            });
        }
        sleep(Duration::from_secs(1)).await;
        event.send_replace(true);
        sleep(Duration::from_secs(1)).await;
        order.lock().unwrap().clone()
    };
    world.run(scenario).unwrap()
}

#[test]
fn the_seed_determines_the_order_of_tasks() {
    let orders: Vec<_> = (0..20).map(order_of_waiters).collect();
    assert!((0..20).all(|seed| orders.get(seed) == Some(&order_of_waiters(u64::try_from(seed).unwrap()))));
    assert!(orders.iter().any(|order| Some(order) != orders.first()), "seeds differ");
}

#[test]
fn a_task_knows_its_env() {
    each_seed(async |world| {
        let name = |env: Env| format!("{:?}", env.host());
        let (a, b) = (world.node("a"), world.node("b"));
        let nested =
            a.spawn(async move { Env::current().unwrap().spawn(async move { name(Env::current().unwrap()) }).await });
        assert_eq!(nested.await.unwrap().unwrap(), name(a));
        assert_eq!(b.blocking(|| 5).await, Some(5));
        assert!(Env::current().is_none());
    });
}

#[test]
fn a_disk_outlives_its_node() {
    use quorate_env::disk::OpenMode;
    use std::path::Path;
    each_seed(async |world| {
        let path = Path::new("/x");
        let file = world.node("a").disk().open(path, OpenMode::Create).unwrap();
        file.write_at(b"kept", 0).unwrap();
        world.kill("a").await;
        assert!(file.write_at(b"lost", 0).is_err(), "the process has been killed");
        let env = world.node("a");
        assert_eq!(quorate_env::disk::read_file(&**env.disk(), path, 9).unwrap(), b"kept", "the page cache survives");
        world.wipe("a").await;
        assert!(!world.node("a").disk().exists(path).unwrap());
    });
}

#[test]
fn time_is_virtual_and_clocks_can_be_wrong() {
    each_seed(async |world| {
        let env = world.node("a");
        let (wall, start) = (env.unix_nanos(), Instant::now());
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(env.unix_nanos() - wall, 3600 * 1_000_000_000);
        assert_eq!(start.elapsed(), Duration::from_secs(3600));
        world.clock("a").jump(-5);
        assert_eq!(env.unix_nanos() - wall, 3600 * 1_000_000_000 - 5);
        assert_eq!(world.node("b").unix_nanos() - env.unix_nanos(), 5);
    });
}

#[test]
fn a_failed_run_returns_its_reason() {
    let stuck = SimWorld::new(3).run(std::future::pending::<()>()).unwrap_err();
    assert!(stuck.to_string().starts_with("seed 3: the scenario did not end in time"), "{stuck}");

    let world = SimWorld::new(4);
    let scenario = async {
        let _ = world.node("a").spawn(async { panic!("on purpose") }).await;
    };
    let panicked = world.run(scenario).unwrap_err();
    assert!(panicked.to_string().starts_with("seed 4: a task panicked"), "{panicked}");
}
