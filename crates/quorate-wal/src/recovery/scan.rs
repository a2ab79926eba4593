//! Scanning: reads a segment file through a window that holds part of it.
//!
//! Invariant: memory holds at most one window, or one frame or header if that is longer.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::disk::File;
use quorate_env::mutant::Mutant;

use crate::frame::{FRAME_HEADER, FRAME_MAGIC, Frame, FrameHeader, SegmentEpoch};
use crate::options::{FRAME_ALIGN, PAGE};

/// The number of bytes read at a time.
const CHUNK: usize = 4 << 20;

/// A file, and the part of it that is in memory.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn File>,
    len: u64,
    start: u64,
    chunk: Bytes,
}

/// The contents after the last frame of a log.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The highest sequence that a frame there records as durable.
    pub(super) max_durable: u64,
    /// There is at least the header of a frame of this segment.
    pub(super) has_remains: bool,
    /// There is a whole frame that is not a copy made by recovery.
    pub(super) has_originals: bool,
}

impl Window {
    pub(super) fn new(file: Arc<dyn File>, len: u64) -> Self {
        Self { file, len, start: 0, chunk: Bytes::new() }
    }

    /// The `len` bytes at `offset`, or `None` if the file ends before them.
    pub(super) fn get(&mut self, offset: u64, len: usize) -> io::Result<Option<Bytes>> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Ok(None);
        }
        if let Some(bytes) = self.peek(offset, len) {
            return Ok(Some(bytes));
        }
        let room = usize::try_from(self.len - offset).unwrap_or(usize::MAX);
        let mut chunk = vec![0; CHUNK.max(len).min(room)];
        let read = self.file.read_at(&mut chunk, offset)?;
        chunk.truncate(read);
        (self.start, self.chunk) = (offset, chunk.into());
        Ok(self.peek(offset, len))
    }

    fn peek(&self, offset: u64, len: usize) -> Option<Bytes> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(len)?;
        (to <= self.chunk.len()).then(|| self.chunk.slice(from..to))
    }

    /// The verified frame at `offset`, of any segment.
    fn frame_at(&mut self, offset: u64) -> io::Result<Option<Frame>> {
        let Some(header) = self.get(offset, FRAME_HEADER)?.and_then(|bytes| FrameHeader::decode(&bytes)) else {
            return Ok(None);
        };
        Ok(self.get(offset, header.len())?.and_then(|bytes| Frame::verify(&bytes)))
    }

    /// The frame with this sequence that follows `offset`, and its own offset: the next aligned one or, if a sync came
    /// between, the start of the next page.
    pub(super) fn next_frame(
        &mut self,
        offset: u64,
        epoch: SegmentEpoch,
        sequence: u64,
    ) -> io::Result<Option<(u64, Frame)>> {
        let near = offset.next_multiple_of(FRAME_ALIGN);
        for at in [near, near.next_multiple_of(PAGE)] {
            let frame = self.frame_at(at)?;
            let is_next = |f: &Frame| f.header.epoch == epoch && f.header.sequence == sequence;
            if let Some(frame) = frame.filter(|frame| is_next(frame) || Mutant::StaleFrameAccepted.is_on()) {
                return Ok(Some((at, frame)));
            }
        }
        Ok(None)
    }

    /// Searches everything from `offset` on for frames of this segment.
    pub(super) fn tail(&mut self, offset: u64, ordinal: u32, nonce: Option<u32>) -> io::Result<Tail> {
        let mut tail = Tail::default();
        let mut at = offset.next_multiple_of(FRAME_ALIGN);
        while let Some((found, header)) = self.find_header(at)? {
            at = found + FRAME_ALIGN;
            if header.epoch.ordinal != ordinal || nonce.is_some_and(|nonce| nonce != header.epoch.nonce) {
                continue;
            }
            tail.has_remains = true;
            if let Some(frame) = self.frame_at(found)? {
                tail.max_durable = tail.max_durable.max(frame.header.durable);
                tail.has_originals |= !frame.header.copied;
                at = (found + frame.header.len() as u64).next_multiple_of(FRAME_ALIGN);
            }
        }
        Ok(tail)
    }

    /// The first bytes at or after `at` that look like a frame's header.
    fn find_header(&mut self, at: u64) -> io::Result<Option<(u64, FrameHeader)>> {
        let magic = FRAME_MAGIC.to_le_bytes();
        let mut at = at;
        loop {
            let bytes = self.available(at)?;
            let (words, _) = bytes.as_chunks::<8>();
            if words.is_empty() {
                return Ok(None);
            }
            for (number, _) in words.iter().enumerate().filter(|(_, word)| word.starts_with(&magic)) {
                let found = at + number as u64 * FRAME_ALIGN;
                if let Some(header) = self.get(found, FRAME_HEADER)?.and_then(|bytes| FrameHeader::decode(&bytes)) {
                    return Ok(Some((found, header)));
                }
            }
            at += words.len() as u64 * FRAME_ALIGN;
        }
    }

    /// Some bytes at `offset`: the part of the window that is in memory, or a newly read window.
    fn available(&mut self, offset: u64) -> io::Result<Bytes> {
        let known = offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        if let Some(from) = known.filter(|from| from.saturating_add(FRAME_HEADER) <= self.chunk.len()) {
            return Ok(self.chunk.slice(from..));
        }
        let room = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        Ok(self.get(offset, room.min(CHUNK))?.unwrap_or_default())
    }
}
