//! Frames: batches of records, each written by one call and verified as a whole.
//!
//! A frame is a header of 64 bytes and a body, plain or LZ4. Its CRC32C covers both and begins with the segment's
//! epoch, so that a frame left over from an earlier use of a recycled file is never mistaken for a frame of this
//! segment.

use bytes::{Buf, BufMut, Bytes};

use quorate_env::mutant::Mutant;

use crate::options::MAX_BODY_BYTES;

/// Length of a frame's header.
pub(crate) const FRAME_HEADER: usize = 64;
/// The offset of the checksum in a header. It covers the bytes before it, and the body.
const CRC_AT: usize = 60;
/// `QFRM`.
pub(crate) const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"QFRM");
/// The format of frames.
const FRAME_VERSION: u8 = 1;

/// The body is LZ4.
const FLAG_PACKED: u8 = 1;
/// Written by recovery, before the header of its segment.
const FLAG_COPIED: u8 = 2;

/// The maximum ratio of unpacked to packed length; LZ4 can't exceed it.
const MAX_RATIO: usize = 256;

/// One use of a segment file: its number in the log, and a random nonce that can't be predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEpoch {
    pub(crate) ordinal: u32,
    pub(crate) nonce: u32,
}

impl SegmentEpoch {
    /// CRC32C over this epoch, then over `parts`.
    pub(crate) fn checksum(self, parts: &[&[u8]]) -> u32 {
        let mut seed = [0; 8];
        let mut out = &mut seed[..];
        out.put_u32_le(self.ordinal);
        out.put_u32_le(self.nonce);
        parts.iter().fold(crc32c::crc32c(&seed), |crc, part| crc32c::crc32c_append(crc, part))
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) packed: bool,
    pub(crate) copied: bool,
    pub(crate) epoch: SegmentEpoch,
    /// The frame's number in the log, counted across all segments.
    pub(crate) sequence: u64,
    /// The highest sequence that was known to be durable when this frame was made.
    pub(crate) durable: u64,
    /// Number of records.
    pub(crate) count: u32,
    /// Length of the body as stored.
    pub(crate) stored: u32,
    /// Length of the body when unpacked.
    pub(crate) raw: u32,
}

impl FrameHeader {
    /// The header's bytes, for a body as stored.
    pub(crate) fn encode(&self, body: &[u8]) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        let mut out = &mut bytes[..];
        out.put_u32_le(FRAME_MAGIC);
        out.put_u8(FRAME_VERSION);
        out.put_u8(u8::from(self.packed) * FLAG_PACKED + u8::from(self.copied) * FLAG_COPIED);
        out.put_u16_le(0);
        out.put_u32_le(self.epoch.ordinal);
        out.put_u32_le(self.epoch.nonce);
        out.put_u64_le(self.sequence);
        out.put_u64_le(self.durable);
        out.put_u32_le(self.count);
        out.put_u32_le(self.stored);
        out.put_u32_le(self.raw);
        let (covered, tail) = bytes.split_at_mut(CRC_AT);
        tail.copy_from_slice(&self.epoch.checksum(&[covered, body]).to_le_bytes());
        bytes
    }

    /// Parses a header without verifying its checksum. Returns `None` if the bytes can't be a header.
    pub(crate) fn decode(mut input: &[u8]) -> Option<Self> {
        if input.try_get_u32_le().ok()? != FRAME_MAGIC || input.try_get_u8().ok()? != FRAME_VERSION {
            return None;
        }
        let flags = input.try_get_u8().ok()?;
        if flags & !(FLAG_PACKED | FLAG_COPIED) != 0 || input.try_get_u16_le().ok()? != 0 {
            return None;
        }
        let header = Self {
            packed: flags & FLAG_PACKED != 0,
            copied: flags & FLAG_COPIED != 0,
            epoch: SegmentEpoch { ordinal: input.try_get_u32_le().ok()?, nonce: input.try_get_u32_le().ok()? },
            sequence: input.try_get_u64_le().ok()?,
            durable: input.try_get_u64_le().ok()?,
            count: input.try_get_u32_le().ok()?,
            stored: input.try_get_u32_le().ok()?,
            raw: input.try_get_u32_le().ok()?,
        };
        (header.stored() <= MAX_BODY_BYTES && header.raw() <= MAX_BODY_BYTES).then_some(header)
    }

    /// The length of the frame without padding.
    pub(crate) fn len(&self) -> usize {
        FRAME_HEADER + self.stored()
    }

    pub(crate) fn stored(&self) -> usize {
        usize::try_from(self.stored).unwrap_or(usize::MAX)
    }

    pub(crate) fn raw(&self) -> usize {
        usize::try_from(self.raw).unwrap_or(usize::MAX)
    }
}

/// A frame whose checksum is right.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) header: FrameHeader,
    /// The body as stored.
    pub(crate) stored: Bytes,
}

impl Frame {
    /// Verifies the frame at the start of `bytes`. Returns `None` if there is no valid frame.
    pub(crate) fn verify(bytes: &Bytes) -> Option<Self> {
        let header = FrameHeader::decode(bytes)?;
        let covered = bytes.get(..CRC_AT)?;
        let crc = bytes.get(CRC_AT..FRAME_HEADER)?;
        let body = bytes.get(FRAME_HEADER..header.len())?;
        let is_whole = header.epoch.checksum(&[covered, body]).to_le_bytes() == crc;
        if !is_whole && !Mutant::TornFrameAccepted.is_on() {
            return None;
        }
        Some(Self { header, stored: bytes.slice(FRAME_HEADER..header.len()) })
    }

    /// The unpacked body, or `None` if it can't be unpacked.
    pub(crate) fn body(&self) -> Option<Bytes> {
        if !self.header.packed {
            return Some(self.stored.clone());
        }
        if self.header.raw() > self.stored.len().saturating_mul(MAX_RATIO) {
            return None;
        }
        let mut raw = vec![0; self.header.raw()];
        let len = lz4_flex::block::decompress_into(&self.stored, &mut raw).ok()?;
        (len == raw.len()).then(|| raw.into())
    }
}
