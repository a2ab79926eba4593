//! The claim on a data directory, held by every part of a node that may access the directory.
//!
//! A node that is dropped ends at once, but its workers end only at their next step. The last of them releases the
//! directory's lock, so that no process opens a log that is still being written.
//!
//! Invariant: every worker and blocking call of a node holds the lock.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::Duration;

use quorate_env::disk::{DirLock, make_dir};
use quorate_env::worker::{Ended, Signal, Step, Worker};
use quorate_env::{AbortHandle, BoxTask, Env, Host, Instant, Priority, Usage, lock, sleep};

use crate::error::StartError;

/// How long a start waits for the previous node of the directory to end.
const CLAIM_WAIT: Duration = Duration::from_secs(3);

/// How often a start tries to take the lock.
const CLAIM_RETRY: Duration = Duration::from_millis(10);

/// The claim of a running node. When it is dropped, the remaining workers end.
#[derive(Debug)]
pub(crate) struct Claim {
    #[expect(dead_code, reason = "held, so that the directory stays locked")]
    lock: Arc<dyn DirLock>,
    ending: Arc<Ending>,
}

/// Asks workers to end.
#[derive(Debug, Default)]
struct Ending {
    now: AtomicBool,
    signals: Mutex<Vec<Signal>>,
}

/// A host whose workers and blocking calls hold the lock.
#[derive(Debug)]
struct ClaimedHost {
    host: Arc<dyn Host>,
    lock: Weak<dyn DirLock>,
    ending: Arc<Ending>,
}

/// A worker that holds the lock.
struct ClaimedWorker {
    // Declared before the lock, so dropped before it.
    worker: Box<dyn Worker>,
    ending: Arc<Ending>,
    _lock: Option<Arc<dyn DirLock>>,
}

impl Claim {
    /// Claims a directory, creating it if necessary, and returns the environment in which everything that accesses the
    /// directory must run.
    pub(crate) async fn take(env: &Env, dir: &Path) -> Result<(Self, Env), StartError> {
        let disk = |error| StartError::Disk { path: dir.display().to_string(), error };
        make_dir(&**env.disk(), dir).map_err(disk)?;
        let deadline = Instant::now() + CLAIM_WAIT;
        let lock = loop {
            match env.disk().lock_dir(dir) {
                Ok(lock) => break lock,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(disk(error)),
                Err(_) if Instant::now() >= deadline => return Err(StartError::InUse(dir.display().to_string())),
                Err(_) => sleep(CLAIM_RETRY).await,
            }
        };
        let (lock, ending): (Arc<dyn DirLock>, _) = (lock.into(), Arc::new(Ending::default()));
        let host =
            ClaimedHost { host: Arc::clone(env.host()), lock: Arc::downgrade(&lock), ending: Arc::clone(&ending) };
        Ok((Self { lock, ending }, env.with_host(Arc::new(host))))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ending.now.store(true, Ordering::Release);
        let signals = std::mem::take(&mut *lock(&self.ending.signals));
        signals.iter().for_each(Signal::wake);
    }
}

impl Host for ClaimedHost {
    fn run_task(&self, env: &Env, name: &str, priority: Priority, task: BoxTask) -> io::Result<()> {
        self.host.run_task(env, name, priority, task)
    }

    fn run_worker(
        &self,
        env: &Env,
        name: &str,
        worker: Box<dyn Worker>,
        signal: Signal,
        ended: Ended,
    ) -> io::Result<()> {
        lock(&self.ending.signals).push(signal.clone());
        let claimed = ClaimedWorker { worker, ending: Arc::clone(&self.ending), _lock: self.lock.upgrade() };
        self.host.run_worker(env, name, Box::new(claimed), signal, ended)
    }

    fn run_blocking(&self, call: Box<dyn FnOnce() + Send>) {
        let lock = self.lock.upgrade();
        self.host.run_blocking(Box::new(move || {
            call();
            drop(lock);
        }));
    }

    fn postpones(&self, task: &Waker) -> bool {
        self.host.postpones(task)
    }

    fn started(&self, task: AbortHandle) {
        self.host.started(task);
    }

    fn usage(&self) -> Option<Usage> {
        self.host.usage()
    }
}

impl Worker for ClaimedWorker {
    fn run_once(&mut self) -> Step {
        // Checked before each step; the signal that wakes the worker is sent after `now` is set.
        if self.ending.now.load(Ordering::Acquire) { Step::Done } else { self.worker.run_once() }
    }

    fn is_urgent(&self) -> bool {
        self.worker.is_urgent()
    }
}

impl fmt::Debug for ClaimedWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimedWorker")
    }
}
