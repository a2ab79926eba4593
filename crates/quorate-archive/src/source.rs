//! What an archive needs of a database: its pages at a boundary.

use std::io;

/// The state of a database at a boundary: a point between two transactions, after which the source does not change.
pub trait PageSource: Send {
    /// Returns the number of the last entry that is in it.
    fn index(&self) -> u64;

    /// Returns the time of the boundary, in milliseconds since 1970.
    fn time(&self) -> i64;

    /// Returns the size of a page in bytes.
    fn page_size(&self) -> u32;

    /// Returns the number of pages.
    fn pages(&self) -> u32;

    /// Returns the pages that may have changed since the last boundary that this archiver has stored.
    fn changed(&self) -> Changed;

    /// Reads a page of [`PageSource::page_size`] bytes. Pages count from 1. May block.
    fn read(&mut self, number: u32, page: &mut [u8]) -> io::Result<()>;

    /// Ends the boundary. The archiver has what it needs, so [`PageSource::changed`] of the next boundary counts from
    /// this one. Of a source that is dropped instead, all pages count as changed again.
    fn kept(self: Box<Self>);
}

/// The pages that may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Any page, because nothing is known.
    All,
    /// These pages, in ascending order, and with them each by which the database grew.
    Pages(Vec<u32>),
}
