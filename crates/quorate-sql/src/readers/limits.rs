//! The limits of reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorate_env::Instant;
use quorate_model::Value;

/// The default limit on the rows of one result.
pub const ROWS_DEFAULT: usize = 1_000_000;

/// The default limit on the bytes of one result.
pub const BYTES_DEFAULT: usize = 64 << 20;

/// The default age limit of a read transaction: of a query, a snapshot or a stream.
pub const TRANSACTION_DEFAULT: Duration = Duration::from_secs(5);

/// How long a query waits for a free reader.
pub const WAIT_DEFAULT: Duration = Duration::from_secs(2);

/// Read-only connections of one store, which is the number of queries that run at the same time.
pub const READERS_DEFAULT: usize = 32;

/// Bytes of the page cache of each reader.
pub const CACHE_BYTES_DEFAULT: u32 = 8 << 20;

/// The most rows of one piece of a stream.
pub const CHUNK_ROWS: usize = 1024;

/// The size in bytes at which a piece of a stream is complete.
pub const CHUNK_BYTES: usize = 256 << 10;

/// The limits of one query, also in a snapshot, or of one whole stream.
#[derive(Clone, Debug)]
pub struct ReadLimits {
    /// The most rows of the result.
    pub rows: usize,
    /// The most bytes of the result, counted by [`value_bytes`].
    pub bytes: usize,
    /// How long the query may run from its first step, and never longer than its read transaction may last. It is
    /// checked about every thousand steps of SQLite.
    pub timeout: Duration,
    /// Ends the query when it is cancelled.
    pub cancel: Option<Cancel>,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { rows: ROWS_DEFAULT, bytes: BYTES_DEFAULT, timeout: Duration::MAX, cancel: None }
    }
}

/// What a value counts for the limit on bytes: a text or blob its length, any other value 8.
pub fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        Value::Null | Value::Integer(_) | Value::Real(_) => 8,
    }
}

/// The options of a pool of readers.
#[derive(Clone, Copy, Debug)]
pub struct ReaderOptions {
    /// Read-only connections, opened when they are needed.
    pub readers: usize,
    /// Bytes of the page cache of each.
    pub cache_bytes: u32,
    /// How long a query waits for a free one.
    pub wait: Duration,
    /// How long a read transaction may last.
    pub transaction: Duration,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            readers: READERS_DEFAULT,
            cache_bytes: CACHE_BYTES_DEFAULT,
            wait: WAIT_DEFAULT,
            transaction: TRANSACTION_DEFAULT,
        }
    }
}

/// Ends the queries that it was given to. All clones are the same, and it can't be reset.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A `Cancel` that is not cancelled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the queries: running ones at once, others at their start.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Cancels when it is dropped, for queries whose caller may drop its future.
#[derive(Debug)]
pub(super) struct CancelOnDrop(pub(super) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// When a read transaction began, and its age limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age {
    pub(super) begun: Instant,
    pub(super) max: Duration,
}

impl Age {
    pub(super) fn is_reached(self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) >= self.max
    }
}
