//! What an archiver counts.

use quorate_env::metrics::{Counter, Gauge};

/// What an archiver has asked of its store: requests by their kind, repeated ones of the store's own not among them.
/// It also counts rehearsals of restores.
#[derive(Clone, Debug, Default)]
pub struct ArchiveMetrics {
    /// To create an object.
    pub create: Counter,
    /// To replace the manifest.
    pub replace: Counter,
    /// To begin, continue and finish large objects.
    pub upload: Counter,
    /// To read.
    pub read: Counter,
    /// To list.
    pub list: Counter,
    /// To delete an object.
    pub delete: Counter,
    /// The bytes that were sent.
    pub sent_bytes: Counter,
    /// When a restore was last rehearsed with success, in seconds since 1970; 0 for never.
    pub rehearsed: Gauge,
    /// How many rehearsals failed, or found a difference.
    pub rehearsal_failures: Counter,
}
