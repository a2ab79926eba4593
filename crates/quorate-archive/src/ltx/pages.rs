//! Reads single pages of a file by its index, for example with ranged reads of an object.
//!
//! Invariant: a length that the file announces is believed only if the file is that long.

use std::io;

use crate::ltx::error::{Error, Fault, Result};
use crate::ltx::frame::FrameHeader;
use crate::ltx::header::{HEADER_BYTES, Header};
use crate::ltx::index::Index;
use crate::ltx::stream::Source;

/// A file or an object of which any part can be read.
pub trait ReadAt {
    /// Returns the length in bytes.
    fn length(&self) -> u64;

    /// Reads exactly `bytes.len()` bytes from an offset on. Fails with [`io::ErrorKind::UnexpectedEof`] if there are
    /// fewer.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl<B: AsRef<[u8]>> ReadAt for B {
    fn length(&self) -> u64 {
        self.as_ref().len() as u64
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.as_ref().get(offset..));
        rest.unwrap_or_default().split_at_checked(bytes.len()).map_or_else(
            || Err(io::ErrorKind::UnexpectedEof.into()),
            |(found, _)| {
                bytes.copy_from_slice(found);
                Ok(())
            },
        )
    }
}

/// The length of the index (8), the checksum of the database (8), and that of the file (8).
const END_BYTES: u64 = 24;
/// The end of a file that is read at once. The index of 3,000 pages fits in, so most files take two reads to open.
const TAIL_BYTES: u64 = 32 << 10;

/// The pages of a file, in any order.
///
/// The checksum of a file covers the whole of it. So damage to a page is noticed only where it breaks the compression:
/// to be sure, compare [`Checksum::of_page`](crate::ltx::Checksum::of_page) with a checksum from elsewhere, or read the
/// file by a [`Reader`](crate::ltx::Reader).
pub struct Pages<S> {
    source: S,
    header: Header,
    index: Index,
}

impl<S: ReadAt> Pages<S> {
    /// Reads the header and the index.
    pub fn open(source: S) -> Result<Self> {
        let mut bytes = [0; HEADER_BYTES];
        source.read_exact_at(&mut bytes, 0).map_err(Error::read(0))?;
        let header = Header::decode(&bytes).map_err(|fault| Error::damaged(HEADER_BYTES as u64, fault))?;
        let index = read_index(&source, &header)?;
        Ok(Self { source, header, index })
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Reads one page, by one read of the source. Returns `None` if the file does not have the page.
    pub fn read(&self, number: u32) -> Result<Option<Vec<u8>>> {
        let Some(entry) = self.index.find(number) else { return Ok(None) };
        let mut frame = vec![0; entry.length as usize];
        self.source.read_exact_at(&mut frame, entry.offset).map_err(Error::read(entry.offset))?;
        let mut source = Source::starting_at(entry.offset, frame.as_slice());
        let header = FrameHeader::read(&mut source)?.filter(|header| header.number == number);
        let Some(header) = header else { return Err(source.damaged(Fault::Index)) };
        let mut page = vec![0; self.header.page_size.len()];
        header.read_page(&mut source, &mut page, &mut Vec::new())?;
        source.end()?;
        Ok(Some(page))
    }
}

fn read_index(source: &impl ReadAt, header: &Header) -> Result<Index> {
    let length = source.length();
    let too_short = || Error::damaged(length, Fault::Truncated);
    let tail = read_range(source, length.saturating_sub(TAIL_BYTES)..length)?;
    let (rest, end) = tail.split_last_chunk::<{ END_BYTES as usize }>().ok_or_else(too_short)?;
    let index_length = end.first_chunk().map_or(0, |length| u64::from_be_bytes(*length));
    let index_end = length - END_BYTES;
    let start = index_end.checked_sub(index_length).ok_or_else(too_short)?;
    let decode = |bytes: &[u8]| Index::decode(header, bytes, start).map_err(|fault| Error::damaged(index_end, fault));
    match rest.len().checked_sub(usize::try_from(index_length).unwrap_or(usize::MAX)) {
        Some(before) => decode(rest.get(before..).unwrap_or_default()),
        None => decode(&read_range(source, start..index_end)?),
    }
}

/// Reads a part of the source, which is no longer than the source itself.
fn read_range(source: &impl ReadAt, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
    let length = usize::try_from(range.end - range.start).map_err(|_| Error::damaged(range.end, Fault::Index))?;
    let mut bytes = vec![0; length];
    source.read_exact_at(&mut bytes, range.start).map_err(Error::read(range.start))?;
    Ok(bytes)
}
