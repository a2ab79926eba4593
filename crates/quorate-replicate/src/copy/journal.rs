//! Writes a rollback journal as SQLite does: <https://www.sqlite.org/fileformat2.html#the_rollback_journal>.
//!
//! If this process dies while it changes a database, the next one that opens the database finds the journal and puts
//! the old pages back, as after a crash of any program that uses SQLite.
//!
//! Invariants:
//! - The journal is durable and complete before a page of the database is written.
//! - The transaction is committed by the removal of the journal, and by nothing before it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_env::disk::{Disk, File, OpenMode};

use crate::spool::{beside, dir_of};

/// What a journal begins with.
const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// The header is padded to this size, the smallest that SQLite uses for a sector.
const SECTOR_BYTES: u32 = 512;
/// Where the header says how many pages follow.
const COUNT_OFFSET: u64 = MAGIC.len() as u64;
/// Each so many bytes of a page, from its end on, one byte counts for its checksum.
const SUM_STEP: usize = 200;
/// The bytes that are written at once; at least one page is.
const WRITE_BYTES: usize = 1 << 20;

/// The database whose pages are to be kept.
pub struct Before<'a> {
    /// Its file.
    pub file: &'a dyn File,
    /// The size of a page.
    pub page_size: u32,
    /// The number of pages.
    pub pages: u32,
}

/// A journal on which a transaction depends.
pub struct Journal {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl Journal {
    /// Writes the present content of these pages into the journal of the database `path`. `nonce` is a random number.
    ///
    /// # Errors
    ///
    /// After an error there is no journal that SQLite would use.
    pub fn write(
        disk: &Arc<dyn Disk>,
        path: &Path,
        before: &Before<'_>,
        numbers: impl Iterator<Item = u32>,
        nonce: u32,
    ) -> io::Result<Self> {
        let journal = Self { disk: Arc::clone(disk), path: beside(path, "-journal") };
        let written = journal.fill(before, numbers, nonce);
        if written.is_err() {
            // Nothing in the database has changed yet, so a journal that stays would be as harmless as none.
            let _ = journal.disk.remove_file(&journal.path);
        }
        written.map(|()| journal)
    }

    fn fill(&self, before: &Before<'_>, numbers: impl Iterator<Item = u32>, nonce: u32) -> io::Result<()> {
        let file = self.disk.open(&self.path, OpenMode::Create)?;
        file.set_len(0)?;
        // Until the pages are durable, the header says that there are none.
        file.write_at(&header(before, nonce), 0)?;
        let count = write_pages(&*file, before, numbers, nonce)?;
        file.sync_data()?;
        file.write_at(&count.to_be_bytes(), COUNT_OFFSET)?;
        file.sync_data()?;
        self.disk.sync_dir(dir_of(&self.path))
    }

    /// Commits: from here on, the new content of the pages counts.
    pub fn remove(self) -> io::Result<()> {
        self.disk.remove_file(&self.path)?;
        self.disk.sync_dir(dir_of(&self.path))
    }
}

/// Writes the pages after the header, and returns how many there are.
fn write_pages(
    file: &dyn File,
    before: &Before<'_>,
    numbers: impl Iterator<Item = u32>,
    nonce: u32,
) -> io::Result<u32> {
    let (mut at, mut count) = (u64::from(SECTOR_BYTES), 0_u32);
    let mut buffer = Vec::new();
    let mut page = vec![0; before.page_size as usize];
    for number in numbers {
        let offset = u64::from(number.saturating_sub(1)).saturating_mul(before.page_size.into());
        before.file.read_exact_at(&mut page, offset)?;
        buffer.extend(number.to_be_bytes());
        buffer.extend(&page);
        buffer.extend(checksum(nonce, &page).to_be_bytes());
        count = count.saturating_add(1);
        if buffer.len() >= WRITE_BYTES {
            file.write_at(&buffer, at)?;
            at = at.saturating_add(buffer.len() as u64);
            buffer.clear();
        }
    }
    file.write_at(&buffer, at)?;
    Ok(count)
}

fn header(before: &Before<'_>, nonce: u32) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    for field in [0, nonce, before.pages, SECTOR_BYTES, before.page_size] {
        header.extend(field.to_be_bytes());
    }
    header.resize(SECTOR_BYTES as usize, 0);
    header
}

fn checksum(nonce: u32, page: &[u8]) -> u32 {
    let ends = (1..).map_while(|step: usize| page.len().checked_sub(step.checked_mul(SUM_STEP)?));
    let bytes = ends.take_while(|at| *at > 0).filter_map(|at| page.get(at));
    bytes.fold(nonce, |sum, byte| sum.wrapping_add(u32::from(*byte)))
}
