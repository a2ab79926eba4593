//! The host, which runs workers, runtimes and blocking calls: on threads on a machine, as tasks in the simulator.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
pub use tokio::task::AbortHandle;

use crate::env::Env;
use crate::machine::resident_bytes;
use crate::priority::Priority;
use crate::signal::Signal;
use crate::task;
use crate::wakes::Wakes;
use crate::worker::{Ended, Step, Worker};

/// The stack size of a thread. SQLite uses up to about 2 MiB of stack for a long chain of triggers.
const WORKER_STACK_BYTES: usize = 8 << 20;

/// A task whose result is only ever dropped.
pub type BoxTask = Pin<Box<dyn Future<Output = Box<dyn Send>> + Send>>;

/// The resources that this process has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The processor time of all threads together, since the process started.
    pub cpu: Duration,
    /// The resident memory in bytes; known only on Linux.
    pub resident_bytes: Option<u64>,
}

/// Runs the parts of a node.
pub trait Host: Send + Sync + fmt::Debug {
    /// Runs a task concurrently with everything else. A host with threads runs it on its own runtime, and drops its
    /// result after everything that the task leaves on the runtime.
    fn run_task(&self, env: &Env, name: &str, priority: Priority, task: BoxTask) -> io::Result<()>;

    /// Runs a worker until it is done, then drops the worker, then `ended`.
    fn run_worker(
        &self,
        env: &Env,
        name: &str,
        worker: Box<dyn Worker>,
        signal: Signal,
        ended: Ended,
    ) -> io::Result<()>;

    /// Runs a call that may block.
    fn run_blocking(&self, call: Box<dyn FnOnce() + Send>);

    /// Whether a task that is ready to run is postponed; the host then wakes it later through its waker. The simulator
    /// postpones all tasks, and resumes them in an order determined by its seed alone.
    fn postpones(&self, _task: &Waker) -> bool {
        false
    }

    /// Called for each task that starts. The simulator aborts them all when it kills the node.
    fn started(&self, _task: AbortHandle) {}

    /// The resources that the process has used, or `None` if nodes share a process, as in the simulator.
    fn usage(&self) -> Option<Usage> {
        None
    }
}

/// The host of this machine: it runs everything on threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealHost;

impl Host for RealHost {
    fn run_task(&self, env: &Env, name: &str, priority: Priority, task: BoxTask) -> io::Result<()> {
        // Only the runtime's own thread is urgent.
        let of_others = if priority == Priority::Background { priority } else { Priority::Usual };
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().on_thread_start(move || of_others.take()).build()?;
        let (wakes, waking) = Wakes::new();
        drop(runtime.spawn(waking));
        let env = env.clone();
        start_thread(name, priority, move || {
            let last = wakes.gather(|| runtime.block_on(task::Scoped::new(&env, task)));
            drop(runtime);
            drop(last);
        })
    }

    fn run_worker(
        &self,
        env: &Env,
        name: &str,
        mut worker: Box<dyn Worker>,
        signal: Signal,
        ended: Ended,
    ) -> io::Result<()> {
        let env = env.clone();
        start_thread(name, Priority::of(&*worker), move || {
            env.enter(|| drive(worker.as_mut(), &signal));
            drop(worker);
            drop(ended);
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that hands work to tokio's blocking pool")]
    fn run_blocking(&self, call: Box<dyn FnOnce() + Send>) {
        drop(tokio::task::spawn_blocking(call));
    }

    fn usage(&self) -> Option<Usage> {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let (seconds, nanos) = (u64::try_from(used.tv_sec).ok()?, u32::try_from(used.tv_nsec).ok()?);
        Some(Usage { cpu: Duration::new(seconds, nanos), resident_bytes: resident_bytes() })
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that starts threads")]
fn start_thread(name: &str, priority: Priority, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // Linux truncates thread names to 15 bytes.
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(WORKER_STACK_BYTES);
    thread.spawn(move || {
        priority.take();
        body();
    })?;
    Ok(())
}

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The loop of a worker's thread.
fn drive(worker: &mut dyn Worker, signal: &Signal) {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let cx = Context::from_waker(&waker);
    let mut priority = Priority::of(worker);
    loop {
        let step = worker.run_once();
        let wanted = Priority::of(worker);
        if std::mem::replace(&mut priority, wanted) != wanted {
            wanted.take();
        }
        match step {
            Step::Again => {}
            Step::Done => return,
            Step::Wait => {
                while signal.poll_wait(&cx).is_pending() {
                    thread::park();
                }
            }
            Step::WaitFor(time) => {
                if signal.poll_wait(&cx).is_pending() {
                    thread::park_timeout(time);
                    // Clears a signal raised during the sleep. A spurious wake-up only makes the worker run once more.
                    let _ = signal.poll_wait(&cx);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types, reason = "tests")]

    use std::sync::mpsc::{Sender, channel};

    use rustix::process::getpriority_process;

    use super::*;

    /// Runs three times, is urgent only during the second run, and sends the priority of each run.
    #[derive(Debug)]
    struct SometimesUrgent {
        done: u32,
        priorities: Sender<i32>,
    }

    impl Worker for SometimesUrgent {
        fn run_once(&mut self) -> Step {
            self.priorities.send(getpriority_process(None).unwrap()).unwrap();
            self.done += 1;
            if self.done < 3 { Step::Again } else { Step::Done }
        }

        fn is_urgent(&self) -> bool {
            self.done == 1
        }
    }

    #[test]
    fn a_worker_has_priority_while_it_is_urgent() {
        let (priorities, received) = channel();
        let handle =
            Env::real().start_worker("urgent-test", SometimesUrgent { done: 0, priorities }, &Signal::new()).unwrap();
        let nice: Vec<i32> = received.iter().collect();
        drop(handle);
        // Without the permission to raise a priority, all three are equal.
        let [before, urgent, after] = nice[..] else { unreachable!("{nice:?}") };
        assert!(urgent <= before && after == before, "{nice:?}");
    }

    #[test]
    fn what_runs_in_the_background_has_a_low_priority() {
        let nice = || getpriority_process(None).unwrap();
        let (sender, received) = channel();
        let env = Env::real();
        let inside = env.clone();
        let task = async move {
            let of_pool = inside.blocking(nice).await.unwrap();
            sender.send([nice(), of_pool]).unwrap();
        };
        env.start_background("background-test", task).unwrap();
        let [of_task, of_pool] = received.recv().unwrap();
        assert_eq!((of_task, of_pool), (of_pool, (nice() + 10).min(19)));
    }
}
