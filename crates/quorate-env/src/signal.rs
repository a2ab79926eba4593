//! A signal that wakes one waiter: a worker's thread, or its task in the simulator.
//!
//! Invariant: a wake is never lost. If nothing is waiting, it is kept for the next wait; several wakes before that
//! count as one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Wakes a worker. Cheap to clone; all clones are the same signal. Waking never blocks.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    raised: AtomicBool,
    waiter: AtomicWaker,
}

impl Signal {
    /// A signal that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the signal: wakes the waiter, or makes the next wait return at once.
    pub fn wake(&self) {
        if !self.0.raised.swap(true, Ordering::AcqRel) {
            self.0.waiter.wake();
        }
    }

    /// Ready if the signal is raised, which clears it; otherwise registers the waker.
    pub fn poll_wait(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.waiter.register(cx.waker());
        if self.0.raised.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until the signal is raised, and clears it.
    pub async fn wait(&self) {
        std::future::poll_fn(|cx| self.poll_wait(cx)).await;
    }
}
