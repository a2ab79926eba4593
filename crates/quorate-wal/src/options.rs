//! The options of a log, and its fixed limits.

use std::time::Duration;

/// The maximum length of an entry, in bytes.
pub const MAX_ENTRY_BYTES: usize = 128 << 20;

/// The maximum length of a vote or identity, in bytes.
pub const MAX_STATE_BYTES: usize = 64 << 10;

/// The maximum length of a frame's body, packed or not. A full batch plus an entry of the maximum length fits.
pub(crate) const MAX_BODY_BYTES: usize = 256 << 20;

/// The unit in which a disk is assumed to write. A page that holds part of a synced frame is never written again.
pub(crate) const PAGE: u64 = 4096;

/// The alignment of frames that are not synced one by one.
pub(crate) const FRAME_ALIGN: u64 = 8;

/// The size of a segment that is made when it is needed, because no spare is ready.
pub(crate) const QUICK_SEGMENT_BYTES: u64 = 4 << 20;

/// The ratio of the next segment's size to the active one's, up to [`WalOptions::segment_bytes`]. A log that was idle
/// grows gradually, because it may soon be idle again.
const GROWTH: u64 = 4;

/// Bounds of [`WalOptions::segment_bytes`].
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = (4 * PAGE)..=(1 << 30);

/// The minimum length of a body to be packed. A shorter one would not take fewer pages.
pub(crate) const PACK_FROM_BYTES: usize = 4096;

/// Records of at least this size are assumed to be compressed already by their creator, if that helps.
pub(crate) const LARGE_RECORD_BYTES: usize = 4096;

/// The number of unsynced bytes that triggers a sync even if no completion requires one.
pub(crate) const UNSYNCED_BYTES: u64 = 8 << 20;

/// How long lazy records, which no completion waits for, may stay queued before they are written and synced.
pub(crate) const LAZY_DELAY: Duration = Duration::from_millis(100);

/// The delay before the writer retries on a full disk.
pub(crate) const FULL_DISK_DELAY: Duration = Duration::from_millis(250);

/// The number of zero bytes that the keeper writes and syncs at a time.
pub(crate) const FILL_BYTES: usize = 512 << 10;

/// The maximum number of spares. Further purged segments are removed instead of recycled.
pub(crate) const MAX_SPARES: usize = 2;

/// When the completion of an append runs. Votes and identities are always synced.
///
/// For a cluster: when a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// After it is synced (in a cluster: on a majority). It survives a power loss, even of all nodes at once.
    #[default]
    Fsync,
    /// After it is handed to the operating system (in a cluster: on a majority). It survives the end of processes, but
    /// not the failure of a majority of the machines.
    Os,
}

impl Durability {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::Fsync, Self::Os];

    /// The name used in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Os => "os",
        }
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The options for opening a log. None of them is part of the format.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// The size of a segment in bytes, from 16 KiB to 1 GiB; rounded up to a multiple of 4 KiB.
    pub segment_bytes: u64,
    /// The number of bytes of the newest entries kept in memory.
    pub tail_bytes: usize,
    /// The size at which a frame is full, in bytes before packing. A single longer entry still fits.
    pub batch_bytes: usize,
    /// The number of bytes that may wait to be written. Exceeding it poisons the log, so the caller's admission control
    /// must stay far below it.
    pub pending_limit: usize,
    /// An unpredictable number, so that nobody can craft a payload that looks like a frame of a later segment.
    pub seed: u64,
}

impl WalOptions {
    /// Options for most machines: segments of 64 MiB, 64 MiB of entries in memory.
    pub fn new(seed: u64) -> Self {
        Self { segment_bytes: 64 << 20, tail_bytes: 64 << 20, batch_bytes: 1 << 20, pending_limit: 1 << 30, seed }
    }

    /// Options for small machines: segments of 8 MiB, 8 MiB of entries in memory.
    pub fn small(seed: u64) -> Self {
        Self { segment_bytes: 8 << 20, tail_bytes: 8 << 20, pending_limit: 256 << 20, ..Self::new(seed) }
    }

    /// The options with every number clamped to its bounds.
    pub(crate) fn bounded(mut self) -> Self {
        let bytes = self.segment_bytes.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        self.segment_bytes = bytes.next_multiple_of(PAGE);
        self.batch_bytes = self.batch_bytes.clamp(1, MAX_BODY_BYTES - MAX_ENTRY_BYTES - (1 << 20));
        self
    }

    /// The size of the segment to prepare while the active one has `active` bytes.
    pub(crate) fn next_segment_bytes(&self, active: u64) -> u64 {
        self.segment_bytes.min(active.saturating_mul(GROWTH))
    }

    /// The size of a segment that is made when it is needed and must hold `needed` bytes.
    pub(crate) fn quick_segment_bytes(&self, needed: u64) -> u64 {
        self.segment_bytes.min(QUICK_SEGMENT_BYTES).max(needed.next_multiple_of(PAGE))
    }
}
