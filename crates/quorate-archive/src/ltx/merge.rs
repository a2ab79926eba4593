//! Merges files that follow each other into one.
//!
//! Invariants:
//! - The pages of a merge are those that a database has after the files were applied one after another: the newest
//!   content of each page, and nothing that a later file has cut off.
//! - Memory is bounded by a page and the index of each input.
//! - A merge ends only once all of its inputs were verified.

use std::io::{Read, Write};

use crate::ltx::error::{Error, Result};
use crate::ltx::header::Header;
use crate::ltx::order::PageOrder;
use crate::ltx::reader::Reader;
use crate::ltx::writer::{Summary, Writer};

/// Writes the merge of `inputs` into a sink. On an error, the sink has a part of a file, which must be discarded.
///
/// The inputs are ordered by their transactions, the oldest first, and each continues the one before
/// ([`Txids::continues`](crate::ltx::Txids::continues)).
pub fn merge<R: Read, W: Write>(inputs: Vec<Reader<R>>, sink: W) -> Result<(W, Summary)> {
    let mut merge = Merge::new(inputs)?;
    let mut writer = Writer::new(sink, merge.header().clone())?;
    while let Some((number, page)) = merge.next_page()? {
        writer.write_page(number, page)?;
    }
    writer.finish()
}

/// The merge of some files, page by page. It reads as a [`Reader`] of the merged file would, so a database can be
/// restored from many files without one.
pub struct Merge<R> {
    header: Header,
    order: PageOrder,
    /// From the oldest to the newest.
    inputs: Vec<Input<R>>,
    is_failed: bool,
}

impl<R: Read> Merge<R> {
    /// Checks that the inputs follow each other.
    pub fn new(inputs: Vec<Reader<R>>) -> Result<Self> {
        for (previous, next) in inputs.iter().zip(inputs.iter().skip(1)) {
            let (previous, next) = (previous.header(), next.header());
            if !next.txids.continues(previous.txids) {
                return Err(Error::Gap { previous: previous.txids, next: next.txids });
            }
            if next.page_size != previous.page_size {
                return Err(Error::PageSizes { first: previous.page_size, other: next.page_size });
            }
        }
        let header = header(&inputs)?;
        let mut last = u32::MAX;
        let mut inputs: Vec<_> = inputs
            .into_iter()
            .rev()
            .map(|reader| {
                last = last.min(reader.header().commit.get());
                Input { reader, last, page: Page::Taken }
            })
            .collect();
        inputs.reverse();
        Ok(Self { order: PageOrder::new(&header), header, inputs, is_failed: false })
    }

    /// Returns the header of the merged file: the time and the size of the database are those of the newest input, and
    /// there is no node, because there may have been several.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the next page, as [`Reader::next_page`] does: its number and its content, and `None` once all inputs
    /// have ended and are whole.
    ///
    /// Fails with [`Error::Refused`] if the merge would be a snapshot without one of the pages: then an input lacked a
    /// page by which the database grew.
    pub fn next_page(&mut self) -> Result<Option<(u32, &[u8])>> {
        while let Some(input) = self.wanting() {
            self.advance(input)?;
        }
        self.take_page()
    }

    /// Returns an input of which [`Merge::advance`] must read a page before [`Merge::take_page`].
    pub(crate) fn wanting(&self) -> Option<usize> {
        self.inputs.iter().position(|input| input.page == Page::Taken)
    }

    /// Reads one page, or the end, of an input.
    pub(crate) fn advance(&mut self, input: usize) -> Result<()> {
        if std::mem::replace(&mut self.is_failed, true) {
            return Err(Error::Abandoned);
        }
        self.inputs.get_mut(input).map_or(Ok(()), Input::advance)?;
        self.is_failed = false;
        Ok(())
    }

    /// Returns the next page, once no input is [`wanting`](Merge::wanting).
    pub(crate) fn take_page(&mut self) -> Result<Option<(u32, &[u8])>> {
        if std::mem::replace(&mut self.is_failed, true) {
            return Err(Error::Abandoned);
        }
        let lowest = self.inputs.iter().filter_map(Input::next).min();
        match lowest {
            Some(number) => self.order.admit(number)?,
            None => self.order.end()?,
        }
        self.is_failed = false;
        let Some(number) = lowest else { return Ok(None) };
        let mut newest = None;
        for input in self.inputs.iter_mut().filter(|input| input.page == Page::Next(number)) {
            input.page = Page::Taken;
            newest = Some(&input.reader);
        }
        Ok(newest.map(|reader| (number, reader.page())))
    }
}

/// Returns the header of the merge of these inputs.
fn header<R: Read>(inputs: &[Reader<R>]) -> Result<Header> {
    let (Some(first), Some(last)) = (inputs.first(), inputs.last()) else { return Err(Error::NoInputs) };
    let (first, last) = (first.header(), last.header());
    let txids = crate::ltx::Txids::new(first.txids.min(), last.txids.max())?;
    Ok(Header { txids, node: 0, ..last.clone() })
}

struct Input<R> {
    reader: Reader<R>,
    /// The last page that survives: a later input may say that the database became shorter. When it grows again, its
    /// new pages are in the input that says so.
    last: u32,
    page: Page,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    /// The merge has used the page in the reader's buffer, or the reader has read no page yet.
    Taken,
    /// This page is in the reader's buffer.
    Next(u32),
    /// The file was read and verified.
    End,
}

impl<R: Read> Input<R> {
    /// Reads a page, which stays in the reader's buffer until it is taken. One that does not survive is passed over.
    fn advance(&mut self) -> Result<()> {
        let txids = self.reader.header().txids;
        let read = self.reader.advance().map_err(|source| Error::Input { txids, source: Box::new(source) })?;
        self.page = match read {
            Some(number) if number <= self.last => Page::Next(number),
            Some(_) => Page::Taken,
            None => Page::End,
        };
        Ok(())
    }

    /// Returns the page in the reader's buffer.
    fn next(&self) -> Option<u32> {
        match self.page {
            Page::Next(number) => Some(number),
            Page::Taken | Page::End => None,
        }
    }
}
