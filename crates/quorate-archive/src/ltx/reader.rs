//! Reads a file from front to back.
//!
//! Invariants:
//! - No bytes make a reader panic, or allocate more than a page, a compressed page, and the index of the pages that it
//!   has read.
//! - A reader says that the pages have ended only once the index and the checksum of the whole file were verified.

use std::io::Read;

use crate::ltx::checksum::{Checksum, Running};
use crate::ltx::error::{Error, Fault, Result};
use crate::ltx::frame::{FRAME_BYTES_MAX, FrameHeader};
use crate::ltx::header::Header;
use crate::ltx::index::{Entry, IndexBuilder};
use crate::ltx::order::PageOrder;
use crate::ltx::stream::Source;
use crate::ltx::writer::Summary;

/// Reads a file from a source.
///
/// Each page takes three reads, so a source that is slow for small reads belongs into a [`std::io::BufReader`].
pub struct Reader<R> {
    source: Source<R>,
    header: Header,
    order: PageOrder,
    index: IndexBuilder,
    page: Vec<u8>,
    /// The compressed page.
    block: Vec<u8>,
    state: State,
}

/// Where a reader is in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    pub header: Header,
    /// The checksum of the bytes that the reader has read.
    pub crc: u64,
    /// The entries of the index for the pages that were read, in their encoded form.
    pub index: Vec<u8>,
}

impl Stand {
    /// Returns the offset in the file; 0 if the entries can't be read.
    pub fn offset(&self) -> u64 {
        IndexBuilder::resume(&self.index, &mut PageOrder::new(&self.header)).map_or(0, |(_, offset)| offset)
    }
}

#[derive(Clone, Copy)]
enum State {
    /// There may be more pages.
    Pages,
    /// The file was read and verified.
    Whole(Summary),
    /// An error was returned.
    Failed,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(source: R) -> Result<Self> {
        let mut source = Source::new(source);
        let header = Header::decode(&source.take_hashed()?).map_err(|fault| source.damaged(fault))?;
        let (order, page) = (PageOrder::new(&header), vec![0; header.page_size.len()]);
        Ok(Self { source, header, order, index: IndexBuilder::new(), page, block: Vec::new(), state: State::Pages })
    }

    /// Goes on where another reader of the same file was. Returns the offset too from which the source must have it.
    pub(crate) fn resume(source: R, stand: &Stand) -> Result<(Self, u64), Fault> {
        let header = stand.header.clone();
        let mut order = PageOrder::new(&header);
        let (index, offset) = IndexBuilder::resume(&stand.index, &mut order)?;
        let source = Source::resume(offset, Running::resume(stand.crc), source);
        let page = vec![0; header.page_size.len()];
        Ok((Self { source, header, order, index, page, block: Vec::new(), state: State::Pages }, offset))
    }

    /// Returns where the reader is, after a page or the header.
    pub(crate) fn stand(&self) -> Stand {
        Stand { header: self.header.clone(), crc: self.source.crc.state(), index: self.index.bytes().to_vec() }
    }

    /// Returns the header, which the checksum of the file covers too: it is verified only at the end.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads the next page: its number and its content. `None` means that the file has ended and is whole.
    ///
    /// A file has one checksum for all of its pages, at its end. After an error the caller must therefore discard the
    /// pages that it got before.
    pub fn next_page(&mut self) -> Result<Option<(u32, &[u8])>> {
        let number = self.advance()?;
        Ok(number.map(|number| (number, self.page())))
    }

    /// Reads and verifies the rest of the file.
    pub fn finish(mut self) -> Result<Summary> {
        while self.advance()?.is_some() {}
        match self.state {
            State::Whole(summary) => Ok(summary),
            State::Pages | State::Failed => Err(Error::Abandoned),
        }
    }

    /// Reads the next page into the buffer and returns its number.
    pub(crate) fn advance(&mut self) -> Result<Option<u32>> {
        match self.state {
            State::Whole(_) => return Ok(None),
            State::Failed => return Err(Error::Abandoned),
            State::Pages => self.state = State::Failed,
        }
        let number = self.read_page()?;
        self.state = match number {
            Some(_) => State::Pages,
            None => State::Whole(self.read_end()?),
        };
        Ok(number)
    }

    /// Returns the content of the page that [`Reader::advance`] has read.
    pub(crate) fn page(&self) -> &[u8] {
        &self.page
    }

    fn read_page(&mut self) -> Result<Option<u32>> {
        let offset = self.source.offset;
        let Some(frame) = FrameHeader::read(&mut self.source)? else { return Ok(None) };
        self.order.admit(frame.number).map_err(|fault| self.source.damaged(fault))?;
        frame.read_page(&mut self.source, &mut self.page, &mut self.block)?;
        let length = u32::try_from(self.source.offset.saturating_sub(offset)).unwrap_or(FRAME_BYTES_MAX);
        self.index.add(Entry { number: frame.number, length, offset });
        Ok(Some(frame.number))
    }

    /// Reads what follows the pages. The index must be the one of the pages that were read, so it is compared piece by
    /// piece, and never allocated by a length that the file announces.
    fn read_end(&mut self) -> Result<Summary> {
        self.order.end().map_err(|fault| self.source.damaged(fault))?;
        let pages = self.index.pages();
        let expected = std::mem::replace(&mut self.index, IndexBuilder::new()).finish();
        for expected in expected.chunks(self.page.len()) {
            let found = self.page.get_mut(..expected.len()).unwrap_or_default();
            self.source.fill_hashed(found)?;
            if found != expected {
                return Err(self.source.damaged(Fault::Index));
            }
        }
        let database = u64::from_be_bytes(self.source.take_hashed()?);
        if database != 0 {
            return Err(self.source.damaged(Fault::DatabaseChecksum(database)));
        }
        let computed = self.source.crc.value();
        let mut stored = [0; 8];
        self.source.fill(&mut stored)?;
        let stored = u64::from_be_bytes(stored);
        if Checksum::from_u64(stored) != Some(computed) {
            return Err(self.source.damaged(Fault::FileChecksum { stored, computed }));
        }
        let length = self.source.offset;
        self.source.end()?;
        Ok(Summary { checksum: computed, length, pages })
    }
}
