//! What a store measures about itself.

use quorate_env::metrics::{Counter, Gauge, Histogram};

use crate::readers::ReadFaults;
use crate::slow::SlowLog;

/// What the writer and the checkpointer measure.
#[derive(Clone, Debug, Default)]
pub struct StoreMetrics {
    /// How long each batch of entries took to be applied and committed, without what had run ahead of it.
    pub batches: Histogram,
    /// Entries that were applied.
    pub entries: Counter,
    /// Sessions that the database holds, as of the last batch.
    pub sessions: Gauge,
    /// How long each checkpoint took, its syncs included.
    pub checkpoints: Histogram,
    /// How long each checkpoint kept the writer from applying.
    pub checkpoint_turns: Histogram,
    /// Queries that failed because of the database's files.
    pub read_faults: ReadFaults,
    /// Statements that took long.
    pub slow: SlowLog,
}
