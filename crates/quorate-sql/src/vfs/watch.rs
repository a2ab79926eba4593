//! What the VFS layer records about one database while that is open.
//!
//! A generation registers its file before it opens the first connection; the layer finds the record by the file's full
//! path. Invariant: a record stays valid as long as any file of the database is open.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use arc_swap::ArcSwapWeak;
use quorate_env::lock;
use quorate_env::mutant::Mutant;

use super::VfsError;
use super::marks::Marks;
use super::pages::PageMarks;
use crate::ffi;

/// The most bytes that are written to a file before it is synced.
pub(crate) const UNSYNCED_MAX: u64 = 4 << 20;

/// A file of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The database file itself.
    Main,
    /// The `-wal`.
    Wal,
}

/// One database file and its `-wal`.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The offset at which the last write to the `-wal` ended.
    wal_end: AtomicU64,
    /// Bytes that were written to the main file since its last sync.
    main_unsynced: AtomicU64,
    /// Whether a sync of either file has failed.
    sync_failed: AtomicBool,
    /// Held while a thread syncs the `-wal`.
    wal_sync: Mutex<()>,
    /// The number of reads of either file that have failed.
    failed_reads: AtomicU64,
    /// The locks in the shared memory.
    pub(crate) locks: ffi::shm::Locks,
    /// The marks to which writes to the main file are added.
    marks: Mutex<Vec<Weak<Marks>>>,
    /// The marks to which the frames of the `-wal` are added, if there is a capture.
    page_marks: ArcSwapWeak<PageMarks>,
    /// The failures that tests inject.
    #[cfg(test)]
    pub(crate) faults: super::faults::Faults,
}

type Key = (String, String);

static WATCHED: Mutex<BTreeMap<Key, Weak<Watched>>> = Mutex::new(BTreeMap::new());

/// Begins to watch the database at `path`, which must exist, for files opened through the VFS called `vfs`.
pub(crate) fn begin(vfs: &str, path: &Path) -> Result<Arc<Watched>, VfsError> {
    let bad_path = || VfsError::Path(path.display().to_string());
    let full = path.to_str().and_then(|path| ffi::vfs::full_path(vfs, path)).ok_or_else(bad_path)?;
    let watched = Arc::new(Watched::default());
    let mut all = registry();
    all.retain(|_, watched| watched.strong_count() > 0);
    all.insert((vfs.to_owned(), full), Arc::downgrade(&watched));
    Ok(watched)
}

/// Returns the database to which a file about to be opened belongs.
pub(crate) fn find(vfs: &str, path: &str, role: Role) -> Option<Arc<Watched>> {
    let path = match role {
        Role::Main => path,
        Role::Wal => path.strip_suffix("-wal")?,
    };
    registry().get(&(vfs.to_owned(), path.to_owned())).and_then(Weak::upgrade)
}

fn registry() -> MutexGuard<'static, BTreeMap<Key, Weak<Watched>>> {
    lock(&WATCHED)
}

impl Watched {
    /// Returns new marks. From now on each write to the main file is added to them, until they are dropped.
    pub(crate) fn marks(&self) -> Arc<Marks> {
        let marks = Arc::new(Marks::default());
        let mut all = lock(&self.marks);
        all.retain(|marks| marks.strong_count() > 0);
        all.push(Arc::downgrade(&marks));
        marks
    }

    /// Returns new marks of pages, which replace earlier ones. From now on each frame written to the `-wal` is added to
    /// them, until they are dropped.
    pub(crate) fn page_marks(&self, page_size: u32) -> Arc<PageMarks> {
        let marks = Arc::new(PageMarks::new(page_size));
        self.page_marks.store(Arc::downgrade(&marks));
        marks
    }

    /// Records the content of a write to the `-wal`, if there is a capture.
    pub(crate) fn wrote_frames(&self, at: u64, bytes: &[u8]) {
        if let Some(marks) = self.page_marks.load().upgrade() {
            marks.add(at, bytes);
        }
    }

    /// Returns the number of bytes of the `-wal` from its start to the end of the last write, or 0 before the first
    /// write. Frames beyond that are left over from before the `-wal` was last restarted.
    pub(crate) fn wal_end(&self) -> u64 {
        self.wal_end.load(Ordering::Acquire)
    }

    /// Records a write that has happened.
    pub(crate) fn wrote(&self, role: Role, at: u64, len: u64) {
        match role {
            Role::Wal => self.wal_end.store(at.saturating_add(len), Ordering::Release),
            Role::Main => self.each_marks(|marks| marks.add(at, len)),
        }
    }

    /// Returns whether the file should be synced now, after a write of `len` bytes, so that no later sync has much to
    /// write at once: a disk does one thing after another, and a long sync of a checkpoint would hold up every log on
    /// the same disk.
    pub(crate) fn wants_sync(&self, role: Role, len: u64) -> bool {
        if role == Role::Wal {
            // Other threads sync the `-wal`; the writer must not wait for that.
            return false;
        }
        let before = self.main_unsynced.fetch_add(len, Ordering::AcqRel);
        before.saturating_add(len) >= UNSYNCED_MAX
    }

    /// Syncs a file, or returns `None` if a sync has failed before. After a failed sync the system may have dropped the
    /// written pages, and the next sync would still succeed. Several threads sync the `-wal`, so its syncs run one at a
    /// time: otherwise one could begin before it can see that another has failed.
    pub(crate) fn sync<E>(&self, role: Role, sync: impl FnOnce() -> Result<(), E>) -> Option<Result<(), E>> {
        let _alone = (role == Role::Wal).then(|| lock(&self.wal_sync));
        if role == Role::Main {
            self.main_unsynced.store(0, Ordering::Release);
        }
        if self.sync_failed.load(Ordering::Acquire) && !Mutant::SyncBelievedAgain.is_on() {
            return None;
        }
        Some(sync().inspect_err(|_| self.sync_failed.store(true, Ordering::Release)))
    }

    /// Counts a read that failed, other than by the end of the file.
    pub(crate) fn failed_to_read(&self) {
        self.failed_reads.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of reads that have failed.
    pub(crate) fn failed_reads(&self) -> u64 {
        self.failed_reads.load(Ordering::Acquire)
    }

    /// Records that a file was truncated or extended to `size`.
    pub(crate) fn truncated(&self, role: Role, size: u64) {
        match role {
            Role::Wal => self.wal_end.store(size, Ordering::Release),
            Role::Main => self.each_marks(|marks| marks.cut(size)),
        }
    }

    fn each_marks(&self, f: impl Fn(&Marks)) {
        let all = lock(&self.marks);
        all.iter().filter_map(Weak::upgrade).for_each(|marks| f(&marks));
    }
}
