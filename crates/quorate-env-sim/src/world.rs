//! A world of nodes that start, die and restart under one seed, in one thread and in virtual time.
//!
//! Invariant: the seed and the scenario determine everything that happens.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::Duration;

use quorate_env::{Env, Parts, Rng, lock, timeout};

use crate::clock::{SimClock, Timeline};
use crate::disk::SimDisk;
use crate::host::{Pace, SimHost};
use crate::net::{Death, SimNet};
use crate::scheduler::Scheduler;
use crate::trace::Trace;

/// The virtual time limit of [`SimWorld::run`]: one day.
pub const RUN_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// The number of events in the error of a failed run.
const ERROR_EVENTS: usize = 60;

/// A world of nodes. Clones share one world.
///
/// ```
/// # use quorate_env_sim::SimWorld;
/// let world = SimWorld::new(7);
/// let answer = world.run(async {
///     let env = world.node("node-1");
///     env.spawn(async { 6 * 7 }).await.unwrap()
/// });
/// assert_eq!(answer.unwrap(), 42);
/// ```
#[derive(Clone)]
pub struct SimWorld(Arc<World>);

struct World {
    seed: u64,
    rng: Rng,
    timeline: Timeline,
    trace: Trace,
    net: SimNet,
    scheduler: Scheduler,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, Node>,
    pace: Pace,
}

/// The parts of a node that outlive its lives, and its current life.
struct Node {
    rng: Rng,
    disk: SimDisk,
    clock: SimClock,
    life: Option<SimHost>,
}

/// Why a run failed. The text contains the seed and the last events.
pub struct RunError {
    seed: u64,
    reason: &'static str,
    tail: String,
}

impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}; the last events were\n{}", self.seed, self.reason, self.tail)
    }
}

impl std::error::Error for RunError {}

impl SimWorld {
    /// Creates a world without nodes.
    pub fn new(seed: u64) -> Self {
        let (rng, timeline) = (Rng::from_seed(seed), Timeline::default());
        let trace = Trace::new(timeline.clone());
        let net = SimNet::new(rng.fork(), trace.clone());
        let scheduler = Scheduler::new(rng.fork());
        Self(Arc::new(World { seed, rng, timeline, trace, net, scheduler, state: Mutex::default() }))
    }

    /// Runs a scenario until it ends. Virtual time passes only while all tasks wait. Tasks that are still running at
    /// the end are dropped.
    pub fn run<F: Future>(&self, scenario: F) -> Result<F::Output, RunError> {
        self.run_within(RUN_LIMIT, scenario)
    }

    /// Like [`SimWorld::run`], with a limit of virtual time. A scenario in which every task waits for ever reaches the
    /// limit at once.
    ///
    /// A panic in a task of a node fails the run, too.
    pub fn run_within<F: Future>(&self, limit: Duration, scenario: F) -> Result<F::Output, RunError> {
        // A task that yields must continue only when no other task can run, never after a number of polls: that number
        // is not always the same for one seed.
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let builder = builder.enable_time().start_paused(true).event_interval(u32::MAX).build();
        let runtime = builder.map_err(|_| self.failure("the runtime could not be created"))?;
        let panics_before = panics();
        // Unwind safety does not matter: after a panic the run has failed, and no half-done state is used.
        let output = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                self.0.timeline.start();
                self.start_scheduler();
                let output = timeout(limit, scenario).await;
                self.0.timeline.stop();
                output
            })
        }));
        drop(runtime);
        match output {
            Ok(_) if panics() != panics_before => Err(self.failure("a task panicked")),
            Ok(Ok(output)) => Ok(output),
            Ok(Err(_)) => Err(self.failure("the scenario did not end in time")),
            Err(_) => Err(self.failure("the scenario panicked")),
        }
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Returns the virtual time since the world began.
    pub fn elapsed(&self) -> Duration {
        self.0.timeline.elapsed()
    }

    /// Returns the source of randomness for the scenario.
    pub fn rng(&self) -> &Rng {
        &self.0.rng
    }

    /// Returns the trace of events.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Returns the network, for injecting faults.
    pub fn net(&self) -> &SimNet {
        &self.0.net
    }

    /// Starts a new life of a node and creates the node if there is none of this name. The disk is as the last life
    /// left it. If the node is alive, its current life is killed first, as [`SimWorld::kill`] does but without waiting.
    pub fn node(&self, name: &str) -> Env {
        if self.is_alive(name) {
            self.end_life(name, Death::Process, SimDisk::kill);
        }
        self.0.trace.add(name, format_args!("starts"));
        let net = self.0.net.begin_life(name);
        let mut state = self.state();
        let pace = state.pace;
        let node = state.nodes.entry(name.to_owned()).or_insert_with(|| self.new_node());
        let host = SimHost::new(name, node.rng.fork(), self.0.trace.clone(), self.0.scheduler.clone(), pace);
        node.life = Some(host.clone());
        Env::new(Parts {
            clock: Arc::new(node.clock.clone()),
            disk: Arc::new(node.disk.clone()),
            net: Arc::new(net),
            rng: node.rng.fork(),
            host: Arc::new(host),
        })
    }

    /// Kills the process of a node. The page cache survives. Waits until all tasks of the process are dropped.
    pub async fn kill(&self, name: &str) {
        self.die(name, Death::Process, SimDisk::kill).await;
    }

    /// Fails the power of a node's machine: unsynced changes survive in part or not at all. Waits until all tasks of
    /// the node are dropped.
    pub async fn crash(&self, name: &str) {
        self.die(name, Death::Power, SimDisk::crash).await;
    }

    /// Replaces the disk of a node by an empty one. Ends its life as [`SimWorld::crash`] does.
    pub async fn wipe(&self, name: &str) {
        let fresh = SimDisk::new(self.0.rng.next_u64());
        self.die(name, Death::Power, |_| fresh).await;
    }

    /// Returns whether a node is alive.
    pub fn is_alive(&self, name: &str) -> bool {
        self.state().nodes.get(name).is_some_and(|node| node.life.is_some())
    }

    /// Returns the disk of a node, for injecting faults: that of its current life, or else of its next one.
    pub fn disk(&self, name: &str) -> SimDisk {
        self.state().nodes.entry(name.to_owned()).or_insert_with(|| self.new_node()).disk.clone()
    }

    /// Returns the wall clock of a node, for setting it wrong.
    pub fn clock(&self, name: &str) -> SimClock {
        self.state().nodes.entry(name.to_owned()).or_insert_with(|| self.new_node()).clock.clone()
    }

    /// Returns the host of a node that is alive.
    pub fn host(&self, name: &str) -> Option<SimHost> {
        self.state().nodes.get(name)?.life.clone()
    }

    /// Sets the delays of the hosts of all lives that start from now on.
    pub fn set_pace(&self, pace: Pace) {
        self.state().pace = pace;
    }

    async fn die(&self, name: &str, death: Death, end: impl FnOnce(&SimDisk) -> SimDisk) {
        if let Some(host) = self.end_life(name, death, end) {
            host.gone().await;
        }
    }

    /// Ends the current life, if there is one, and replaces the disk. Does nothing if the node does not exist.
    fn end_life(&self, name: &str, death: Death, end: impl FnOnce(&SimDisk) -> SimDisk) -> Option<SimHost> {
        let mut state = self.state();
        let node = state.nodes.get_mut(name)?;
        let host = node.life.take();
        node.disk = end(&node.disk);
        drop(state);
        let host = host?;
        self.0.trace.add(name, format_args!("dies: {death:?}"));
        self.0.net.end_life(name, death);
        host.kill();
        Some(host)
    }

    #[expect(clippy::disallowed_methods, reason = "the scheduler runs the tasks of nodes")]
    fn start_scheduler(&self) {
        drop(tokio::spawn(self.0.scheduler.clone().drive()));
    }

    fn new_node(&self) -> Node {
        Node {
            rng: self.0.rng.fork(),
            disk: SimDisk::new(self.0.rng.next_u64()),
            clock: SimClock::new(self.0.timeline.clone()),
            life: None,
        }
    }

    fn failure(&self, reason: &'static str) -> RunError {
        RunError { seed: self.0.seed, reason, tail: self.0.trace.tail(ERROR_EVENTS) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimWorld").field("seed", &self.0.seed).finish_non_exhaustive()
    }
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of panics of this thread so far. A runtime catches panics of its tasks, but they must fail a run.
fn panics() -> u64 {
    static COUNT: Once = Once::new();
    COUNT.call_once(|| {
        let inner = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            inner(info);
        }));
    });
    PANICS.get()
}

#[cfg(test)]
mod tests;
