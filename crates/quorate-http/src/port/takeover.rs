//! What goes on with a connection after HTTP has ended on it.
//!
//! It runs in the task of the connection, so it holds the connection's place, and ends with its port.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use quorate_env::lock;
use tokio::sync::oneshot;

/// Runs until the connection ends. It must end its work soon after the sender has been dropped.
pub(super) type Job = Box<dyn FnOnce(oneshot::Receiver<()>) -> BoxFuture<'static, ()> + Send>;

/// The place for a [`Job`], which each request of a connection carries among its extensions.
#[derive(Clone, Default)]
pub(crate) struct Takeover(Arc<Mutex<Option<Job>>>);

impl Takeover {
    /// Sets what follows if HTTP ends with the answer to this request.
    pub(crate) fn set(&self, job: Job) {
        *lock(&self.0) = Some(job);
    }

    /// Returns what follows.
    pub(super) fn take(&self) -> Option<Job> {
        lock(&self.0).take()
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Takeover")
    }
}
