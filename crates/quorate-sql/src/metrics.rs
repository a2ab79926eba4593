//! Metrics of a store.

use quorate_env::metrics::{Counter, Gauge, Histogram};

use crate::readers::ReadFaults;
use crate::slow::SlowLog;

/// The metrics of the writer and the checkpointer.
#[derive(Clone, Debug, Default)]
pub struct StoreMetrics {
    /// How long each batch of entries took to apply and commit, without statements that had already been run ahead.
    pub batches: Histogram,
    /// The number of applied entries.
    pub entries: Counter,
    /// The number of sessions in the database, as of the last batch.
    pub sessions: Gauge,
    /// The number of requests with keys in the database, as of the last batch.
    pub requests: Gauge,
    /// What these take, as their limit counts it.
    pub request_bytes: Gauge,
    /// How long each checkpoint took, including its syncs.
    pub checkpoints: Histogram,
    /// How long each checkpoint kept the writer from applying.
    pub checkpoint_turns: Histogram,
    /// Counts of queries that failed because of the database's files.
    pub read_faults: ReadFaults,
    /// The log and counts of slow statements.
    pub slow: SlowLog,
}
