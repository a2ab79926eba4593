//! Temporary files: where they are and how large they may become.
//!
//! SQLite makes them for what does not fit into its caches: sorts, materialised views, undo logs of statements. They
//! lie in `tmp/` of the store's directory, which is emptied at every start.
//!
//! Invariants: a file is charged to the connection whose statement made it, from its first byte until it is closed;
//! what all queries of a store have together is the sum of that.

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

/// The directory of temporary files, in that of the store.
const DIR: &str = "tmp";

/// Bytes of temporary files that a query may have where nothing else is said.
pub const TEMP_BYTES_PER_QUERY_DEFAULT: u64 = 1 << 30;

/// Bytes of temporary files that all queries of a store may have where nothing else is said.
pub const TEMP_BYTES_DEFAULT: u64 = 4 << 30;

/// Bytes of the disk that temporary files of queries leave free, but no more than a tenth of the disk.
const RESERVE: u64 = 512 << 20;

/// Bytes that temporary files grow by between two looks at the space that is left.
const LOOK_EVERY: u64 = 16 << 20;

/// How large temporary files may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TempOptions {
    /// Bytes for one query.
    pub per_query: u64,
    /// Bytes for all queries together. The writer may have as many, and besides twice the size of the database.
    pub all: u64,
}

impl Default for TempOptions {
    fn default() -> Self {
        Self { per_query: TEMP_BYTES_PER_QUERY_DEFAULT, all: TEMP_BYTES_DEFAULT }
    }
}

/// Where the temporary files of a store are.
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
    /// Bytes by which they grew since the space left was looked at.
    unlooked: AtomicU64,
    named: AtomicU64,
}

impl TempSpace {
    /// Makes the directory, empty: what a process that was killed has left there is removed.
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

    /// Sets how large temporary files may become from now on.
    pub(crate) fn limit(&self, options: TempOptions) {
        self.per_query.store(options.per_query, Ordering::Relaxed);
        self.all.store(options.all, Ordering::Relaxed);
    }

    /// Bytes of the temporary files of all queries.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Fails where all queries may have no more. A look at the disk comes every [`LOOK_EVERY`] bytes.
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
                // The next byte is to find it too.
                self.unlooked.store(LOOK_EVERY, Ordering::Relaxed);
                return Err(Refusal::TempReserve(space.available));
            }
        }
        Ok(())
    }
}

/// Those of all open connections, by number: a statement of each moment has its number at hand, and nothing to count.
static ALL: Mutex<BTreeMap<u64, Weak<Temp>>> = Mutex::new(BTreeMap::new());

/// The numbers that were given.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The temporary files of the connection of this number, if it is still open.
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
    /// Bytes of those that are open.
    used: AtomicU64,
    /// The database file of the writer. It may have more the larger that is: to sort a table for an index, and for
    /// VACUUM.
    database: Option<Arc<dyn File>>,
}

impl Temp {
    /// For a connection that reads.
    pub(crate) fn of_reader(space: &Arc<TempSpace>) -> Arc<Self> {
        Self::registered(space, None)
    }

    /// For the connection that writes this file.
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

    /// Names a new file.
    pub(super) fn file(self: &Arc<Self>) -> Box<TempFile> {
        let number = self.space.named.fetch_add(1, Ordering::Relaxed);
        // SQLite's VFS has taken the directory for a C string before.
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

/// One temporary file. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct TempFile {
    /// Its path. SQLite's VFS keeps a pointer to it as long as the file is open.
    pub(crate) name: CString,
    temp: Arc<Temp>,
    size: u64,
}

impl TempFile {
    /// Asks for the file to reach so far; `false` where it may not.
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

    /// The file was cut.
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
