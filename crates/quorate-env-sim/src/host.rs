//! Runs one life of a node as tasks. Workers are tasks too, with virtual time between their steps.
//!
//! Invariant: no task of a node runs after [`SimHost::kill`], and no worker takes another step.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use quorate_env::signal::Signal;
use quorate_env::worker::{Ended, Step, Worker};
use quorate_env::{BoxTask, Env, Host, Priority, Rng, lock, sleep, timeout, yield_now};
use tokio::task::AbortHandle;

use crate::scheduler::Scheduler;
use crate::trace::Trace;

/// The delays of a host. Probabilities range from 0 to 1; durations are whole milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The probability that a ready task is deferred by one round, drawn in each round.
    pub postpone: f64,
    /// The probability that a step of a worker or a blocking call takes time.
    pub busy: f64,
    /// The maximum time that it then takes.
    pub busy_max: Duration,
    /// The probability that it takes long, as when a disk stalls.
    pub stall: f64,
    /// The maximum time of such a stall.
    pub stall_max: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            postpone: 0.02,
            busy: 0.3,
            busy_max: Duration::from_millis(3),
            stall: 0.002,
            stall_max: Duration::from_millis(60),
        }
    }
}

/// The host of one life of one node. Clones share one host.
#[derive(Clone)]
pub struct SimHost(Arc<Inner>);

struct Inner {
    node: String,
    rng: Rng,
    trace: Trace,
    scheduler: Scheduler,
    killed: AtomicBool,
    paused: Arc<AtomicBool>,
    pace: Mutex<Pace>,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    handles: Vec<AbortHandle>,
    /// The number of handles at which finished ones are removed.
    prune_at: usize,
}

impl SimHost {
    pub(crate) fn new(node: &str, rng: Rng, trace: Trace, scheduler: Scheduler, pace: Pace) -> Self {
        Self(Arc::new(Inner {
            node: node.to_owned(),
            rng,
            trace,
            scheduler,
            killed: AtomicBool::new(false),
            paused: Arc::default(),
            pace: Mutex::new(pace),
            tasks: Mutex::default(),
        }))
    }

    /// Changes the delays of this host.
    pub fn set_pace(&self, pace: Pace) {
        *lock(&self.0.pace) = pace;
    }

    /// Pauses the process, as SIGSTOP does; its sockets stay open.
    pub fn pause(&self) {
        self.0.trace.add(&self.0.node, format_args!("pauses"));
        self.0.paused.store(true, Ordering::Relaxed);
    }

    /// Resumes a paused process.
    pub fn resume(&self) {
        self.0.trace.add(&self.0.node, format_args!("resumes"));
        self.0.paused.store(false, Ordering::Relaxed);
        self.0.scheduler.wake();
    }

    /// Aborts all tasks. Each is dropped when its turn comes; [`SimHost::gone`] waits for that.
    pub fn kill(&self) {
        self.0.killed.store(true, Ordering::Relaxed);
        let handles = std::mem::take(&mut self.tasks().handles);
        for task in &handles {
            task.abort();
        }
        self.tasks().handles = handles;
    }

    /// Waits until all tasks of a killed host are dropped.
    pub async fn gone(&self) {
        while self.tasks().handles.iter().any(|task| !task.is_finished()) {
            yield_now().await;
        }
    }

    fn is_killed(&self) -> bool {
        self.0.killed.load(Ordering::Relaxed)
    }

    fn pace(&self) -> Pace {
        *lock(&self.0.pace)
    }

    /// Lets some virtual time pass. Usually it passes none, but lets other tasks have their turn.
    async fn pass_time(&self) {
        let (pace, rng) = (self.pace(), &self.0.rng);
        let up_to = |most: Duration| {
            let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
            Duration::from_millis(1 + rng.below(millis.max(1)))
        };
        if rng.chance(pace.stall) {
            sleep(up_to(pace.stall_max)).await;
        } else if rng.chance(pace.busy) {
            sleep(up_to(pace.busy_max)).await;
        } else {
            for _ in 0..=rng.below(3) {
                yield_now().await;
            }
        }
    }

    /// Runs the steps of a worker.
    async fn drive(&self, name: &str, worker: &mut dyn Worker, signal: &Signal) {
        loop {
            self.pass_time().await;
            if self.is_killed() {
                return;
            }
            let step = worker.run_once();
            self.0.trace.add(&self.0.node, format_args!("{name} {step:?}"));
            match step {
                Step::Again => {}
                Step::Done => return,
                Step::Wait => signal.wait().await,
                // The worker checks for itself whether the signal or the timeout came first.
                Step::WaitFor(time) => timeout(time, signal.wait()).await.unwrap_or_default(),
            }
        }
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        lock(&self.0.tasks)
    }
}

impl Host for SimHost {
    fn run_task(&self, env: &Env, _name: &str, _priority: Priority, task: BoxTask) -> io::Result<()> {
        drop(env.spawn(task));
        Ok(())
    }

    fn run_worker(
        &self,
        env: &Env,
        name: &str,
        mut worker: Box<dyn Worker>,
        signal: Signal,
        ended: Ended,
    ) -> io::Result<()> {
        let (host, name) = (self.clone(), name.to_owned());
        drop(env.spawn(async move {
            host.drive(&name, worker.as_mut(), &signal).await;
            drop(worker);
            drop(ended);
        }));
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "this implements `Env::blocking`")]
    fn run_blocking(&self, call: Box<dyn FnOnce() + Send>) {
        let (host, scheduled) = (self.clone(), self.clone());
        let mut work = Box::pin(async move {
            host.pass_time().await;
            if !host.is_killed() {
                call();
            }
        });
        let task =
            tokio::spawn(poll_fn(
                move |cx| {
                    if scheduled.postpones(cx.waker()) { Poll::Pending } else { work.as_mut().poll(cx) }
                },
            ));
        self.started(task.abort_handle());
    }

    fn postpones(&self, task: &Waker) -> bool {
        !self.0.scheduler.admits(task, &self.0.paused, self.pace().postpone)
    }

    fn started(&self, task: AbortHandle) {
        if self.is_killed() {
            task.abort();
        }
        let mut tasks = self.tasks();
        if tasks.handles.len() >= tasks.prune_at {
            tasks.handles.retain(|task| !task.is_finished());
            tasks.prune_at = 64.max(tasks.handles.len() * 2);
        }
        tasks.handles.push(task);
    }
}

impl fmt::Debug for SimHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHost").field("node", &self.0.node).finish_non_exhaustive()
    }
}
