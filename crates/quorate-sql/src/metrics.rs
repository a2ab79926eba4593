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
    /// What the stores of keys and events hold.
    pub held: Holdings,
    /// How long each checkpoint took, including its syncs.
    pub checkpoints: Histogram,
    /// How long each checkpoint kept the writer from applying.
    pub checkpoint_turns: Histogram,
    /// Counts of queries that failed because of the database's files.
    pub read_faults: ReadFaults,
    /// The log and counts of slow statements.
    pub slow: SlowLog,
}

/// What the stores of keys, locks and events hold, as of the last time that the metrics were asked for and a reader was
/// free, and who waits for changes on this node.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// The number of keys of all spaces, with those that have expired and were not swept yet.
    pub keys: Gauge,
    /// The number of keys of spaces that were flushed, which are yet to be swept.
    pub flushed_keys: Gauge,
    /// The number of events that are kept.
    pub events: Gauge,
    /// Their bytes, as the limit counts them.
    pub event_bytes: Gauge,
    /// The index of the entry that added the oldest of them; 0 if none is kept.
    pub first_event: Gauge,
    /// The index of the entry that added the last event, kept or not; 0 if there was none.
    pub last_event: Gauge,
    /// Leases of the first 1,000 locks by name, with those that have ended and were not swept yet.
    pub leases: Gauge,
    /// Those who wait for one of these locks.
    pub lock_waits: Gauge,
    /// Callers that wait on this node for a change of what the database holds.
    pub waiters: Gauge,
    /// Watches of the changes of keys that this node applies.
    pub watches: Gauge,
}

impl Holdings {
    pub(crate) fn note(&self, counts: &Counts) {
        self.keys.set(counts.keys);
        self.flushed_keys.set(counts.flushed_keys);
        self.events.set(counts.events);
        self.event_bytes.set(counts.event_bytes);
        self.first_event.set(counts.first_event);
        self.last_event.set(counts.last_event);
        self.leases.set(counts.leases);
        self.lock_waits.set(counts.lock_waits);
    }
}

/// What the tables count; see [`Holdings`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) keys: u64,
    pub(crate) flushed_keys: u64,
    pub(crate) events: u64,
    pub(crate) event_bytes: u64,
    pub(crate) first_event: u64,
    pub(crate) last_event: u64,
    pub(crate) leases: u64,
    pub(crate) lock_waits: u64,
}
