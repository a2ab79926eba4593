//! Generations: the directories that contain one database each, and which of them is current.
//!
//! Below the store's directory, `db/<number>/quorate.db` is a database with its `-wal` and `-shm`, and `CURRENT` names
//! the current generation. A new one is built in `db/<number>.new/`, synced, renamed, and then named by `CURRENT`. So a
//! database is never placed next to the `-wal` of another, and after a crash at any step either the old generation or
//! the new one is current.
//!
//! Invariants:
//! - Our own code opens the main file of a generation once, before the first connection, and closes it after the last:
//!   every connection holds its [`Generation`]. Closing any other handle in this process would drop SQLite's POSIX
//!   locks, and an outside `sqlite3` could then delete the live `-wal`.
//! - A generation that is no longer current is removed when its last holder drops it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use quorate_env::disk::{Disk, File, OpenMode};
use quorate_env::lock;

use crate::error::OpenError;
use crate::extensions::Extensions;
use crate::usage::TempSpace;
use crate::vfs;
use crate::vfs::marks::Marks;
use crate::vfs::pages::PageMarks;
use crate::vfs::watch::{self, Role, Watched};

mod damage;
mod pointer;
mod set;
mod unsynced;

pub use damage::{put_aside, was_here};
pub(crate) use set::current_database;
pub use set::{Generations, Staged, make_first};

/// All items that a store keeps in its directory.
pub const ITEMS: [&str; 4] = [set::DB_DIR, pointer::FILE, damage::FILE, unsynced::FILE];

/// The name of a database file.
pub const DATABASE_FILE: &str = "quorate.db";

/// One database and the only handle of its main file.
#[derive(Debug)]
pub struct Generation {
    number: u64,
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    vfs: String,
    main: Arc<dyn File>,
    watched: Arc<Watched>,
    /// Bytes of the `-wal` in use when it was last synced.
    wal_synced: AtomicU64,
    /// Whether the name of the `-wal` is known to survive power loss. Held while the `-wal` is synced.
    wal_name_durable: Mutex<bool>,
    obsolete: AtomicBool,
    extensions: Extensions,
    temp: Arc<TempSpace>,
}

impl Generation {
    fn open(
        disk: &Arc<dyn Disk>,
        dir: PathBuf,
        number: u64,
        extensions: &Extensions,
        temp: &Arc<TempSpace>,
    ) -> Result<Arc<Self>, OpenError> {
        let path = dir.join(DATABASE_FILE);
        let vfs = vfs::over(disk.sqlite_vfs().as_deref())?;
        let main = disk.open(&path, OpenMode::ReadWrite).map_err(OpenError::disk(&path))?;
        let watched = watch::begin(&vfs, &path)?;
        let generation = Self {
            number,
            dir,
            disk: Arc::clone(disk),
            vfs,
            main,
            watched,
            wal_synced: AtomicU64::new(0),
            wal_name_durable: Mutex::default(),
            obsolete: AtomicBool::new(false),
            extensions: extensions.clone(),
            temp: Arc::clone(temp),
        };
        // How much of a `-wal` left by another process is in use is known only after the first write. Until then,
        // assume all of it.
        let wal = generation.wal_file_bytes().map_err(OpenError::disk(&generation.dir))?;
        generation.watched.wrote(Role::Wal, 0, wal);
        Ok(Arc::new(generation))
    }

    /// The number of the generation. Later ones have higher numbers.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of its database file.
    pub fn path(&self) -> PathBuf {
        self.dir.join(DATABASE_FILE)
    }

    /// The VFS of its connections.
    pub fn vfs(&self) -> &str {
        &self.vfs
    }

    /// The program's functions and collations for its connections.
    pub(crate) fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// The space for temporary files of its connections.
    pub(crate) fn temp(&self) -> &Arc<TempSpace> {
        &self.temp
    }

    /// The database file.
    pub(crate) fn main(&self) -> &Arc<dyn File> {
        &self.main
    }

    /// Bytes of the database file. It does not yet include what was applied since the last checkpoint.
    pub fn main_bytes(&self) -> io::Result<u64> {
        self.main.len()
    }

    /// Bytes of the `-wal` in use.
    pub fn wal_bytes(&self) -> u64 {
        self.watched.wal_end()
    }

    /// Bytes of the `-wal` file, which is the largest size that it has grown to.
    pub fn wal_file_bytes(&self) -> io::Result<u64> {
        let name = format!("{DATABASE_FILE}-wal");
        Ok(self.disk.list(&self.dir)?.into_iter().find(|item| item.name == name).map_or(0, |item| item.len))
    }

    /// Reads from the database file without SQLite. Returns fewer bytes than requested only at its end.
    pub(crate) fn read_main(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.main.read_at(buf, at)
    }

    /// Opens the `-wal` to read it without SQLite. Unlike the other files, the `-wal` carries no locks and may be
    /// opened and closed freely.
    pub(crate) fn open_wal(&self, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.disk.open(&self.dir.join(format!("{DATABASE_FILE}-wal")), mode)
    }

    /// Makes the writes to the database file durable.
    pub(crate) fn sync_main(&self) -> io::Result<()> {
        self.sync(Role::Main, || self.main.sync_data())
    }

    /// Makes everything committed so far durable by a sync of the `-wal`.
    pub(crate) fn sync_wal(&self) -> io::Result<()> {
        // One thread at a time: the system does not report an earlier failed sync to a handle that is opened
        // afterwards.
        let mut name_durable = lock(&self.wal_name_durable);
        let end = self.wal_bytes();
        match self.open_wal(OpenMode::ReadWrite) {
            Ok(wal) => self.sync(Role::Wal, || wal.sync_data())?,
            // Nothing was written yet. The main file holds everything, and was made durable when it was created.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        if !*name_durable {
            self.sync(Role::Wal, || self.disk.sync_dir(&self.dir))?;
            *name_durable = true;
        }
        self.wal_synced.store(end, Ordering::Release);
        Ok(())
    }

    /// Syncs a file or directory of this database, unless a sync has failed before.
    fn sync(&self, role: Role, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let failed_before = || Err(io::Error::other("a sync failed before: what it covered may be lost"));
        self.watched.sync(role, sync).unwrap_or_else(failed_before)
    }

    /// Bytes of the `-wal` that were written since its last sync. This may be too low after the `-wal` has restarted.
    pub(crate) fn wal_unsynced_bytes(&self) -> u64 {
        let (end, synced) = (self.wal_bytes(), self.wal_synced.load(Ordering::Acquire));
        if end < synced { end } else { end - synced }
    }

    /// Starts to record which blocks of the database file are written.
    pub(crate) fn marks(&self) -> Arc<Marks> {
        self.watched.marks()
    }

    /// Starts to record which pages are written to the `-wal`, in place of an earlier record.
    pub(crate) fn page_marks(&self, page_size: u32) -> Arc<PageMarks> {
        self.watched.page_marks(page_size)
    }

    /// The number of reads of its files by SQLite that the system has failed.
    pub(crate) fn failed_reads(&self) -> u64 {
        self.watched.failed_reads()
    }

    /// The state that the VFS layer keeps for it.
    #[cfg(test)]
    pub(crate) fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Marks it as no longer current, to be removed with its last holder.
    fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire)
            && let Err(error) = self.disk.remove_dir_all(&self.dir)
        {
            tracing::warn!(%error, dir = %self.dir.display(), "an old generation is kept until the next start");
        }
    }
}

/// Decodes the text of `CURRENT` and encodes it again; `None` if it can't be decoded.
pub(crate) fn reencode(bytes: &[u8]) -> Option<Vec<u8>> {
    pointer::reencode(bytes)
}

#[cfg(test)]
mod tests;
