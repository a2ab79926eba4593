//! All generations of a store: opens the current one, builds the next, and switches to it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use quorate_env::disk::{DirLock, Disk, OpenMode};
use quorate_env::lock;

use super::{DATABASE_FILE, Generation, damage, pointer, unsynced};
use crate::connection;
use crate::error::OpenError;
use crate::extensions::Extensions;
use crate::usage::TempSpace;
use crate::vfs;

/// The directory of generations.
pub(super) const DB_DIR: &str = "db";

/// The number of a store's first generation.
const FIRST: u64 = 1;

/// The suffix of the directory of a generation under construction.
const STAGED_SUFFIX: &str = ".new";

/// The generations of one store.
#[derive(Debug)]
pub struct Generations {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    current: Mutex<Arc<Generation>>,
    number: AtomicU64,
    extensions: Extensions,
    temp: Arc<TempSpace>,
    _lock: Box<dyn DirLock>,
}

impl Generations {
    /// Opens the current generation below `dir`, or creates an empty database with pages of `page_size` bytes if there
    /// is none yet. Removes generations that a crash left incomplete. All readers get the extensions.
    pub fn open(disk: &Arc<dyn Disk>, dir: &Path, page_size: u32, extensions: Extensions) -> Result<Self, OpenError> {
        let db = dir.join(DB_DIR);
        disk.create_dir_all(&db).map_err(OpenError::disk(&db))?;
        disk.sync_dir(dir).map_err(OpenError::disk(dir))?;
        let lock = disk.lock_dir(&db).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => OpenError::InUse(db.clone()),
            _ => OpenError::disk(&db)(error),
        })?;
        damage::check(disk.as_ref(), dir)?;
        let number = match pointer::read(disk.as_ref(), dir) {
            Ok(Some(number)) => number,
            Ok(None) => find_or_create(disk, dir, page_size)?,
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "CURRENT is damaged; it is written again, because there is only one generation");
                adopt_only_generation(disk.as_ref(), dir)?.ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        clean_up(disk.as_ref(), &db, number)?;
        let home = db.join(name(number));
        if !disk.exists(&home.join(DATABASE_FILE)).map_err(OpenError::disk(&home))? {
            let problem =
                "CURRENT names this generation, but it contains no database; let the node join the cluster again";
            return Err(OpenError::layout(&home, problem));
        }
        let wal = home.join(format!("{DATABASE_FILE}-wal"));
        unsynced::rewrite_wal(disk.as_ref(), dir, &wal).map_err(OpenError::disk(&wal))?;
        let temp = TempSpace::make(disk, &vfs::over(disk.sqlite_vfs().as_deref())?, dir)?;
        let current = Generation::open(disk, home, number, &extensions, &temp)?;
        Ok(Self {
            disk: Arc::clone(disk),
            dir: dir.to_path_buf(),
            current: Mutex::new(current),
            number: AtomicU64::new(number),
            extensions,
            temp,
            _lock: lock,
        })
    }

    /// The current generation. The caller keeps its files in place while it holds the `Arc`.
    pub fn current(&self) -> Arc<Generation> {
        Arc::clone(&lock(&self.current))
    }

    /// The number of the current generation, without taking a lock.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// The space for temporary files of all connections.
    pub(crate) fn temp(&self) -> &TempSpace {
        &self.temp
    }

    /// Records that the current generation is damaged, so that the next start does not open it.
    pub fn note_damage(&self, what: &str) {
        damage::note(self.disk.as_ref(), &self.dir, what);
    }

    /// Records a failure of the disk, so that the next start does not rely on data that the disk may not hold.
    pub fn note_unsynced(&self, what: &str) {
        unsynced::note(self.disk.as_ref(), &self.dir, what);
    }

    /// Begins the next generation with an empty database file. Only one exists at a time: beginning another replaces
    /// the first.
    pub fn stage(&self) -> Result<Staged, OpenError> {
        stage(&self.disk, &self.dir, self.number().saturating_add(1))
    }

    /// Makes a finished generation current and durable, and retires the previous one.
    ///
    /// No connection to the staged database may be open. After an error it is unknown which of the two is current until
    /// the store is opened again.
    pub fn publish(&self, staged: Staged) -> Result<Arc<Generation>, OpenError> {
        let number = staged.number;
        let home = staged.publish()?;
        pointer::write(self.disk.as_ref(), &self.dir, number).map_err(OpenError::disk(&self.dir))?;
        damage::forget(self.disk.as_ref(), &self.dir).map_err(OpenError::disk(&self.dir))?;
        let next = Generation::open(&self.disk, home, number, &self.extensions, &self.temp)?;
        let mut current = lock(&self.current);
        current.retire();
        *current = Arc::clone(&next);
        self.number.store(number, Ordering::Release);
        Ok(next)
    }
}

/// A generation under construction. Dropping it removes it.
#[derive(Debug)]
pub struct Staged {
    disk: Arc<dyn Disk>,
    db: PathBuf,
    number: u64,
    published: bool,
}

impl Staged {
    /// The path of its database file.
    pub fn path(&self) -> PathBuf {
        self.dir().join(DATABASE_FILE)
    }

    fn dir(&self) -> PathBuf {
        self.db.join(name(self.number) + STAGED_SUFFIX)
    }

    /// Makes it durable under its final name, and returns that path.
    fn publish(mut self) -> Result<PathBuf, OpenError> {
        let (from, to) = (self.dir(), self.db.join(name(self.number)));
        self.disk.sync_dir(&from).map_err(OpenError::disk(&from))?;
        self.disk.rename(&from, &to).map_err(OpenError::disk(&to))?;
        self.disk.sync_dir(&self.db).map_err(OpenError::disk(&self.db))?;
        self.published = true;
        Ok(to)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published {
            // If the removal fails, the next start removes it.
            let _ = self.disk.remove_dir_all(&self.dir());
        }
    }
}

fn name(number: u64) -> String {
    format!("{number:08}")
}

fn stage(disk: &Arc<dyn Disk>, dir: &Path, number: u64) -> Result<Staged, OpenError> {
    let staged = Staged { disk: Arc::clone(disk), db: dir.join(DB_DIR), number, published: false };
    let home = staged.dir();
    if disk.exists(&home).map_err(OpenError::disk(&home))? {
        disk.remove_dir_all(&home).map_err(OpenError::disk(&home))?;
    }
    disk.create_dir_all(&home).map_err(OpenError::disk(&home))?;
    let path = staged.path();
    disk.open(&path, OpenMode::CreateNew).map_err(OpenError::disk(&path))?;
    Ok(staged)
}

/// Handles a missing `CURRENT`: uses the only generation (the node died before it could name it), or creates one if
/// there is none.
fn find_or_create(disk: &Arc<dyn Disk>, dir: &Path, page_size: u32) -> Result<u64, OpenError> {
    if generations(disk.as_ref(), dir)?.is_empty() {
        build(disk, dir, FIRST, |vfs, path| connection::create_database(vfs, path, page_size))?;
    }
    let problem = "contains several generations, but the file CURRENT, which names the current one, is missing";
    adopt_only_generation(disk.as_ref(), dir)?.ok_or_else(|| OpenError::layout(&dir.join(DB_DIR), problem))
}

/// Makes the only generation current. Returns `None` unless there is exactly one.
fn adopt_only_generation(disk: &dyn Disk, dir: &Path) -> Result<Option<u64>, OpenError> {
    let [only] = *generations(disk, dir)? else { return Ok(None) };
    pointer::write(disk, dir, only).map_err(OpenError::disk(dir))?;
    Ok(Some(only))
}

/// The numbers of all finished generations.
fn generations(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>, OpenError> {
    let db = dir.join(DB_DIR);
    let items = disk.list(&db).map_err(OpenError::disk(&db))?;
    Ok(items.iter().filter(|item| item.is_dir).filter_map(|item| item.name.parse().ok()).collect())
}

/// Creates the first generation of the store in `dir` and makes it current. `fill` gets the VFS and the empty file. It
/// must leave a database in WAL mode that needs no `-wal`, and close all connections.
pub fn make_first(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    fill: impl FnOnce(&str, &Path) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let db = dir.join(DB_DIR);
    disk.create_dir_all(&db).map_err(OpenError::disk(&db))?;
    disk.sync_dir(dir).map_err(OpenError::disk(dir))?;
    let is_taken = disk.list(&db).map_err(OpenError::disk(&db))?.iter().any(|item| item.is_dir);
    if is_taken || pointer::read(disk.as_ref(), dir)?.is_some() {
        return Err(OpenError::layout(&db, "already contains a database; choose an empty directory"));
    }
    build(disk, dir, FIRST, fill)?;
    pointer::write(disk.as_ref(), dir, FIRST).map_err(OpenError::disk(dir))
}

/// The database file of the current generation of a store that is not open; `None` if there never was one.
pub(crate) fn current_database(disk: &dyn Disk, dir: &Path) -> Result<Option<PathBuf>, OpenError> {
    let number = pointer::read(disk, dir)?;
    Ok(number.map(|number| dir.join(DB_DIR).join(name(number)).join(DATABASE_FILE)))
}

/// Builds a durable generation without making it current.
fn build(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    number: u64,
    fill: impl FnOnce(&str, &Path) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let staged = stage(disk, dir, number)?;
    fill(&vfs::over(disk.sqlite_vfs().as_deref())?, &staged.path())?;
    sync_file(disk.as_ref(), &staged.path())?;
    staged.publish().map(drop)
}

/// Syncs a file that nobody else has open.
fn sync_file(disk: &dyn Disk, path: &Path) -> Result<(), OpenError> {
    disk.open(path, OpenMode::ReadWrite).and_then(|file| file.sync_data()).map_err(OpenError::disk(path))
}

/// Removes all generations but one, finished or not.
fn clean_up(disk: &dyn Disk, db: &Path, keep: u64) -> Result<(), OpenError> {
    let keep = name(keep);
    for item in disk.list(db).map_err(OpenError::disk(db))? {
        if item.is_dir && item.name != keep {
            let path = db.join(&item.name);
            disk.remove_dir_all(&path).map_err(OpenError::disk(&path))?;
        }
    }
    Ok(())
}
