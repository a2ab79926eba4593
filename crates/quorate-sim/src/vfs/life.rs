//! The resources that a life of a node gives to SQLite: files by path, the clock, and randomness.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use quorate_env::disk::{Disk, OpenMode};
use quorate_env::{Rng, WallClock, lock};
use rusqlite::ffi;

use super::file::{OpenFile, Shared};

/// Milliseconds from the beginning of SQLite's calendar (noon of 24 November 4714 BC) to 1970.
const JULIAN_MILLIS: i64 = 210_866_760_000_000;

/// Kinds of files whose name must become durable with the first sync of the file.
const JOURNALS: c_int = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;

/// The disk, clock and randomness of a life.
pub(super) struct Life {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn WallClock>,
    rng: Rng,
    /// The shared state of each file that has open handles.
    shared: Mutex<BTreeMap<PathBuf, Weak<Shared>>>,
    opened: AtomicU64,
}

impl Life {
    pub(super) fn new(disk: Arc<dyn Disk>, clock: Arc<dyn WallClock>, rng: Rng) -> Self {
        Self { disk, clock, rng, shared: Mutex::default(), opened: AtomicU64::new(0) }
    }

    /// Opens a file; one without a name is temporary.
    pub(super) fn open(self: Arc<Self>, name: Option<&str>, flags: c_int) -> Result<OpenFile, c_int> {
        let id = self.opened.fetch_add(1, Ordering::Relaxed);
        // The name is random, as SQLite's own are, because a life that was killed leaves its temporary files behind.
        let temporary_name = || PathBuf::from(format!("/sqlite-temporary-{:016x}", self.rng.next_u64()));
        let path = name.map_or_else(temporary_name, PathBuf::from);
        let cant_open = |_: io::Error| ffi::SQLITE_CANTOPEN;
        let creates = flags & ffi::SQLITE_OPEN_CREATE != 0;
        let mode = match (creates, flags & ffi::SQLITE_OPEN_READWRITE != 0) {
            (true, _) if flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0 => OpenMode::CreateNew,
            (true, _) => OpenMode::Create,
            (false, true) => OpenMode::ReadWrite,
            (false, false) => OpenMode::Read,
        };
        let is_new = creates && !self.disk.exists(&path).map_err(cant_open)?;
        let file = self.disk.open(&path, mode).map_err(cant_open)?;
        let shared = self.shared(&path);
        let name_unsynced = is_new && flags & JOURNALS != 0;
        let temporary = name.is_none() || flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0;
        Ok(OpenFile::new(id, self, path, file, shared, name_unsynced, temporary))
    }

    /// Whether the disk has room for this many bytes more.
    pub(super) fn has_room(&self, path: &Path, bytes: usize) -> bool {
        self.disk.space(path).is_ok_and(|space| space.available >= bytes as u64)
    }

    /// Removes a file, and makes the removal durable if `sync_dir` is set.
    pub(super) fn delete(&self, path: &Path, sync_dir: bool) -> c_int {
        match self.disk.remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => ffi::SQLITE_IOERR_DELETE_NOENT,
            Err(_) => ffi::SQLITE_IOERR_DELETE,
            Ok(()) if sync_dir => self.sync_dir(path),
            Ok(()) => ffi::SQLITE_OK,
        }
    }

    /// Makes the name of a file durable.
    pub(super) fn sync_dir(&self, path: &Path) -> c_int {
        match self.disk.sync_dir(path.parent().unwrap_or(path)) {
            Ok(()) => ffi::SQLITE_OK,
            Err(_) => ffi::SQLITE_IOERR_DIR_FSYNC,
        }
    }

    /// Whether a file exists, or may be used. As in SQLite's own VFS, an empty file does not exist.
    pub(super) fn access(&self, path: &Path, how: c_int) -> bool {
        let file = self.disk.open(path, OpenMode::Read);
        file.is_ok_and(|file| how != ffi::SQLITE_ACCESS_EXISTS || file.len().is_ok_and(|len| len > 0))
    }

    pub(super) fn randomness(&self, bytes: &mut [u8]) {
        self.rng.fill(bytes);
    }

    /// Returns the time in milliseconds of SQLite's calendar.
    pub(super) fn julian_millis(&self) -> i64 {
        let millis = i64::try_from(self.clock.unix_nanos() / 1_000_000).unwrap_or(i64::MAX);
        JULIAN_MILLIS.saturating_add(millis)
    }

    fn shared(&self, path: &Path) -> Arc<Shared> {
        let mut all = lock(&self.shared);
        all.retain(|_, shared| shared.strong_count() > 0);
        if let Some(shared) = all.get(path).and_then(Weak::upgrade) {
            return shared;
        }
        let shared = Arc::new(Shared::default());
        all.insert(path.to_path_buf(), Arc::downgrade(&shared));
        shared
    }
}
