//! What can be chosen about a log, and the limits that can't.

use std::time::Duration;

/// Longest entry, in bytes.
pub const MAX_ENTRY_BYTES: usize = 128 << 20;

/// Longest vote or identity, in bytes.
pub const MAX_STATE_BYTES: usize = 64 << 10;

/// Longest body of a frame, packed or not: a full batch and the longest entry fit.
pub(crate) const MAX_BODY_BYTES: usize = 256 << 20;

/// What a disk is assumed to write as a unit: sectors of it that hold a synced frame are never written again.
pub(crate) const PAGE: u64 = 4096;

/// Where frames may begin that are not synced one by one.
pub(crate) const FRAME_ALIGN: u64 = 8;

/// Size of a segment that has to be made on the spot.
pub(crate) const QUICK_SEGMENT_BYTES: u64 = 4 << 20;

/// How many times longer than the active segment the next one is, up to [`WalOptions::segment_bytes`]: a log that
/// was idle, and may soon be so again, is not made large at once.
const GROWTH: u64 = 4;

/// Bounds of [`WalOptions::segment_bytes`].
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = (4 * PAGE)..=(1 << 30);

/// Bodies below this are not packed: they would not take fewer pages.
pub(crate) const PACK_FROM_BYTES: usize = 4096;

/// Records from this size on count as packed already by whoever made them.
pub(crate) const LARGE_RECORD_BYTES: usize = 4096;

/// How many bytes may be unsynced before a log that need not sync does it nevertheless.
pub(crate) const UNSYNCED_BYTES: u64 = 8 << 20;

/// How long records that nobody waits for may lie before they are written and synced.
pub(crate) const LAZY_DELAY: Duration = Duration::from_millis(100);

/// When a full disk is tried again.
pub(crate) const FULL_DISK_DELAY: Duration = Duration::from_millis(250);

/// Zeros that the keeper writes and syncs at a time.
pub(crate) const FILL_BYTES: usize = 512 << 10;

/// How many segments wait at most for their next use.
pub(crate) const MAX_SPARES: usize = 2;

/// When the completion of an append runs. Votes and identities are synced always.
///
/// Of a cluster: when a write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When it was synced, in a cluster on a majority: it survives the loss of power, everywhere at once too.
    #[default]
    Fsync,
    /// When the operating system has it, in a cluster those of a majority: it survives the end of processes, not that
    /// of a majority's machines.
    Os,
}

impl Durability {
    /// All that there are.
    pub const ALL: [Self; 2] = [Self::Fsync, Self::Os];

    /// What configurations call it.
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

/// What can be chosen when a log is opened. None of it is part of the format.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Size of a segment in bytes, from 16 KiB to 1 GiB; rounded up to a multiple of 4 KiB.
    pub segment_bytes: u64,
    /// How many bytes of the newest entries are kept in memory.
    pub tail_bytes: usize,
    /// Where a frame is full, in bytes before packing; one longer entry still fits.
    pub batch_bytes: usize,
    /// How many bytes may wait to be written. Admission above must keep far below: going over poisons the log.
    pub pending_limit: usize,
    /// An unpredictable number, so that no payload can be made to look like a frame of a coming segment.
    pub seed: u64,
}

impl WalOptions {
    /// Segments of 64 MiB.
    pub fn new(seed: u64) -> Self {
        Self { segment_bytes: 64 << 20, tail_bytes: 64 << 20, batch_bytes: 1 << 20, pending_limit: 1 << 30, seed }
    }

    /// For small machines: segments of 8 MiB, 8 MiB of entries in memory.
    pub fn small(seed: u64) -> Self {
        Self { segment_bytes: 8 << 20, tail_bytes: 8 << 20, pending_limit: 256 << 20, ..Self::new(seed) }
    }

    /// The options with every number brought into its bounds.
    pub(crate) fn bounded(mut self) -> Self {
        let bytes = self.segment_bytes.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        self.segment_bytes = bytes.next_multiple_of(PAGE);
        self.batch_bytes = self.batch_bytes.clamp(1, MAX_BODY_BYTES - MAX_ENTRY_BYTES - (1 << 20));
        self
    }

    /// Size of the segment to prepare while one of `active` bytes is written.
    pub(crate) fn next_segment_bytes(&self, active: u64) -> u64 {
        self.segment_bytes.min(active.saturating_mul(GROWTH))
    }

    /// Size of a segment that has to be made on the spot, in which `needed` bytes must fit.
    pub(crate) fn quick_segment_bytes(&self, needed: u64) -> u64 {
        self.segment_bytes.min(QUICK_SEGMENT_BYTES).max(needed.next_multiple_of(PAGE))
    }
}
