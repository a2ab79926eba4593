//! Waits for the callers of the last batch to propose again.
//!
//! Clients at the other ends of connections take a while for that. A batch that began with the first of them would hold
//! few proposals, and the others would form a second group, while a batch costs as much as dozens of its proposals. So
//! the next batch begins when as many have proposed again as the last one had, or there are [`ENOUGH`] proposals, or
//! after [`RETURN_MAX`].
//!
//! Invariant: this module decides when a batch begins, and nothing else. If callers do not return, few batches wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorate_env::signal::Signal;
use quorate_env::timeout;

/// How long a batch waits for callers.
pub(crate) const RETURN_MAX: Duration = Duration::from_millis(1);

/// How many proposals are enough for a batch: what it costs beside them is little for each.
const ENOUGH: usize = 64;

/// The most batches in a row that do not wait, because waiting was in vain.
const IMPATIENCE_MAX: u32 = 1_024;

/// The queue as the gatherer waits for it.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// The requests in the queue.
    queued: AtomicUsize,
    /// How many of them there are once the callers of the last batch are back; 0 if none are expected.
    wanted: AtomicUsize,
    signal: Signal,
}

/// Whether it makes sense to wait.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// How many batches do not wait.
    skips: u32,
    /// How many did not before the last that waited, if that was in vain.
    skipped: u32,
}

impl Returns {
    /// Notes that a request was queued.
    pub(super) fn queued(&self) {
        let queued = self.queued.fetch_add(1, Ordering::SeqCst).saturating_add(1);
        let wanted = self.wanted.load(Ordering::SeqCst);
        if wanted > 0 && queued >= wanted {
            self.signal.wake();
        }
    }

    /// Notes that a request was taken from the queue.
    pub(super) fn taken(&self) {
        self.queued.fetch_sub(1, Ordering::SeqCst);
    }

    /// Notes that so many callers get their responses from now on.
    pub(super) fn answering(&self, callers: usize) {
        let wanted = self.queued.load(Ordering::SeqCst).saturating_add(callers);
        self.wanted.store(wanted.min(ENOUGH), Ordering::SeqCst);
    }

    /// Waits until all callers are back, if that makes sense.
    pub(super) async fn all_back(&self, patience: &mut Patience) {
        let are_back = || self.queued.load(Ordering::SeqCst) >= self.wanted.load(Ordering::SeqCst);
        // A single caller is in the next batch anyway.
        if self.wanted.load(Ordering::SeqCst) > 1 && patience.is_left() {
            let waiting = async {
                while !are_back() {
                    self.signal.wait().await;
                }
            };
            patience.note(timeout(RETURN_MAX, waiting).await.is_ok());
        }
        self.wanted.store(0, Ordering::SeqCst);
    }
}

impl Patience {
    fn is_left(&mut self) -> bool {
        let is_left = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        is_left
    }

    fn note(&mut self, were_back: bool) {
        self.skipped = if were_back { 0 } else { self.skipped.saturating_mul(2).clamp(1, IMPATIENCE_MAX) };
        self.skips = self.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_batches_wait_in_vain() {
        let mut patience = Patience::default();
        let mut waited = 0;
        for _ in 0..10_000 {
            if patience.is_left() {
                patience.note(false);
                waited += 1;
            }
        }
        assert!((10..=20).contains(&waited), "{waited}");
    }

    #[test]
    fn all_batches_wait_once_callers_come_back() {
        let mut patience = Patience::default();
        while patience.is_left() {
            patience.note(false);
        }
        while !patience.is_left() {}
        patience.note(true);
        assert!((0..100).all(|_| {
            let is_left = patience.is_left();
            patience.note(true);
            is_left
        }));
    }
}
