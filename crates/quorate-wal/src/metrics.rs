//! The writer's measurements.
//!
//! Invariant: only the latest long syncs are kept. Their lock is taken only when a long sync ends or the list is read.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use quorate_env::metrics::Histogram;
use quorate_env::{Instant, lock};

/// Syncs that take longer than this are recorded individually.
pub const LONG_SYNC: Duration = Duration::from_millis(50);

/// The maximum number of long syncs kept.
pub const LONG_SYNCS_MAX: usize = 256;

/// The writer's measurements.
#[derive(Clone, Debug, Default)]
pub struct WalMetrics {
    /// How long each `fdatasync` of frames and of headers took.
    pub fsync: Histogram,
    /// The latest syncs that took longer than [`LONG_SYNC`]; they explain slow writes.
    pub long_syncs: LongSyncs,
}

/// The start and end of a long sync.
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
    /// The recorded syncs, oldest first.
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
    /// Records a sync that has just ended.
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
    fn the_latest_long_syncs_are_kept() {
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
