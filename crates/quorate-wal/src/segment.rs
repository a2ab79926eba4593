//! The files of a log directory, and their names.
//!
//! `0000000007.wal` is the segment with ordinal 7. Ordinals only increase. A segment without a valid header was never
//! used. `3.spare` is a spare: it has its full length, is synced, and its content has no meaning. `fill.tmp` is a spare
//! under construction.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_env::disk::File;

use crate::frame::SegmentEpoch;

/// The spare that is being filled with zeros.
pub(crate) const FILL_NAME: &str = "fill.tmp";

/// A segment in use.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) epoch: SegmentEpoch,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    /// The length of the file in bytes.
    pub(crate) len: u64,
}

/// A file that waits to become a segment.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
}

/// The meaning of a file name in the log directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Segment(u32),
    Spare(u64),
    Fill,
    Other,
}

impl Name {
    pub(crate) fn parse(name: &str) -> Self {
        if name == FILL_NAME {
            return Self::Fill;
        }
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        match name.split_once('.') {
            Some((ordinal, "wal")) if ordinal.len() == 10 => {
                number(ordinal).and_then(|n: u64| u32::try_from(n).ok()).map_or(Self::Other, Self::Segment)
            }
            Some((n, "spare")) => number(n).map_or(Self::Other, Self::Spare),
            _ => Self::Other,
        }
    }
}

pub(crate) fn segment_path(dir: &Path, ordinal: u32) -> PathBuf {
    dir.join(format!("{ordinal:010}.wal"))
}

pub(crate) fn spare_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.spare"))
}

/// The epoch of segment `ordinal`, with a nonce derived from the seed that the log was opened with.
pub(crate) fn draw_epoch(seed: u64, ordinal: u32) -> SegmentEpoch {
    // SplitMix64: equal seeds give equal logs, and the nonce can't be predicted without the seed.
    let mut bits = seed.wrapping_add(u64::from(ordinal).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let nonce = u32::try_from((bits ^ (bits >> 31)) >> 32).unwrap_or_default();
    SegmentEpoch { ordinal, nonce }
}
