//! Writes a file from front to back.
//!
//! Invariants:
//! - What the format forbids is never written: [`Writer::write_page`] refuses the page, and the file can go on without
//!   it.
//! - Memory is bounded by one page and the index.

use std::io::Write;

use crate::ltx::checksum::Checksum;
use crate::ltx::error::{Fault, Result};
use crate::ltx::frame::{END_OF_PAGES, Encoder};
use crate::ltx::header::Header;
use crate::ltx::index::{Entry, IndexBuilder};
use crate::ltx::order::PageOrder;
use crate::ltx::stream::Sink;

/// Stands for the checksum of the database in the trailer.
const NO_CHECKSUM: u64 = 0;

/// What is known of a whole file after it was written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The checksum in the trailer. It covers all of the file.
    pub checksum: Checksum,
    /// The length of the file in bytes.
    pub length: u64,
    /// The number of pages in the file.
    pub pages: u32,
}

/// Writes a file into a sink.
///
/// The sink gets a few bytes at a time at the beginning and the end, and a page at a time in between.
pub struct Writer<W> {
    sink: Sink<W>,
    header: Header,
    order: PageOrder,
    index: IndexBuilder,
    encoder: Encoder,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub fn new(sink: W, header: Header) -> Result<Self> {
        let mut sink = Sink::new(sink);
        sink.write_hashed(&header.encode())?;
        let order = PageOrder::new(&header);
        Ok(Self { sink, header, order, index: IndexBuilder::new(), encoder: Encoder::new() })
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Appends a page.
    ///
    /// Fails with [`Error::Refused`](crate::ltx::Error::Refused), and appends nothing, if the format forbids the page:
    /// if its number is not above that of the page before, if it is the lock page or beyond the end of the database, if
    /// its length is not the page size, or if a snapshot would lack the page before it.
    pub fn write_page(&mut self, number: u32, page: &[u8]) -> Result<()> {
        let expected = self.header.page_size.len();
        if page.len() != expected {
            return Err(Fault::PageLength { number, length: page.len(), expected }.into());
        }
        self.order.admit(number)?;
        let offset = self.sink.offset;
        let length = self.encoder.write(&mut self.sink, number, page)?;
        self.index.add(Entry { number, length, offset });
        Ok(())
    }

    /// Ends the file and flushes the sink, which is returned too. A snapshot must have all pages of the database.
    pub fn finish(self) -> Result<(W, Summary)> {
        let Self { mut sink, order, index, .. } = self;
        order.end()?;
        sink.write_hashed(&END_OF_PAGES)?;
        let pages = index.pages();
        sink.write_hashed(&index.finish())?;
        sink.write_hashed(&NO_CHECKSUM.to_be_bytes())?;
        let checksum = sink.crc.value();
        sink.write(&checksum.to_u64().to_be_bytes())?;
        let length = sink.offset;
        Ok((sink.finish()?, Summary { checksum, length, pages }))
    }
}
