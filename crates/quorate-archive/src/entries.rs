//! Segments: objects that hold consecutive entries of a log (docs/archive-format.md).
//!
//! Invariants:
//! - Entries that were read are those that were written: a segment that was changed or cut is an error.
//! - No bytes make a reader panic, or allocate more than [`SEGMENT_BYTES_MAX`] at once.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"QRTENTR1";

/// The bytes of entries after which a segment is not extended.
pub const SEGMENT_BYTES: usize = 16 << 20;

/// The most bytes of entries in a segment: one entry may exceed [`SEGMENT_BYTES`], but not this.
pub const SEGMENT_BYTES_MAX: usize = 128 << 20;

/// The magic (8), the cluster (16), the epoch (8), the first and the last entry (8 each), the length of the entries
/// (8).
const HEADER_BYTES: usize = 56;

/// The length of the checksum at the end.
const SUM_BYTES: usize = 8;

/// The compression level of zstd: fast.
const ZSTD_LEVEL: i32 = 1;

/// Consecutive entries of one epoch of a cluster. An entry is a run of bytes here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The cluster.
    pub cluster: u128,
    /// Its epoch.
    pub epoch: u64,
    /// The number of the first entry.
    pub first: u64,
    /// The entries, at least one.
    pub entries: Vec<Bytes>,
}

/// Why bytes are not a segment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// They do not begin with the magic.
    #[error("it does not begin with '{}'", String::from_utf8_lossy(&MAGIC))]
    Magic,
    /// They end too early, or go on after the end.
    #[error("its length is wrong")]
    Length,
    /// The checksum is wrong.
    #[error("its checksum is wrong")]
    Checksum,
    /// It has no entries, or more than it may have.
    #[error("it has {0} bytes of entries; at least 4 and at most {SEGMENT_BYTES_MAX} are possible")]
    Size(u64),
    /// The entries can't be compressed or decompressed.
    #[error("zstd: {0}")]
    Zstd(#[from] std::io::Error),
}

impl SegmentError {
    /// Returns `false`: the same bytes have the same fault.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

impl Segment {
    /// Returns the number of the last entry.
    pub fn last(&self) -> u64 {
        self.first.saturating_add((self.entries.len() as u64).saturating_sub(1))
    }

    /// Encodes the segment. May take a while, as it compresses.
    ///
    /// # Errors
    ///
    /// Returns [`SegmentError::Size`] if there are no entries, or too many.
    pub fn encode(&self) -> Result<Bytes, SegmentError> {
        let sizes = self.entries.iter().map(|entry| entry.len().saturating_add(size_of::<u32>()));
        let length = sizes.fold(0, usize::saturating_add);
        if self.entries.is_empty() || length > SEGMENT_BYTES_MAX {
            return Err(SegmentError::Size(length as u64));
        }
        let mut raw = Vec::with_capacity(length);
        for entry in &self.entries {
            // The length of all entries, which was checked, fits.
            raw.put_u32(entry.len() as u32);
            raw.put_slice(entry);
        }
        let packed = zstd::bulk::compress(&raw, ZSTD_LEVEL)?;
        let mut out = BytesMut::with_capacity(HEADER_BYTES.saturating_add(packed.len()).saturating_add(SUM_BYTES));
        out.put_slice(&MAGIC);
        out.put_u128(self.cluster);
        out.put_u64(self.epoch);
        out.put_u64(self.first);
        out.put_u64(self.last());
        out.put_u64(length as u64);
        out.put_slice(&packed);
        let sum = xxh3_64(&out);
        out.put_u64(sum);
        Ok(out.freeze())
    }

    /// Decodes a segment. May take a while, as it decompresses.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        let Some((body, mut sum)) = bytes.split_at_checked(bytes.len().saturating_sub(SUM_BYTES)) else {
            return Err(SegmentError::Length);
        };
        let Some((mut header, packed)) = body.split_at_checked(HEADER_BYTES) else { return Err(SegmentError::Length) };
        if !header.starts_with(&MAGIC) {
            return Err(SegmentError::Magic);
        }
        if sum.try_get_u64() != Ok(xxh3_64(body)) {
            return Err(SegmentError::Checksum);
        }
        header.advance(MAGIC.len());
        let (cluster, epoch) = (header.get_u128(), header.get_u64());
        let (first, last, length) = (header.get_u64(), header.get_u64(), header.get_u64());
        let capacity = usize::try_from(length).ok().filter(|length| *length <= SEGMENT_BYTES_MAX);
        let raw = zstd::bulk::decompress(packed, capacity.ok_or(SegmentError::Size(length))?)?;
        let entries = split(raw.into()).ok_or(SegmentError::Length)?;
        let segment = Self { cluster, epoch, first, entries };
        let is_whole = !segment.entries.is_empty() && segment.last() == last;
        if is_whole { Ok(segment) } else { Err(SegmentError::Length) }
    }
}

/// Splits the bytes of all entries; `None` if they end within one.
fn split(mut raw: Bytes) -> Option<Vec<Bytes>> {
    let mut entries = Vec::new();
    while raw.has_remaining() {
        let length = raw.try_get_u32().ok()? as usize;
        if length > raw.len() {
            return None;
        }
        entries.push(raw.split_to(length));
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    fn segments() -> impl Strategy<Value = Segment> {
        let entries = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..40);
        (any::<u128>(), any::<u64>(), 0..u64::MAX / 2, entries).prop_map(|(cluster, epoch, first, entries)| Segment {
            cluster,
            epoch,
            first,
            entries: entries.into_iter().map(Bytes::from).collect(),
        })
    }

    proptest! {
        #[test]
        fn a_decoded_segment_is_the_encoded_one(segment in segments()) {
            prop_assert_eq!(Segment::decode(&segment.encode().unwrap()).unwrap(), segment);
        }

        #[test]
        fn any_change_of_the_bytes_is_found(segment in segments(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = segment.encode().unwrap().to_vec();
            let at = at.index(bytes.len());
            prop_assert!(Segment::decode(&bytes[..at]).is_err());
            bytes[at] ^= 1 << bit;
            prop_assert!(Segment::decode(&bytes).is_err());
        }

        #[test]
        fn no_bytes_make_decoding_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), is_sealed: bool) {
            if is_sealed {
                bytes.splice(0..0, MAGIC);
                let sum = xxh3_64(&bytes);
                bytes.extend(sum.to_be_bytes());
            }
            let _ = Segment::decode(&bytes);
        }
    }
}
