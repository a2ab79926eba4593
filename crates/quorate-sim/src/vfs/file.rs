//! An open file, as SQLite uses it. All results are SQLite's result codes.

use std::ffi::{c_int, c_void};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use quorate_env::disk::File;
use quorate_env::lock;
use rusqlite::ffi;

use super::life::Life;
use super::locks::Locks;
use super::shm::{Hold, Shm};

/// The state that all handles of a file share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    locks: Mutex<Locks>,
    shm: Mutex<Shm>,
}

/// An open file. Dropping it releases its locks.
pub(super) struct OpenFile {
    id: u64,
    life: Arc<Life>,
    path: PathBuf,
    file: Arc<dyn File>,
    shared: Arc<Shared>,
    hold: Hold,
    /// Whether the next sync must make its name durable too.
    name_unsynced: bool,
    temporary: bool,
}

impl OpenFile {
    pub(super) fn new(
        id: u64,
        life: Arc<Life>,
        path: PathBuf,
        file: Arc<dyn File>,
        shared: Arc<Shared>,
        name_unsynced: bool,
        temporary: bool,
    ) -> Self {
        Self { id, life, path, file, shared, hold: Hold::default(), name_unsynced, temporary }
    }

    /// Fills `out`, with zeros beyond the end of the file.
    pub(super) fn read(&self, out: &mut [u8], at: u64) -> c_int {
        match self.file.read_at(out, at) {
            Ok(count) if count == out.len() => ffi::SQLITE_OK,
            Ok(count) => {
                out.get_mut(count..).unwrap_or_default().fill(0);
                ffi::SQLITE_IOERR_SHORT_READ
            }
            Err(_) => {
                out.fill(0);
                ffi::SQLITE_IOERR_READ
            }
        }
    }

    pub(super) fn write(&self, bytes: &[u8], at: u64) -> c_int {
        code(self.file.write_at(bytes, at), ffi::SQLITE_IOERR_WRITE)
    }

    pub(super) fn truncate(&self, len: u64) -> c_int {
        code(self.file.set_len(len), ffi::SQLITE_IOERR_TRUNCATE)
    }

    pub(super) fn sync(&mut self) -> c_int {
        if self.file.sync_data().is_err() {
            return ffi::SQLITE_IOERR_FSYNC;
        }
        if std::mem::take(&mut self.name_unsynced) { self.life.sync_dir(&self.path) } else { ffi::SQLITE_OK }
    }

    pub(super) fn len(&self) -> Result<u64, c_int> {
        self.file.len().map_err(|_| ffi::SQLITE_IOERR_FSTAT)
    }

    pub(super) fn lock(&self, level: c_int) -> c_int {
        self.locks().lock(self.id, level)
    }

    pub(super) fn unlock(&self, level: c_int) {
        self.locks().unlock(self.id, level);
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.locks().is_reserved()
    }

    /// Returns the start of a region of the `-shm`. Every region after the first needs room on the disk, as in the real
    /// file.
    pub(super) fn shm_map(&mut self, region: usize, bytes: usize, extend: bool) -> Result<*mut c_void, c_int> {
        let mut shm = lock(&self.shared.shm);
        if extend && region > 0 && !shm.has(region) && !self.life.has_room(&self.path, bytes) {
            return Err(ffi::SQLITE_IOERR_SHMSIZE);
        }
        Ok(shm.map(&mut self.hold, region, bytes, extend))
    }

    pub(super) fn shm_lock(&mut self, first: usize, count: usize, flags: c_int) -> c_int {
        lock(&self.shared.shm).lock(&mut self.hold, first, count, flags)
    }

    pub(super) fn shm_unmap(&mut self) {
        lock(&self.shared.shm).unmap(&mut self.hold);
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        lock(&self.shared.locks)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.shm_unmap();
        self.unlock(ffi::SQLITE_LOCK_NONE);
        if self.temporary {
            // The file may already be gone, or the life may have ended.
            let _ = self.life.delete(&self.path, false);
        }
    }
}

fn code(result: io::Result<()>, other: c_int) -> c_int {
    match result {
        Ok(()) => ffi::SQLITE_OK,
        Err(error) if error.kind() == io::ErrorKind::StorageFull => ffi::SQLITE_FULL,
        Err(_) => other,
    }
}
