//! Frames: a length, a kind and a checksum, followed by the content.
//!
//! Invariants:
//! - The memory of a reader grows with the bytes that arrived, never with an announced length.
//! - A frame above the reader's limit is refused before any of its content is stored.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::LinkError;
use crate::limits::READ_CHUNK;

/// The length of a frame's header: length (4), kind (1), CRC32C (4).
pub(crate) const HEADER_LEN: usize = 9;

/// Appends a frame without its body, which the caller appends after it. The content is what `head` writes, then `body`.
pub(crate) fn put_frame(out: &mut BytesMut, kind: u8, head: impl FnOnce(&mut BytesMut), body: &[u8]) {
    let start = out.len();
    out.put_bytes(0, HEADER_LEN);
    head(out);
    let (mut header, head) = out.get_mut(start..).unwrap_or_default().split_at_mut(HEADER_LEN);
    // The length always fits: bodies were checked against 32-bit limits.
    let len = u32::try_from(head.len().saturating_add(body.len())).unwrap_or(u32::MAX);
    let crc = crc32c::crc32c_append(checksum_start(len, kind, head), body);
    header.put_u32_le(len);
    header.put_u8(kind);
    header.put_u32_le(crc);
}

/// Returns a complete frame in a buffer of its own.
pub(crate) fn whole_frame(kind: u8, body: &[u8]) -> BytesMut {
    let mut out = BytesMut::with_capacity(HEADER_LEN + body.len());
    put_frame(&mut out, kind, |_| {}, body);
    out.put_slice(body);
    out
}

/// Returns the CRC32C over length, kind, and the start of the content.
fn checksum_start(len: u32, kind: u8, content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&len.to_le_bytes()), &[kind]), content)
}

/// Splits a stream of bytes into frames.
pub(crate) struct FrameReader<R> {
    source: R,
    buffer: BytesMut,
    content_max: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Creates a reader of frames whose content has at most `content_max` bytes.
    pub(crate) fn new(source: R, content_max: usize) -> Self {
        Self { source, buffer: BytesMut::new(), content_max }
    }

    /// Changes the limit for the frames that follow.
    pub(crate) fn set_content_max(&mut self, content_max: usize) {
        self.content_max = content_max;
    }

    /// Returns the kind and content of the next frame; `None` if the stream ended between two frames.
    pub(crate) async fn next(&mut self) -> Result<Option<(u8, Bytes)>, LinkError> {
        loop {
            if let Some(frame) = self.parse()? {
                return Ok(Some(frame));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Returns the next frame if it has arrived completely.
    pub(crate) fn parse(&mut self) -> Result<Option<(u8, Bytes)>, LinkError> {
        let Some((mut header, _)) = self.buffer.split_at_checked(HEADER_LEN) else { return Ok(None) };
        let (len, kind, crc) = (header.get_u32_le(), header.get_u8(), header.get_u32_le());
        let content_len = self.checked_len(len)?;
        if self.buffer.len() < HEADER_LEN + content_len {
            return Ok(None);
        }
        self.buffer.advance(HEADER_LEN);
        let content = self.buffer.split_to(content_len).freeze();
        if checksum_start(len, kind, &content) != crc {
            return Err(LinkError::Checksum);
        }
        Ok(Some((kind, content)))
    }

    /// Reads the bytes that are available and waits for at least one. Returns false at the end of the stream; an end in
    /// the middle of a frame is an error. Cancel-safe.
    pub(crate) async fn fill(&mut self) -> Result<bool, LinkError> {
        let missing = match self.buffer.split_at_checked(HEADER_LEN) {
            Some((mut header, _)) => HEADER_LEN + self.checked_len(header.get_u32_le())?,
            None => HEADER_LEN,
        };
        let missing = missing.saturating_sub(self.buffer.len());
        // The buffer grows only when it is nearly full, because growing may double it.
        if self.buffer.capacity() - self.buffer.len() < missing.clamp(1, READ_CHUNK) {
            self.buffer.reserve(missing.min(self.buffer.len()).max(READ_CHUNK));
        }
        if self.source.read_buf(&mut self.buffer).await? > 0 {
            return Ok(true);
        }
        if self.buffer.is_empty() { Ok(false) } else { Err(LinkError::Truncated) }
    }

    fn checked_len(&self, len: u32) -> Result<usize, LinkError> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > self.content_max { Err(LinkError::TooLarge { len, max: self.content_max }) } else { Ok(len) }
    }

    /// Returns the allocated size of the buffer.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

#[cfg(test)]
mod tests;
