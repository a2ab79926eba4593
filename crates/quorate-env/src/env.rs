//! The handle to one node's world.

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
use crate::rng::Rng;
use crate::signal::Signal;
use crate::task::{self, JoinHandle};
use crate::worker::{Worker, WorkerHandle};

scoped_thread_local!(static CURRENT: Env);

/// A wall clock: what people and other machines call the time. It may jump; durations are measured by
/// [`Instant`](crate::Instant) instead.
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

/// What an [`Env`] is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The wall clock.
    pub clock: Arc<dyn WallClock>,
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// Sockets.
    pub net: Arc<dyn Net>,
    /// Randomness.
    pub rng: Rng,
    /// What runs workers and tasks.
    pub host: Arc<dyn Host>,
}

/// The world of one node. Cheap to clone; all clones are the same world.
#[derive(Clone)]
pub struct Env(Arc<Parts>);

impl Env {
    /// This machine.
    pub fn real() -> Self {
        Self::new(Parts {
            clock: Arc::new(RealClock),
            disk: Arc::new(RealDisk),
            net: Arc::new(RealNet),
            rng: Rng::from_os(),
            host: Arc::new(RealHost),
        })
    }

    /// A world made of the given parts.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// The same world, but for what runs workers and tasks.
    #[must_use]
    pub fn with_host(&self, host: Arc<dyn Host>) -> Self {
        Self::new(Parts { host, ..Parts::clone(&self.0) })
    }

    /// The world of the running task, or `None` outside of tasks that an `Env` started.
    pub fn current() -> Option<Self> {
        CURRENT.is_set().then(|| CURRENT.with(Self::clone))
    }

    /// Runs `f` with this world as [`Env::current`].
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        CURRENT.set(self, f)
    }

    /// The wall clock's nanoseconds since 1970-01-01 UTC.
    pub fn unix_nanos(&self) -> u64 {
        self.0.clock.unix_nanos()
    }

    /// Files.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.0.disk
    }

    /// Sockets.
    pub fn net(&self) -> &Arc<dyn Net> {
        &self.0.net
    }

    /// Randomness, fit for secrets on a real machine.
    pub fn rng(&self) -> &Rng {
        &self.0.rng
    }

    /// What runs workers and tasks.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.0.host
    }

    /// What this process has used of its machine, where there is one.
    pub fn usage(&self) -> Option<Usage> {
        self.0.host.usage()
    }

    /// Starts a task on the runtime of the calling task or thread, with this world as its own.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, as `tokio::spawn` does.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawn(self, future)
    }

    /// Runs `future` on a thread and a runtime of its own (in the simulator: as a task beside the others). What it
    /// returns is dropped last, after all the tasks that it left behind.
    pub fn start_runtime<F>(&self, name: &str, future: F) -> io::Result<()>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let task = async move {
            let last: Box<dyn Send> = Box::new(future.await);
            last
        };
        self.0.host.run_task(self, name, Box::pin(task))
    }

    /// Runs a worker on a thread of its own until it is [`Done`](crate::worker::Step::Done).
    pub fn start_worker(&self, name: &str, worker: impl Worker, signal: &Signal) -> io::Result<WorkerHandle> {
        let (ended, handle) = WorkerHandle::new(signal.clone());
        self.0.host.run_worker(self, name, Box::new(worker), signal.clone(), ended)?;
        Ok(handle)
    }

    /// Runs `f`, which may block, beside the calling task and gives its result, or `None` when the machine is going
    /// down.
    pub async fn blocking<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.host.run_blocking(Box::new(move || {
            // The caller may have gone away; then nobody wants the result.
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
