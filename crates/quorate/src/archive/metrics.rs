//! What an archiver counts.

use quorate_archive::Requests;
use quorate_env::metrics::{Counter, Gauge};

/// What an archiver has asked of its store, and what became of rehearsals of restores.
#[derive(Clone, Debug, Default)]
pub struct ArchiveMetrics {
    /// The requests to the store.
    pub requests: Requests,
    /// When a restore was last rehearsed with success, in seconds since 1970; 0 for never.
    pub rehearsed: Gauge,
    /// How many rehearsals failed, or found a difference.
    pub rehearsal_failures: Counter,
}
