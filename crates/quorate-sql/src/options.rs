//! What a store is told when it is opened, and its bounds.

use std::time::Duration;

use quorate_env::Rng;

use crate::extensions::Extensions;
use crate::identity::StoreIdentity;
use crate::image::PIECE_BLOCKS_MAX;
use crate::readers::ReaderOptions;
use crate::slow::SlowLog;
use crate::usage::TempOptions;

/// Bytes of the `-wal` from which a checkpoint for space is run.
pub const CHECKPOINT_BYTES: u64 = 32 << 20;

/// Bytes of the `-wal` at which an image gives its hold up, and a snapshot ends that is older than reads commonly
/// become.
pub const HOLD_BYTES_MAX: u64 = 256 << 20;

/// Bytes of the writer's page cache where nothing else is said. SQLite sorts as much as this in one step, during which
/// nothing can stop the statement: half a second for 32 MiB, 60 ms for 4. Large sorts are faster so too: what is sorted
/// at once fits the processor's caches.
pub const WRITER_CACHE_BYTES_DEFAULT: u32 = 4 << 20;

/// Entries of one SQLite transaction.
pub const BATCH_ENTRIES_MAX: usize = 4096;

/// Bytes of the entries of one SQLite transaction; a single larger entry still makes one.
pub const BATCH_BYTES_MAX: usize = 8 << 20;

/// Bytes of entries that may wait for the writer. Callers bound what they hand over by waiting for outcomes; more than
/// this is refused as a fault.
pub const QUEUE_BYTES_MAX: usize = 1 << 30;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Whose data it holds.
    pub identity: StoreIdentity,
    /// Bytes of a page, fixed when the database is created: a power of two from 4096 to 65536.
    pub page_size: u32,
    /// Bytes of the writer's page cache, and what it sorts in one step.
    pub writer_cache_bytes: u32,
    /// How the store is read.
    pub readers: ReaderOptions,
    /// Functions and collations that the program brings along.
    pub extensions: Extensions,
    /// How large temporary files may become.
    pub temp: TempOptions,
    /// What tells of slow statements.
    pub slow: SlowLog,
    /// Bytes of the `-wal` from which a checkpoint for space is run.
    pub checkpoint_bytes: u64,
    /// Bytes of the `-wal` at which an image gives its hold up, and an old snapshot ends.
    pub hold_bytes_max: u64,
    /// Entries of one SQLite transaction.
    pub batch_entries_max: usize,
    /// Draws the size of each batch at random below the maximum: nothing may depend on where batches end, and the
    /// simulator proves it.
    pub shuffle_batches: Option<Rng>,
    /// How long nothing must have been applied before the `-wal` is emptied.
    pub idle_after: Duration,
    /// Blocks that a piece of an image has at most.
    pub piece_blocks: u64,
}

impl StoreOptions {
    /// Bytes of the `-wal` after which it is synced.
    pub(crate) fn sync_bytes(&self) -> u64 {
        self.checkpoint_bytes / 8
    }

    /// The defaults, for the data of `identity`.
    pub fn new(identity: StoreIdentity) -> Self {
        Self {
            identity,
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
        }
    }
}
