//! One boundary: which pages it holds, and their contents.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use quorate_apply::AppliedRow;
use quorate_env::mutant::Mutant;
use quorate_env::{Instant, lock};
use quorate_model::{Applied, StoreFault};

use super::frames::Frames;
use super::{Progress, WHOLE_HOLD_FACTOR, check, lost};
use crate::connection::Attached;
use crate::store::shared::{Shared, Slot};
use crate::vfs::pages::Changes;

/// The offset in the database file of the page that SQLite locks and never writes.
const LOCK_BYTE: u32 = 0x4000_0000;

/// The state of the database after one commit.
///
/// It holds a read transaction, and so holds checkpoints back: read the pages at once, and drop it. If it is dropped
/// without [`Boundary::kept`], its pages count as changed at the next boundary too.
pub struct Boundary {
    // Declared first, because it must be closed before the store's files are.
    pub(super) conn: Attached,
    pub(super) begun: Instant,
    pub(super) frames: Frames,
    pub(super) row: AppliedRow,
    pub(super) page_size: u32,
    pub(super) pages: u32,
    pub(super) changed: Changed,
    pub(super) shared: Arc<Shared>,
    pub(super) progress: Arc<Mutex<Progress>>,
    pub(super) _slot: Slot,
}

/// Which pages a boundary holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// All: there is no earlier boundary to build on.
    All,
    /// These, in order. They contain every page that has changed since the last kept boundary, and maybe some others.
    Pages(Vec<u32>),
}

impl Boundary {
    /// The position of the store: everything up to its entry is in the boundary, and nothing later.
    pub fn applied(&self) -> &Applied {
        &self.row.applied
    }

    /// The latest stamp that was applied, in nanoseconds since 1970-01-01 UTC.
    pub fn stamp(&self) -> u64 {
        self.row.now
    }

    /// The outcome hash (docs/sqlite-store.md).
    pub fn outcome_hash(&self) -> u64 {
        self.row.outcome_hash
    }

    /// The size of a page in bytes.
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// The size of the database in pages, which may be less than at the boundary before.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The changed pages.
    pub fn changed(&self) -> &Changed {
        &self.changed
    }

    /// The numbers of the changed pages in order, whether these are some or all. The page at [`lock_page`] is never one
    /// of them: SQLite does not use it.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let (upto, some) = match &self.changed {
            Changed::All => (self.pages, [].as_slice()),
            Changed::Pages(pages) => (0, pages.as_slice()),
        };
        let lock_page = lock_page(self.page_size);
        (1..=upto).filter(move |number| *number != lock_page).chain(some.iter().copied())
    }

    /// Reads a page, changed or not, as it is at this boundary. Pages are numbered from 1, and `page` must be as long
    /// as a page. What SQLite has never written is zeros.
    ///
    /// Fails with [`StoreFault::ImageLost`] if an image was installed meanwhile, or if the boundary has lasted too
    /// long: the `-wal` is longer than [`hold_bytes_max`](crate::StoreOptions::hold_bytes_max), or
    /// [`WHOLE_HOLD_FACTOR`] times that if all pages count as changed; or an image is to be sent, and the boundary is
    /// older than a read transaction usually gets. The boundary is then to be dropped. Fails if the store has a fault
    /// or is closed.
    pub fn read(&self, number: u32, page: &mut [u8]) -> Result<(), StoreFault> {
        self.check()?;
        let is_page = (1..=self.pages).contains(&number) && u32::try_from(page.len()) == Ok(self.page_size);
        let index = number.checked_sub(1).filter(|_| is_page);
        let index = index.ok_or_else(|| lost(format!("there is no page {number} of {} bytes", page.len())))?;
        if self.frames.read(number, page)? {
            return Ok(());
        }
        let at = u64::from(index).saturating_mul(self.page_size.into());
        let len = self.conn.generation().read_main(page, at).map_err(|error| StoreFault::Io(error.to_string()))?;
        page.get_mut(len..).unwrap_or_default().fill(0);
        Ok(())
    }

    /// Records that the caller has stored the boundary durably: the next one builds on it.
    pub fn kept(self) {
        lock(&self.progress).keep(self.pages);
    }

    fn check(&self) -> Result<(), StoreFault> {
        check(&self.shared, self.conn.generation())?;
        let factor = if self.changed == Changed::All { WHOLE_HOLD_FACTOR } else { 1 };
        let max = self.shared.options.hold_bytes_max.saturating_mul(factor);
        if self.conn.generation().wal_bytes() > max {
            return Err(lost(format!("the -wal grew beyond {max} bytes before the pages were read")));
        }
        let is_old = self.begun.elapsed() > self.shared.options.readers.transaction;
        if is_old && self.shared.image_waits.load(Ordering::Acquire) {
            return Err(lost("another node waits for an image, and the boundary keeps the last checkpoint from it"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Boundary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Boundary")
            .field("applied", &self.row.applied)
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}

impl Changed {
    /// Returns what has changed since the last kept boundary, whose size was `kept`.
    pub(super) fn since(kept: Option<u32>, changes: &Changes, page_size: u32, pages: u32) -> Self {
        let Some(kept) = kept else { return Self::All };
        let lock_page = lock_page(page_size);
        // A page that was never written has no frame, and neither has one that is there again after the database was
        // smaller.
        let same = changes.smallest.map_or(kept, |smallest| smallest.min(kept));
        let pages = if Mutant::GrowthPagesLeftOut.is_on() { pages.min(kept) } else { pages };
        let written = changes.pages.iter().filter_map(|number| u32::try_from(number).ok());
        let written = written.filter(|number| *number <= same.min(pages));
        let grown = same.saturating_add(1)..=pages;
        Self::Pages(written.chain(grown).filter(|number| *number != lock_page).collect())
    }
}

/// The number of the page that SQLite never uses, if the database is that large.
pub fn lock_page(page_size: u32) -> u32 {
    LOCK_BYTE.checked_div(page_size).unwrap_or(u32::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(pages: &[u64], smallest: Option<u32>) -> Changes {
        let mut changes = Changes { smallest, ..Changes::default() };
        pages.iter().for_each(|page| changes.pages.insert(*page));
        changes
    }

    #[test]
    fn growth_and_what_comes_back_count_as_changed() {
        let of = |kept, pages: &[u64], smallest, size| Changed::since(kept, &changes(pages, smallest), 4096, size);
        assert_eq!(of(None, &[1], Some(9), 9), Changed::All);
        assert_eq!(of(Some(9), &[], None, 9), Changed::Pages(vec![]));
        assert_eq!(of(Some(9), &[2, 5, 11], Some(9), 12), Changed::Pages(vec![2, 5, 10, 11, 12]));
        assert_eq!(of(Some(9), &[2, 5, 8], Some(6), 6), Changed::Pages(vec![2, 5]));
        assert_eq!(of(Some(9), &[2], Some(6), 8), Changed::Pages(vec![2, 7, 8]));
    }

    #[test]
    fn the_lock_page_is_never_changed() {
        let lock = lock_page(4096);
        assert_eq!((lock, lock_page(65536)), (262_145, 16_385));
        let changed = Changed::since(Some(lock - 2), &changes(&[lock.into()], None), 4096, lock + 1);
        assert_eq!(changed, Changed::Pages(vec![lock - 1, lock + 1]));
    }
}
