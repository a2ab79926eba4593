//! What runs workers, runtimes and blocking calls: threads on a machine, tasks in the simulator.

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
use crate::worker::{Ended, Step, Worker};

/// Bytes of the stack of a worker's thread. SQLite takes up to some 2 MiB for a long chain of triggers.
const WORKER_STACK_BYTES: usize = 8 << 20;

/// A task whose result is only ever dropped.
pub type BoxTask = Pin<Box<dyn Future<Output = Box<dyn Send>> + Send>>;

/// What this process has used of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Time of processors, of all threads together, since the process began.
    pub cpu: Duration,
    /// Memory in use, in bytes; only Linux tells.
    pub resident_bytes: Option<u64>,
}

/// Runs the parts of a node.
pub trait Host: Send + Sync + fmt::Debug {
    /// Runs a task beside everything else, on a runtime of its own where there are threads; there its result is dropped
    /// after all that the task left behind on the runtime.
    fn run_task(&self, env: &Env, name: &str, task: BoxTask) -> io::Result<()>;

    /// Runs a worker until it is done; then drops first the worker, then `ended`.
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

    /// Whether a task that could go on is put off; the host then wakes it by its waker. The simulator puts off all, and
    /// lets them go on in an order that follows from its seed alone.
    fn postpones(&self, _task: &Waker) -> bool {
        false
    }

    /// Told of each task that starts. The simulator ends them all when it kills the node.
    fn started(&self, _task: AbortHandle) {}

    /// What the process has used; `None` where there is none of its own, as in the simulator.
    fn usage(&self) -> Option<Usage> {
        None
    }
}

/// Threads of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealHost;

impl Host for RealHost {
    fn run_task(&self, env: &Env, name: &str, task: BoxTask) -> io::Result<()> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().on_thread_start(|| Priority::Usual.take()).build()?;
        let env = env.clone();
        start_thread(name, Priority::Urgent, move || {
            let last = runtime.block_on(task::Scoped::new(&env, task));
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
    // Linux cuts names of threads at 15 bytes.
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

/// The shell of a worker's thread.
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
                    // Takes back a ring that came meanwhile; a spurious wake-up only makes the worker look once more.
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

    /// Urgent after every second piece of work; tells at which priority it does each of three.
    #[derive(Debug)]
    struct Moody {
        done: u32,
        tell: Sender<i32>,
    }

    impl Worker for Moody {
        fn run_once(&mut self) -> Step {
            self.tell.send(getpriority_process(None).unwrap()).unwrap();
            self.done += 1;
            if self.done < 3 { Step::Again } else { Step::Done }
        }

        fn is_urgent(&self) -> bool {
            self.done == 1
        }
    }

    #[test]
    fn a_worker_goes_first_while_it_is_urgent() {
        let (tell, told) = channel();
        let handle = Env::real().start_worker("moody", Moody { done: 0, tell }, &Signal::new()).unwrap();
        let nice: Vec<i32> = told.iter().collect();
        drop(handle);
        // Without the right to go first all stays as it was.
        let [before, urgent, after] = nice[..] else { unreachable!("{nice:?}") };
        assert!(urgent <= before && after == before, "{nice:?}");
    }
}
