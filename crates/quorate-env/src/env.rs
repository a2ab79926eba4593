//! The handle to the environment of one node.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use scoped_tls::scoped_thread_local;
use tokio::sync::oneshot;

use crate::disk::{Disk, RealDisk};
use crate::host::{Host, RealHost, Usage};
use crate::net::{Net, RealNet};
use crate::priority::Priority;
use crate::rng::Rng;
use crate::signal::Signal;
use crate::task::{self, JoinHandle};
use crate::worker::{Worker, WorkerHandle};

scoped_thread_local!(static CURRENT: Env);

/// A wall clock. It may jump; durations are measured with [`Instant`](crate::Instant) instead.
pub trait WallClock: Send + Sync + fmt::Debug {
    /// Nanoseconds since 1970-01-01 UTC; 0 before that.
    fn unix_nanos(&self) -> u64;
}

#[derive(Debug)]
struct RealClock;

impl WallClock for RealClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's wall clock")]
    fn unix_nanos(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The parts of an [`Env`].
#[derive(Clone, Debug)]
pub struct Parts {
    /// The wall clock.
    pub clock: Arc<dyn WallClock>,
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// The network.
    pub net: Arc<dyn Net>,
    /// The random number generator.
    pub rng: Rng,
    /// The host, which runs workers and tasks.
    pub host: Arc<dyn Host>,
}

/// The environment of one node. Cheap to clone; all clones refer to the same environment.
#[derive(Clone)]
pub struct Env(Arc<Parts>);

impl Env {
    /// The environment of this machine.
    pub fn real() -> Self {
        Self::new(Parts {
            clock: Arc::new(RealClock),
            disk: Arc::new(RealDisk),
            net: Arc::new(RealNet),
            rng: Rng::from_os(),
            host: Arc::new(RealHost),
        })
    }

    /// An environment made of the given parts.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// The same environment with another host.
    #[must_use]
    pub fn with_host(&self, host: Arc<dyn Host>) -> Self {
        Self::new(Parts { host, ..Parts::clone(&self.0) })
    }

    /// The same environment with another network.
    #[must_use]
    pub fn with_net(&self, net: Arc<dyn Net>) -> Self {
        Self::new(Parts { net, ..Parts::clone(&self.0) })
    }

    /// The environment of the running task or worker, or `None` outside of those that an `Env` started.
    pub fn current() -> Option<Self> {
        CURRENT.is_set().then(|| CURRENT.with(Self::clone))
    }

    /// Runs `f` with this environment as [`Env::current`].
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        CURRENT.set(self, f)
    }

    /// The wall clock's nanoseconds since 1970-01-01 UTC.
    pub fn unix_nanos(&self) -> u64 {
        self.0.clock.unix_nanos()
    }

    /// The file system.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.0.disk
    }

    /// The network.
    pub fn net(&self) -> &Arc<dyn Net> {
        &self.0.net
    }

    /// The random number generator. On a real machine it is suitable for secrets.
    pub fn rng(&self) -> &Rng {
        &self.0.rng
    }

    /// The host, which runs workers and tasks.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.0.host
    }

    /// The resources that this process has used, or `None` in the simulator.
    pub fn usage(&self) -> Option<Usage> {
        self.0.host.usage()
    }

    /// Starts a task on the runtime of the calling task or thread, with this environment as [`Env::current`].
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, as `tokio::spawn` does.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawn(self, future)
    }

    /// Runs `future` on its own thread and runtime (in the simulator: as one task among others). Its output is dropped
    /// last, after all tasks that it leaves on the runtime.
    pub fn start_runtime<F>(&self, name: &str, future: F) -> io::Result<()>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.run(name, Priority::Urgent, future)
    }

    /// Does the same with a low priority, also for what the runtime does on other threads: whatever else the process
    /// does comes first.
    pub fn start_background<F>(&self, name: &str, future: F) -> io::Result<()>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.run(name, Priority::Background, future)
    }

    fn run<F>(&self, name: &str, priority: Priority, future: F) -> io::Result<()>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let task = async move {
            let last: Box<dyn Send> = Box::new(future.await);
            last
        };
        self.0.host.run_task(self, name, priority, Box::pin(task))
    }

    /// Runs a worker on its own thread until it is [`Done`](crate::worker::Step::Done).
    pub fn start_worker(&self, name: &str, worker: impl Worker, signal: &Signal) -> io::Result<WorkerHandle> {
        let (ended, handle) = WorkerHandle::new(signal.clone());
        self.0.host.run_worker(self, name, Box::new(worker), signal.clone(), ended)?;
        Ok(handle)
    }

    /// Runs `f`, which may block, concurrently with the calling task and returns its result, or `None` if the host is
    /// shutting down.
    pub async fn blocking<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.host.run_blocking(Box::new(move || {
            // This fails if the caller was dropped and no longer waits for the result.
            let _ = sender.send(f());
        }));
        receiver.await.ok()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("disk", self.disk()).field("net", self.net()).finish_non_exhaustive()
    }
}
