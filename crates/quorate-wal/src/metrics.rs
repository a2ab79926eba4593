//! What the writer measures.
//!
//! Invariant: of long syncs only the latest are kept, and the lock around them is taken when one ends or is asked for.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use quorate_env::metrics::Histogram;
use quorate_env::{Instant, lock};

/// A sync that takes longer than this is remembered by itself.
pub const LONG_SYNC: Duration = Duration::from_millis(50);

/// How many of them are remembered.
pub const LONG_SYNCS_MAX: usize = 256;

/// What the writer measures.
#[derive(Clone, Debug, Default)]
pub struct WalMetrics {
    /// How long each `fdatasync` of frames and of headers took.
    pub fsync: Histogram,
    /// The latest that took longer than [`LONG_SYNC`]: what slow writes have waited for.
    pub long_syncs: LongSyncs,
}

/// When a long sync began and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongSync {
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

/// The latest [`LONG_SYNCS_MAX`] syncs that took longer than [`LONG_SYNC`].
#[derive(Debug, Default)]
pub struct LongSyncs(Mutex<VecDeque<LongSync>>);

impl LongSyncs {
    /// Those that are remembered, in their order.
    pub fn list(&self) -> Vec<LongSync> {
        self.lock().iter().copied().collect()
    }

    fn keep(&self, sync: LongSync) {
        let mut kept = self.lock();
        if kept.len() >= LONG_SYNCS_MAX {
            kept.pop_front();
        }
        kept.push_back(sync);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<LongSync>> {
        lock(&self.0)
    }
}

impl Clone for LongSyncs {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.lock().clone()))
    }
}

impl WalMetrics {
    /// Records a sync that has ended just now.
    pub(crate) fn synced(&self, began: Instant) {
        let ended = Instant::now();
        let took = ended.saturating_duration_since(began);
        self.fsync.observe(took);
        if took > LONG_SYNC {
            self.long_syncs.keep(LongSync { began, ended });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_long_syncs_are_remembered() {
        let metrics = WalMetrics::default();
        metrics.synced(Instant::now());
        assert!(metrics.long_syncs.list().is_empty());
        let now = Instant::now();
        let began = |n: usize| now - LONG_SYNC - Duration::from_millis(1000 - n as u64);
        (0..LONG_SYNCS_MAX + 3).for_each(|n| metrics.synced(began(n)));
        let kept = metrics.clone().long_syncs.list();
        assert_eq!((kept.len(), kept[0].began), (LONG_SYNCS_MAX, began(3)));
        assert!(kept.iter().all(|sync| sync.ended - sync.began > LONG_SYNC));
        assert_eq!(metrics.fsync.count(), LONG_SYNCS_MAX as u64 + 4);
    }
}
