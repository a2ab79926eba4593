//! A bell that wakes one sleeper: a worker's thread, or its task in the simulator.
//!
//! Invariant: a ring is never lost. One that finds nobody asleep is kept for the next who would sleep; several before
//! that count as one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Wakes a worker. Cheap to clone; all clones ring the same bell. Ringing never blocks.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Bell>);

#[derive(Debug, Default)]
struct Bell {
    raised: AtomicBool,
    sleeper: AtomicWaker,
}

impl Signal {
    /// A bell that nobody has rung.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes the sleeper, or keeps the next from falling asleep.
    pub fn wake(&self) {
        if !self.0.raised.swap(true, Ordering::AcqRel) {
            self.0.sleeper.wake();
        }
    }

    /// Ready once the bell was rung, which is then taken back.
    pub fn poll_wait(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.sleeper.register(cx.waker());
        if self.0.raised.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until the bell is rung.
    pub async fn wait(&self) {
        std::future::poll_fn(|cx| self.poll_wait(cx)).await;
    }
}
