//! The rule that page numbers follow in a file.
//!
//! Invariant: the pages that were admitted ascend, none is the lock page or beyond the end of the database, and those
//! of a snapshot have no gap.

use crate::ltx::error::Fault;
use crate::ltx::header::Header;

/// Admits the pages of a file one after another.
pub(crate) struct PageOrder {
    lock_page: u32,
    commit: u32,
    is_snapshot: bool,
    /// The last page that was admitted, or 0.
    last: u32,
}

impl PageOrder {
    pub fn new(header: &Header) -> Self {
        let (lock_page, commit) = (header.page_size.lock_page(), header.commit.get());
        Self { lock_page, commit, is_snapshot: header.is_snapshot(), last: 0 }
    }

    /// Admits the next page. A page that breaks the rule changes nothing.
    pub fn admit(&mut self, number: u32) -> Result<(), Fault> {
        if number <= self.last {
            return Err(Fault::Order { previous: self.last, number });
        }
        if number == self.lock_page {
            return Err(Fault::LockPage(number));
        }
        if number > self.commit {
            return Err(Fault::BeyondCommit { number, commit: self.commit });
        }
        match self.missing() {
            Some(missing) if missing != number => return Err(Fault::Missing(missing)),
            _ => self.last = number,
        }
        Ok(())
    }

    /// Checks that no page is missing after the last one.
    pub fn end(&self) -> Result<(), Fault> {
        self.missing().map_or(Ok(()), |missing| Err(Fault::Missing(missing)))
    }

    /// Returns the page of the database that a snapshot must have next.
    fn missing(&self) -> Option<u32> {
        let next = self.last.saturating_add(1);
        let next = if next == self.lock_page { next.saturating_add(1) } else { next };
        (self.is_snapshot && self.last < next && next <= self.commit).then_some(next)
    }
}
