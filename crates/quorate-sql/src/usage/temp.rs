//! Temporary files: their directory and their size limits.
//!
//! SQLite creates them for what does not fit into its caches: sorts, materialised views, statement journals. They are
//! in `tmp/` of the store's directory, which is emptied at every start.
//!
//! Invariants: a file is charged to the connection whose statement created it, from its first byte until it is closed.
//! The usage of all queries of a store is the sum over their connections.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use quorate_env::disk::{Disk, File};
use quorate_env::lock;

use super::{Refusal, carry, refused};
use crate::error::OpenError;
use crate::ffi;
use crate::vfs::VfsError;

/// The directory of temporary files, inside the store's directory.
const DIR: &str = "tmp";

/// The default limit on the temporary files of one query, in bytes.
pub const TEMP_BYTES_PER_QUERY_DEFAULT: u64 = 1 << 30;

/// The default limit on the temporary files of all queries of a store, in bytes.
pub const TEMP_BYTES_DEFAULT: u64 = 4 << 30;

/// Bytes of the disk that temporary files of queries must leave free; a tenth of the disk if that is less.
const RESERVE: u64 = 512 << 20;

/// How many bytes temporary files may grow between two checks of the free disk space.
const LOOK_EVERY: u64 = 16 << 20;

/// The size limits of temporary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TempOptions {
    /// Bytes for one query.
    pub per_query: u64,
    /// Bytes for all queries together. The writer may have this much as well, plus twice the size of the database.
    pub all: u64,
}

impl Default for TempOptions {
    fn default() -> Self {
        Self { per_query: TEMP_BYTES_PER_QUERY_DEFAULT, all: TEMP_BYTES_DEFAULT }
    }
}

/// The temporary files of a store: their directory, limits and usage.
#[derive(Debug)]
pub(crate) struct TempSpace {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// The directory as the VFS spells it.
    full: String,
    per_query: AtomicU64,
    all: AtomicU64,
    /// Bytes of the temporary files of all queries.
    used: AtomicU64,
    /// Bytes by which they have grown since the free space was last checked.
    unlooked: AtomicU64,
    named: AtomicU64,
}

impl TempSpace {
    /// Creates the directory, and removes what a killed process may have left there.
    pub(crate) fn make(disk: &Arc<dyn Disk>, vfs: &str, store: &Path) -> Result<Arc<Self>, OpenError> {
        let dir = store.join(DIR);
        let make = || {
            if disk.exists(&dir)? {
                disk.remove_dir_all(&dir)?;
            }
            disk.create_dir_all(&dir)
        };
        make().map_err(OpenError::disk(&dir))?;
        let full = dir.to_str().and_then(|dir| ffi::vfs::full_path(vfs, dir));
        let full = full.ok_or_else(|| VfsError::Path(dir.display().to_string()))?;
        let TempOptions { per_query, all } = TempOptions::default();
        Ok(Arc::new(Self {
            disk: Arc::clone(disk),
            dir,
            full,
            per_query: AtomicU64::new(per_query),
            all: AtomicU64::new(all),
            used: AtomicU64::new(0),
            unlooked: AtomicU64::new(0),
            named: AtomicU64::new(0),
        }))
    }

    /// Sets the size limits that apply from now on.
    pub(crate) fn limit(&self, options: TempOptions) {
        self.per_query.store(options.per_query, Ordering::Relaxed);
        self.all.store(options.all, Ordering::Relaxed);
    }

    /// Returns the bytes of the temporary files of all queries.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges bytes to all queries together; fails if that exceeds their limit, or if the disk is nearly full. The
    /// free space is checked every [`LOOK_EVERY`] bytes.
    fn take(&self, bytes: u64) -> Result<(), Refusal> {
        let all = self.all.load(Ordering::Relaxed);
        if self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > all {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refusal::TempOfReads(all));
        }
        if self.unlooked.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) >= LOOK_EVERY {
            self.unlooked.store(0, Ordering::Relaxed);
            if let Ok(space) = self.disk.space(&self.dir)
                && space.available < RESERVE.min(space.total / 10)
            {
                self.used.fetch_sub(bytes, Ordering::Relaxed);
                // Makes the next call check the disk again.
                self.unlooked.store(LOOK_EVERY, Ordering::Relaxed);
                return Err(Refusal::TempReserve(space.available));
            }
        }
        Ok(())
    }
}

/// The temporary files of all open connections, by number. A scope keeps only the number, so that entering it need not
/// clone an `Arc`.
static ALL: Mutex<BTreeMap<u64, Weak<Temp>>> = Mutex::new(BTreeMap::new());

/// The next number.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Returns the temporary files of the connection with this number, if it is still open.
pub(super) fn find(number: u64) -> Option<Arc<Temp>> {
    all().get(&number).and_then(Weak::upgrade)
}

fn all() -> MutexGuard<'static, BTreeMap<u64, Weak<Temp>>> {
    lock(&ALL)
}

/// The temporary files of one connection.
#[derive(Debug)]
pub(crate) struct Temp {
    number: u64,
    space: Arc<TempSpace>,
    /// Bytes of the files that are open.
    used: AtomicU64,
    /// The database file, for the writer. The writer's limit grows with its size, because sorting a table for an index
    /// and VACUUM need space in proportion.
    database: Option<Arc<dyn File>>,
}

impl Temp {
    /// Registers a connection that reads.
    pub(crate) fn of_reader(space: &Arc<TempSpace>) -> Arc<Self> {
        Self::registered(space, None)
    }

    /// Registers the connection that writes this file.
    pub(crate) fn of_writer(space: &Arc<TempSpace>, database: &Arc<dyn File>) -> Arc<Self> {
        Self::registered(space, Some(Arc::clone(database)))
    }

    fn registered(space: &Arc<TempSpace>, database: Option<Arc<dyn File>>) -> Arc<Self> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let temp = Arc::new(Self { number, space: Arc::clone(space), used: AtomicU64::new(0), database });
        all().insert(number, Arc::downgrade(&temp));
        temp
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn dir(&self) -> &Path {
        &self.space.dir
    }

    /// Returns a new file with a name of its own.
    pub(super) fn file(self: &Arc<Self>) -> Box<TempFile> {
        let number = self.space.named.fetch_add(1, Ordering::Relaxed);
        // The VFS has already accepted the directory as a C string, so it contains no NUL.
        let name = CString::new(format!("{}/{number}", self.space.full)).unwrap_or_default();
        Box::new(TempFile { name, temp: Arc::clone(self), size: 0 })
    }

    fn grow(&self, bytes: u64) -> Result<(), Refusal> {
        let used = self.used.load(Ordering::Relaxed).saturating_add(bytes);
        match &self.database {
            None => {
                let max = self.space.per_query.load(Ordering::Relaxed);
                if used > max {
                    return Err(Refusal::Temp(max));
                }
                self.space.take(bytes)?;
            }
            Some(database) => {
                let max = self.space.all.load(Ordering::Relaxed);
                let more = || database.len().unwrap_or(0).saturating_mul(2);
                if used > max && used > max.saturating_add(more()) {
                    return Err(Refusal::Temp(max.saturating_add(more())));
                }
            }
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn shrink(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if self.database.is_none() {
            self.space.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        all().remove(&self.number);
    }
}

/// One temporary file. Dropping it returns its bytes to the limits.
#[derive(Debug)]
pub(crate) struct TempFile {
    /// The path. SQLite's VFS keeps a pointer to it as long as the file is open.
    pub(crate) name: CString,
    temp: Arc<Temp>,
    size: u64,
}

impl TempFile {
    /// Requests that the file may extend to `end`; returns `false` if that exceeds a limit.
    pub(crate) fn grow_to(&mut self, end: u64) -> bool {
        let Some(more) = end.checked_sub(self.size).filter(|more| *more > 0) else { return true };
        match carry(more).and_then(|()| self.temp.grow(more)) {
            Ok(()) => {
                self.size = end;
                true
            }
            Err(refusal) => {
                refused(refusal);
                false
            }
        }
    }

    /// Records that the file was truncated to `size`.
    pub(crate) fn cut(&mut self, size: u64) {
        if let Some(less) = self.size.checked_sub(size) {
            self.temp.shrink(less);
            self.size = size;
        }
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        self.cut(0);
    }
}
