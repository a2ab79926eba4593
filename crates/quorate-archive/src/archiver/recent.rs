//! The entries that were put lately, each lot in a segment of its own, which are merged into one segment later.
//!
//! Invariant: the entries are consecutive, and their bytes are bounded by [`BYTES_MAX`] and one lot.

use bytes::Bytes;

use crate::entries::SEGMENT_BYTES;

/// How many bytes wait to be merged. If there are more, because a boundary takes long, they stay in their segments.
const BYTES_MAX: usize = 4 * SEGMENT_BYTES;

/// Entries that were put lately.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// The number of the first.
    first: u64,
    entries: Vec<Bytes>,
    bytes: usize,
    /// The keys of the segments that hold them.
    keys: Vec<String>,
}

impl Recent {
    /// Adds the entries of a segment. If they do not follow those before, or there are too many, those are forgotten.
    pub fn add(&mut self, key: String, first: u64, entries: Vec<Bytes>) {
        let next = self.first.saturating_add(self.entries.len() as u64);
        if first != next || self.bytes >= BYTES_MAX {
            *self = Self { first, ..Self::default() };
        }
        self.bytes = entries.iter().map(Bytes::len).fold(self.bytes, usize::saturating_add);
        self.entries.extend(entries);
        self.keys.push(key);
    }

    /// Whether there is so much that it should be merged now.
    pub fn is_full(&self) -> bool {
        self.bytes >= SEGMENT_BYTES
    }

    /// Takes everything, if it is in more than one segment: the first number, the entries, and the keys of the
    /// segments.
    pub fn take(&mut self) -> Option<(u64, Vec<Bytes>, Vec<String>)> {
        let Self { first, entries, keys, .. } = std::mem::take(self);
        (keys.len() > 1).then_some((first, entries, keys))
    }
}
