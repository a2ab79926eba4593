//! The options with which a store is opened, and its limits.

use std::time::Duration;

use quorate_env::Rng;
use quorate_model::StoreIdentity;
use quorate_model::limits::FORMAT_LEVEL;

use crate::events::Retention;
use crate::extensions::Extensions;
use crate::image::PIECE_BLOCKS_MAX;
use crate::readers::ReaderOptions;
use crate::slow::SlowLog;
use crate::usage::TempOptions;

/// The size of the `-wal` in bytes from which a checkpoint is run to reclaim its space.
pub const CHECKPOINT_BYTES: u64 = 32 << 20;

/// The size of the `-wal` in bytes at which an image releases its hold, and at which snapshots that have outlived the
/// time limit of an ordinary read end.
pub const HOLD_BYTES_MAX: u64 = 256 << 20;

/// The default size of the writer's page cache in bytes. SQLite sorts this amount in one step, during which the
/// statement can't be stopped: half a second for 32 MiB, 60 ms for 4. Large sorts are also faster with a small cache,
/// because each sorted run fits the processor's caches.
pub const WRITER_CACHE_BYTES_DEFAULT: u32 = 4 << 20;

/// The most entries in one SQLite transaction.
pub const BATCH_ENTRIES_MAX: usize = 4096;

/// The most bytes of entries in one SQLite transaction; a single larger entry gets a transaction of its own.
pub const BATCH_BYTES_MAX: usize = 8 << 20;

/// The most bytes of entries that may wait for the writer. Callers bound what they submit by waiting for outcomes;
/// anything beyond this limit is refused as a fault.
pub const QUEUE_BYTES_MAX: usize = 1 << 30;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The cluster, epoch and group of the data.
    pub identity: StoreIdentity,
    /// The highest format level that this program understands.
    pub level: u32,
    /// The page size in bytes, fixed when the database is created: a power of two from 4096 to 65536.
    pub page_size: u32,
    /// The size of the writer's page cache in bytes, and the amount that it sorts in one step.
    pub writer_cache_bytes: u32,
    /// The options of readers.
    pub readers: ReaderOptions,
    /// Functions and collations that the program provides.
    pub extensions: Extensions,
    /// The size limits of temporary files.
    pub temp: TempOptions,
    /// The log of slow statements.
    pub slow: SlowLog,
    /// The size of the `-wal` in bytes from which a checkpoint is run to reclaim its space.
    pub checkpoint_bytes: u64,
    /// The size of the `-wal` in bytes at which an image releases its hold, and old snapshots end.
    pub hold_bytes_max: u64,
    /// The most entries in one SQLite transaction.
    pub batch_entries_max: usize,
    /// If set, draws the size of each batch at random up to the maximum. Nothing may depend on the boundaries of
    /// batches, and the simulator checks that with this option.
    pub shuffle_batches: Option<Rng>,
    /// How long the store must have applied nothing before the `-wal` is emptied.
    pub idle_after: Duration,
    /// The most blocks in a piece of an image.
    pub piece_blocks: u64,
    /// How many events are kept. All nodes must keep the same.
    pub events: Retention,
}

impl StoreOptions {
    /// How many bytes the `-wal` may grow before it is synced.
    pub(crate) fn sync_bytes(&self) -> u64 {
        self.checkpoint_bytes / 8
    }

    /// Returns the default options for the data of `identity`.
    pub fn new(identity: StoreIdentity) -> Self {
        Self {
            identity,
            level: FORMAT_LEVEL,
            page_size: 4096,
            writer_cache_bytes: WRITER_CACHE_BYTES_DEFAULT,
            readers: ReaderOptions::default(),
            extensions: Extensions::default(),
            temp: TempOptions::default(),
            slow: SlowLog::default(),
            checkpoint_bytes: CHECKPOINT_BYTES,
            hold_bytes_max: HOLD_BYTES_MAX,
            batch_entries_max: BATCH_ENTRIES_MAX,
            shuffle_batches: None,
            idle_after: Duration::from_secs(5),
            piece_blocks: PIECE_BLOCKS_MAX,
            events: Retention::default(),
        }
    }
}
