//! A file that arrives in pieces, for readers that can't wait for the next one.
//!
//! Invariant: a reader that reads a page only when [`Feed::has_page`] says so never meets the end of what has arrived.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use bytes::{Buf, BufMut, BytesMut};
use quorate_env::lock;

use crate::ltx::frame::{BLOCK_BYTES_MAX, END_OF_PAGES, FRAME_HEADER_BYTES};
use crate::ltx::header::HEADER_BYTES;

/// The source of a [`Reader`](crate::ltx::Reader). Clones are the same feed.
#[derive(Clone, Default)]
pub(crate) struct Feed(Arc<Mutex<Arrived>>);

#[derive(Default)]
struct Arrived {
    /// The bytes that the reader has not read yet.
    bytes: BytesMut,
    is_whole: bool,
}

impl Feed {
    /// Appends a piece.
    pub fn push(&self, bytes: &[u8]) {
        lock(&self.0).bytes.put_slice(bytes);
    }

    /// Says that no piece follows.
    pub fn end(&self) {
        lock(&self.0).is_whole = true;
    }

    /// Whether the header can be read.
    pub fn has_header(&self) -> bool {
        let arrived = lock(&self.0);
        arrived.is_whole || arrived.bytes.len() >= HEADER_BYTES
    }

    /// Whether the next page, or the end of the file, can be read.
    pub fn has_page(&self) -> bool {
        let arrived = lock(&self.0);
        if arrived.is_whole {
            return true;
        }
        let mut rest: &[u8] = &arrived.bytes;
        let Some(header) = rest.first_chunk::<FRAME_HEADER_BYTES>() else { return false };
        // All of the index is read at once. A legacy page does not say how long it is.
        if *header == END_OF_PAGES || header.ends_with(&[0, 0]) {
            return false;
        }
        rest.advance(FRAME_HEADER_BYTES);
        // A length that can't be true is left to the reader.
        rest.try_get_u32().is_ok_and(|length| length > BLOCK_BYTES_MAX || rest.len() >= length as usize)
    }
}

impl Read for Feed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut arrived = lock(&self.0);
        let length = out.len().min(arrived.bytes.len());
        let bytes = arrived.bytes.split_to(length);
        out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Ok(length)
    }
}
