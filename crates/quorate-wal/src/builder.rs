//! Building of frames: encodes records into the bytes to write.

use crate::frame::{FRAME_HEADER, FrameHeader, SegmentEpoch};
use crate::options::{LARGE_RECORD_BYTES, PACK_FROM_BYTES};
use crate::record::{RECORD_HEADER, Record};

/// Buffers are shrunk to this length after use.
const KEEP_BUFFER_BYTES: usize = 4 << 20;

/// A frame under construction. Its buffers are reused for the next frame.
#[derive(Debug, Default)]
pub(crate) struct FrameBuilder {
    /// Space for the header, then the records.
    raw: Vec<u8>,
    /// Space for the header, then the packed body.
    packed: Vec<u8>,
    count: u32,
    /// Total size of the records that are small enough to be worth packing.
    small_bytes: usize,
    is_packed: bool,
}

impl FrameBuilder {
    pub(crate) fn clear(&mut self) {
        for buffer in [&mut self.raw, &mut self.packed] {
            buffer.clear();
            buffer.shrink_to(KEEP_BUFFER_BYTES);
        }
        self.raw.resize(FRAME_HEADER, 0);
        (self.count, self.small_bytes, self.is_packed) = (0, 0, false);
    }

    /// Adds a record and returns the offset of its bytes in the unpacked body.
    pub(crate) fn push(&mut self, record: &Record<'_>) -> u32 {
        let at = self.raw.len() - FRAME_HEADER + RECORD_HEADER;
        record.encode(&mut self.raw);
        self.count = self.count.saturating_add(1);
        if record.bytes.len() < LARGE_RECORD_BYTES {
            self.small_bytes += RECORD_HEADER + record.bytes.len();
        }
        // The limits on batches and entries keep the body below 4 GiB.
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Packs the body if that saves at least a tenth, and returns the length of the frame. No record may be added after
    /// this call.
    pub(crate) fn pack(&mut self) -> u64 {
        let body = self.raw.get(FRAME_HEADER..).unwrap_or_default();
        if body.len() >= PACK_FROM_BYTES && self.small_bytes > body.len() / 2 {
            self.packed.resize(FRAME_HEADER + lz4_flex::block::get_maximum_output_size(body.len()), 0);
            let room = self.packed.get_mut(FRAME_HEADER..).unwrap_or_default();
            if let Ok(len) = lz4_flex::block::compress_into(body, room)
                && len < body.len() - body.len() / 10
            {
                self.packed.truncate(FRAME_HEADER + len);
                self.is_packed = true;
            }
        }
        self.buffer().len() as u64
    }

    /// Writes the header and returns the finished frame, padded with zeros to `span` bytes.
    pub(crate) fn seal(&mut self, epoch: SegmentEpoch, sequence: u64, durable: u64, span: u64) -> &[u8] {
        let length = |buffer: &[u8]| u32::try_from(buffer.len().saturating_sub(FRAME_HEADER)).unwrap_or(u32::MAX);
        let header = FrameHeader {
            packed: self.is_packed,
            copied: false,
            epoch,
            sequence,
            durable,
            count: self.count,
            stored: length(self.buffer()),
            raw: length(&self.raw),
        };
        let buffer = if self.is_packed { &mut self.packed } else { &mut self.raw };
        let head = header.encode(buffer.get(FRAME_HEADER..).unwrap_or_default());
        if let Some(place) = buffer.first_chunk_mut() {
            *place = head;
        }
        buffer.resize(usize::try_from(span).unwrap_or(usize::MAX), 0);
        buffer
    }

    fn buffer(&self) -> &[u8] {
        if self.is_packed { &self.packed } else { &self.raw }
    }
}
