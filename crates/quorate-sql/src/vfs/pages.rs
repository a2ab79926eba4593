//! Records which pages of a database were written to its `-wal` since the last boundary of a capture.
//!
//! Each frame of the `-wal` is a header and then the page. The header has the number of the page and, in the last frame
//! of a transaction, the size of the database after it. Marks are taken while no transaction is open,
//! and only the writer adds any, so they tell exactly which pages the commits before may have changed. Frames of
//! transactions that were rolled back are marked too, which only makes the set larger.

use std::sync::Mutex;

use quorate_env::lock;

use super::marks::Blocks;

/// Bytes of the header of a `-wal`.
pub(crate) const WAL_HEADER_BYTES: u64 = 32;

/// Bytes of the header of a frame.
pub(crate) const FRAME_HEADER_BYTES: u64 = 24;

/// The marks of one capture.
#[derive(Debug)]
pub(crate) struct PageMarks {
    /// Bytes of a frame.
    frame_bytes: u64,
    changes: Mutex<Changes>,
}

/// What was written since the marks were last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The numbers of the pages, from 1.
    pub(crate) pages: Blocks,
    /// The smallest size of the database after any transaction, in pages. Pages beyond it that are there again may have
    /// changed although no frame was written for them.
    pub(crate) smallest: Option<u32>,
}

impl PageMarks {
    pub(crate) fn new(page_size: u32) -> Self {
        Self { frame_bytes: FRAME_HEADER_BYTES.saturating_add(page_size.into()), changes: Mutex::default() }
    }

    /// Records a write to the `-wal`: of frames, a header, or a page. SQLite may split a write at the end of a sector.
    /// As headers begin at multiples of 8 bytes, the first part of a split one still has both numbers.
    pub(crate) fn add(&self, at: u64, bytes: &[u8]) {
        let place = at.checked_sub(WAL_HEADER_BYTES).and_then(|at| at.checked_rem(self.frame_bytes));
        if place != Some(0) {
            return;
        }
        let mut changes = lock(&self.changes);
        for frame in bytes.chunks(usize::try_from(self.frame_bytes).unwrap_or(usize::MAX)) {
            let Some((page, rest)) = frame.split_first_chunk() else { continue };
            changes.pages.insert(u32::from_be_bytes(*page).into());
            let size = rest.first_chunk().map_or(0, |size| u32::from_be_bytes(*size));
            if size > 0 {
                changes.shrink_to(size);
            }
        }
    }

    /// Removes all marks and returns them.
    pub(crate) fn take(&self) -> Changes {
        std::mem::take(&mut *lock(&self.changes))
    }
}

impl Changes {
    /// Adds later changes.
    pub(crate) fn add(&mut self, later: &Self) {
        self.pages.merge(&later.pages);
        if let Some(size) = later.smallest {
            self.shrink_to(size);
        }
    }

    fn shrink_to(&mut self, size: u32) {
        self.smallest = Some(self.smallest.map_or(size, |smallest| smallest.min(size)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_headers_of_frames_are_marked() {
        let marks = PageMarks::new(4096);
        let header = |page: u32, size: u32| [page.to_be_bytes(), size.to_be_bytes()].concat();
        marks.add(0, &header(1, 1));
        marks.add(32, &header(7, 0));
        marks.add(32 + 24, &header(2, 2));
        marks.add(32 + 4120, &header(3, 9));
        marks.add(32 + 2 * 4120, &header(4, 10));
        let mut changes = marks.take();
        assert_eq!((changes.pages.iter().collect::<Vec<_>>(), changes.smallest), (vec![3, 4, 7], Some(9)));
        assert_eq!(marks.take(), Changes::default());
        let frame = |page, size| [header(page, size), vec![1; 16 + 4096]].concat();
        marks.add(32 + 4120, &[frame(5, 0), frame(6, 8), header(8, 0)].concat());
        let several = marks.take();
        assert_eq!((several.pages.iter().collect::<Vec<_>>(), several.smallest), (vec![5, 6, 8], Some(8)));
        marks.add(32, &header(500, 6));
        changes.add(&marks.take());
        assert_eq!((changes.pages.iter().collect::<Vec<_>>(), changes.smallest), (vec![3, 4, 7, 500], Some(6)));
        assert_eq!(changes.pages.count(), 4);
    }
}
