//! The workers of a node: plain state machines, each run by a loop that calls it repeatedly.
//!
//! The log writer, the SQL writer and the checkpointer are values with a [`Worker::run_once`]. On a machine the loop is
//! a thread; in the simulator it is a task that lets virtual time pass between two calls. Code that gives a worker
//! something to do wakes it through its [`Signal`].

use std::time::Duration;

use tokio::sync::oneshot;

pub use crate::signal::Signal;

/// A state machine that runs on its own thread.
pub trait Worker: Send + 'static {
    /// Does one bounded piece of work, which may block on the disk, and returns when to call it again.
    fn run_once(&mut self) -> Step;

    /// Whether other threads wait for its work. Its thread then gets a higher priority, if the process may set it.
    /// Called after each piece of work.
    fn is_urgent(&self) -> bool {
        false
    }
}

/// When a worker wants to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// At once, because there is more to do.
    Again,
    /// When its signal is raised.
    Wait,
    /// When its signal is raised, or after this time.
    WaitFor(Duration),
    /// Never. Its work has ended, and it is dropped.
    Done,
}

/// Dropped by the host after a worker has ended and was dropped; this notifies the [`WorkerHandle`].
#[derive(Debug)]
pub struct Ended(#[expect(dead_code, reason = "its drop is the message")] oneshot::Sender<()>);

/// A started worker.
#[derive(Debug)]
pub struct WorkerHandle {
    signal: Signal,
    ended: oneshot::Receiver<()>,
}

impl WorkerHandle {
    pub(crate) fn new(signal: Signal) -> (Ended, Self) {
        let (sender, ended) = oneshot::channel();
        (Ended(sender), Self { signal, ended })
    }

    /// The signal that wakes the worker.
    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Waits until the worker has ended and everything that it owned is dropped.
    pub async fn ended(self) {
        // The sender never sends. Dropping it causes an error here, which is the notification.
        let _ = self.ended.await;
    }
}
