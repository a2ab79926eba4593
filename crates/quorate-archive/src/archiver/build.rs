//! Builds an LTX file of the pages that differ from what is archived.
//!
//! Invariant: the table of checksums becomes that of the database at the boundary, page by page, as the file is built.
//! A file that was not built to its end leaves a table that nothing describes; it must be dropped.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorate_env::lock;

use crate::error::ArchiveError;
use crate::ltx::{Checksum, Header, Summary, Writer};
use crate::source::{Changed, PageSource};
use crate::sums::Sums;

/// A file under construction. Its methods block.
pub(crate) struct Build {
    key: String,
    source: Box<dyn PageSource>,
    numbers: Numbers,
    writer: Writer<Sink>,
    sink: Sink,
    sums: Sums,
    page: Vec<u8>,
}

/// A finished file.
pub(crate) struct Built {
    pub source: Box<dyn PageSource>,
    pub sums: Sums,
    pub summary: Summary,
}

/// The next piece of a file.
pub(crate) enum Piece {
    /// Bytes, after which more come.
    Some(Box<Build>, Bytes),
    /// The last bytes.
    Last(Built, Bytes),
}

impl Build {
    /// Begins a file. `sums` is the table of what is archived; without `changed`, any page may differ from it.
    pub fn begin(
        key: String,
        source: Box<dyn PageSource>,
        mut sums: Sums,
        header: Header,
        changed: Changed,
    ) -> Result<Self, ArchiveError> {
        let (page_size, pages) = (header.page_size, header.commit.get());
        sums.resize(pages);
        let numbers = match changed {
            Changed::All => Numbers::All(1..=pages),
            Changed::Pages(numbers) => Numbers::Some(numbers.into_iter()),
        };
        let sink = Sink::default();
        let writer = Writer::new(sink.clone(), header).map_err(ArchiveError::ltx(&key))?;
        Ok(Self { key, source, numbers, writer, sink, sums, page: vec![0; page_size.get() as usize] })
    }

    /// Adds pages until the piece has about `length` bytes.
    pub fn next(mut self: Box<Self>, length: usize) -> Result<Piece, ArchiveError> {
        let lock_page = self.sums.page_size().lock_page();
        while self.sink.length() < length {
            let Some(number) = self.numbers.next() else { return self.finish() };
            if number == lock_page || number > self.sums.pages() {
                continue;
            }
            self.source.read(number, &mut self.page).map_err(ArchiveError::Source)?;
            let checksum = Checksum::of_page(number, &self.page);
            if !self.sums.is(number, checksum) {
                self.writer.write_page(number, &self.page).map_err(ArchiveError::ltx(&self.key))?;
                self.sums.set(number, checksum);
            }
        }
        let bytes = self.sink.take();
        Ok(Piece::Some(self, bytes))
    }

    /// Gives up, and returns the source.
    pub fn into_source(self: Box<Self>) -> Box<dyn PageSource> {
        self.source
    }

    fn finish(self: Box<Self>) -> Result<Piece, ArchiveError> {
        let Self { key, source, writer, sink, sums, .. } = *self;
        let (_, summary) = writer.finish().map_err(ArchiveError::ltx(&key))?;
        Ok(Piece::Last(Built { source, sums, summary }, sink.take()))
    }
}

/// The pages that may have to be in the file.
enum Numbers {
    All(std::ops::RangeInclusive<u32>),
    Some(std::vec::IntoIter<u32>),
}

impl Iterator for Numbers {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            Self::All(numbers) => numbers.next(),
            Self::Some(numbers) => numbers.next(),
        }
    }
}

/// The bytes of a file that were not taken yet.
#[derive(Clone, Default)]
pub(crate) struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    pub fn length(&self) -> usize {
        lock(&self.0).len()
    }

    pub fn take(&self) -> Bytes {
        std::mem::take(&mut *lock(&self.0)).into()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
