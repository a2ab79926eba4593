//! A boundary: the pages of a database as they were after one commit.
//!
//! Invariant: the read transaction that was opened for it is held as long as it exists, so neither its frames nor its
//! pages in the main file change.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use quorate_archive::{Changed, PageSource};
use quorate_env::lock;

use crate::follower::Inner;
use crate::wal;

/// A state of the database.
pub struct Boundary {
    pub index: u64,
    pub time: i64,
    pub page_size: u32,
    pub pages: u32,
    pub changed: Changed,
    /// The last frame of each page.
    pub frames: Arc<HashMap<u32, u32>>,
    /// The frames that are in the main file.
    pub copied: u32,
    pub inner: Arc<Inner>,
}

impl PageSource for Boundary {
    fn index(&self) -> u64 {
        self.index
    }

    fn time(&self) -> i64 {
        self.time
    }

    fn page_size(&self) -> u32 {
        self.page_size
    }

    fn pages(&self) -> u32 {
        self.pages
    }

    fn changed(&self) -> Changed {
        self.changed.clone()
    }

    fn read(&mut self, number: u32, page: &mut [u8]) -> io::Result<()> {
        if let Some(frame) = self.frames.get(&number).filter(|frame| **frame > self.copied) {
            return wal::read_page(&*self.inner.wal, *frame, page);
        }
        let at = u64::from(number.saturating_sub(1)).saturating_mul(self.page_size.into());
        let length = self.inner.main.read_at(page, at)?;
        // What SQLite has never written is zeros.
        page.get_mut(length..).unwrap_or_default().fill(0);
        Ok(())
    }

    fn kept(self: Box<Self>) {
        lock(&self.inner.progress).keep(self.pages);
    }
}
