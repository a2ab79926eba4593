//! The index at the end of a file: where each page is.
//!
//! Invariant: the entries of an [`Index`] are the frames of the pages from the end of the header on, one right after
//! the other, in ascending order of the pages.

use crate::ltx::error::Fault;
use crate::ltx::frame::{END_OF_PAGES, FRAME_BYTES_MAX};
use crate::ltx::header::{HEADER_BYTES, Header};
use crate::ltx::order::PageOrder;

/// Where the frame of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The page.
    pub number: u32,
    /// The length of the frame in bytes.
    pub length: u32,
    /// The offset of the frame in the file.
    pub offset: u64,
}

impl Entry {
    /// Takes an entry, which must have this offset; `None` at the end of an index.
    fn take(bytes: &mut &[u8], offset: u64) -> Result<Option<Self>, Fault> {
        let number = uvarint(bytes).ok_or(Fault::Index)?;
        if number == 0 {
            return Ok(None);
        }
        let (found, length) = (uvarint(bytes).ok_or(Fault::Index)?, uvarint(bytes).ok_or(Fault::Index)?);
        if found != offset || length > u64::from(FRAME_BYTES_MAX) {
            return Err(Fault::Index);
        }
        let number = u32::try_from(number).map_err(|_| Fault::Index)?;
        // The length is at most FRAME_BYTES_MAX.
        Ok(Some(Self { number, length: length as u32, offset }))
    }
}

/// Where each page of a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    entries: Vec<Entry>,
}

impl Index {
    /// Returns the entries, in the order of the pages.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns where a page is, or `None` if the file does not have it.
    pub fn find(&self, number: u32) -> Option<Entry> {
        let at = self.entries.binary_search_by_key(&number, |entry| entry.number).ok()?;
        self.entries.get(at).copied()
    }

    /// Decodes the entries and the zero after them, which begin at offset `start` of a file.
    pub(crate) fn decode(header: &Header, mut bytes: &[u8], start: u64) -> Result<Self, Fault> {
        let (mut entries, mut order) = (Vec::new(), PageOrder::new(header));
        let mut end = HEADER_BYTES as u64;
        while let Some(entry) = Entry::take(&mut bytes, end)? {
            order.admit(entry.number)?;
            end = end.checked_add(entry.length.into()).ok_or(Fault::Index)?;
            entries.push(entry);
        }
        order.end()?;
        let is_whole = bytes.is_empty() && end.checked_add(END_OF_PAGES.len() as u64) == Some(start);
        if is_whole { Ok(Self { entries }) } else { Err(Fault::Index) }
    }
}

/// The index of a file that is being written or read, in its encoded form, which takes about 10 bytes for each page.
pub(crate) struct IndexBuilder {
    bytes: Vec<u8>,
    pages: u32,
}

impl IndexBuilder {
    pub fn new() -> Self {
        Self { bytes: Vec::new(), pages: 0 }
    }

    /// Returns the encoded entries so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Goes on after these entries; returns the offset that follows the last one, and `order` with their pages.
    pub fn resume(bytes: &[u8], order: &mut PageOrder) -> Result<(Self, u64), Fault> {
        let (mut rest, mut end, mut pages) = (bytes, HEADER_BYTES as u64, 0_u32);
        while !rest.is_empty() {
            let Entry { number, length, .. } = Entry::take(&mut rest, end)?.ok_or(Fault::Index)?;
            order.admit(number)?;
            end = end.checked_add(length.into()).ok_or(Fault::Index)?;
            pages = pages.saturating_add(1);
        }
        Ok((Self { bytes: bytes.to_vec(), pages }, end))
    }

    /// Returns how many pages were added.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    pub fn add(&mut self, entry: Entry) {
        push_uvarint(&mut self.bytes, entry.number.into());
        push_uvarint(&mut self.bytes, entry.offset);
        push_uvarint(&mut self.bytes, entry.length.into());
        self.pages = self.pages.saturating_add(1);
    }

    /// Returns the whole index: the entries, a zero, and the length of both.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0);
        let length = self.bytes.len() as u64;
        self.bytes.extend(length.to_be_bytes());
        self.bytes
    }
}

/// Appends seven bits a byte, the lowest first; all bytes but the last have bit 7 set.
fn push_uvarint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number that [`push_uvarint`] has written.
fn uvarint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7F);
        // The bits of the tenth byte that a number has no room for must be zero.
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            // A zero at the end would be a second way to write the same number.
            return (byte != 0 || shift == 0).then_some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_exactly_one_form() {
        for number in [0, 1, 0x7F, 0x80, 0x3FFF, 0x4000, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            push_uvarint(&mut bytes, number);
            let mut rest = bytes.as_slice();
            assert_eq!((uvarint(&mut rest), rest.len()), (Some(number), 0), "{number}");
            assert_eq!(uvarint(&mut bytes.get(..bytes.len() - 1).unwrap_or_default()), None, "{number} is cut");
        }
        assert_eq!(uvarint(&mut [0x80, 0].as_slice()), None, "two bytes for zero");
        assert_eq!(uvarint(&mut [[0xFF; 9].as_slice(), &[2]].concat().as_slice()), None, "2^64 and more");
        assert_eq!(uvarint(&mut [0x80; 11].as_slice()), None, "more than ten bytes");
    }
}
