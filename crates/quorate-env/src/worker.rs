//! The active parts of a node: plain state machines, each in a shell that calls it again and again.
//!
//! The log writer, the SQL writer and the checkpointer are values with a [`Worker::run_once`]. On a machine the shell
//! is a thread; in the simulator it is a task that lets virtual time pass between two calls. Who hands a worker
//! something to do rings its [`Signal`].

use std::time::Duration;

use tokio::sync::oneshot;

pub use crate::signal::Signal;

/// A state machine that is run by its own thread.
pub trait Worker: Send + 'static {
    /// Does one bounded piece of work, which may block on the disk, and says when to be called again.
    fn run_once(&mut self) -> Step;

    /// Whether others wait for all that it does: then its thread goes before others, where the process may choose.
    /// Asked after each piece of work.
    fn is_urgent(&self) -> bool {
        false
    }
}

/// When a worker wants to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// At once: there is more to do.
    Again,
    /// When its signal rings.
    Wait,
    /// When its signal rings, and after this time at the latest.
    WaitFor(Duration),
    /// Never: its work has ended, and it is dropped.
    Done,
}

/// Told by a host when a worker has ended and was dropped.
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

    /// The worker's bell.
    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Waits until the worker has ended and everything it owned was dropped.
    pub async fn ended(self) {
        // The sender is never used but to be dropped, so the error is the message.
        let _ = self.ended.await;
    }
}
