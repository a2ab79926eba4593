//! What the VFS layer tells about one database while it is open.
//!
//! A generation announces its file before the first connection is opened; the layer finds it by its full path.
//! Invariant: what is found stays valid as long as any file of the database is open.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use quorate_env::lock;
use quorate_env::mutant::Mutant;

use super::VfsError;
use super::marks::Marks;
use crate::ffi;

/// Bytes that are written to a file at most before they are synced.
pub(crate) const UNSYNCED_MAX: u64 = 4 << 20;

/// Which file of a database.
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
    /// Bytes of the `-wal` in use.
    wal_end: AtomicU64,
    /// Bytes written to the main file since it was last synced.
    main_unsynced: AtomicU64,
    /// Whether a sync of either file has failed.
    sync_failed: AtomicBool,
    /// Held while a thread syncs the `-wal`.
    wal_sync: Mutex<()>,
    /// Reads of either file that have failed.
    failed_reads: AtomicU64,
    /// The locks in the shared memory.
    pub(crate) locks: ffi::shm::Locks,
    /// Who wants to know of writes to the main file.
    marks: Mutex<Vec<Weak<Marks>>>,
    /// Tests make writes fail.
    #[cfg(test)]
    pub(crate) faults: super::faults::Faults,
}

type Key = (String, String);

static WATCHED: Mutex<BTreeMap<Key, Weak<Watched>>> = Mutex::new(BTreeMap::new());

/// Begins to watch the database at `path`, which must exist, as files of the VFS called `vfs`.
pub(crate) fn begin(vfs: &str, path: &Path) -> Result<Arc<Watched>, VfsError> {
    let bad_path = || VfsError::Path(path.display().to_string());
    let full = path.to_str().and_then(|path| ffi::vfs::full_path(vfs, path)).ok_or_else(bad_path)?;
    let watched = Arc::new(Watched::default());
    let mut all = registry();
    all.retain(|_, watched| watched.strong_count() > 0);
    all.insert((vfs.to_owned(), full), Arc::downgrade(&watched));
    Ok(watched)
}

/// The database that a file about to be opened belongs to.
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
    /// New marks: from now on each write to the main file adds to them, until they are dropped.
    pub(crate) fn marks(&self) -> Arc<Marks> {
        let marks = Arc::new(Marks::default());
        let mut all = lock(&self.marks);
        all.retain(|marks| marks.strong_count() > 0);
        all.push(Arc::downgrade(&marks));
        marks
    }

    /// Bytes of the `-wal` from its start to the end of the last write; what lies beyond is left over from before its
    /// last restart. 0 until the first write.
    pub(crate) fn wal_end(&self) -> u64 {
        self.wal_end.load(Ordering::Acquire)
    }

    /// Told after a write.
    pub(crate) fn wrote(&self, role: Role, at: u64, len: u64) {
        match role {
            Role::Wal => self.wal_end.store(at.saturating_add(len), Ordering::Release),
            Role::Main => self.each_marks(|marks| marks.add(at, len)),
        }
    }

    /// Told after a write: whether the file should be synced now, so that no later sync has much to write at once. A
    /// disk does one thing after another, and what a checkpoint syncs stands in the way of every log on the same disk.
    pub(crate) fn wants_sync(&self, role: Role, len: u64) -> bool {
        if role == Role::Wal {
            // Its syncs are not the writer's to wait for.
            return false;
        }
        let before = self.main_unsynced.fetch_add(len, Ordering::AcqRel);
        before.saturating_add(len) >= UNSYNCED_MAX
    }

    /// Syncs a file; `None` if a sync has failed before. After a failed sync the system may have dropped the written
    /// pages, and the next sync would still succeed. Several threads sync the `-wal`, so its syncs run one at a time:
    /// otherwise one could begin before it knows that another has failed.
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

    /// Told of a read that failed, other than by the end of the file.
    pub(crate) fn failed_to_read(&self) {
        self.failed_reads.fetch_add(1, Ordering::AcqRel);
    }

    /// How many did.
    pub(crate) fn failed_reads(&self) -> u64 {
        self.failed_reads.load(Ordering::Acquire)
    }

    /// Told after a file was cut or grown to `size`.
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
