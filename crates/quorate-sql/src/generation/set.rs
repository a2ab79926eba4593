//! All generations of a store: opening the one in force, building the next, switching to it.

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

/// What the directory of a generation under construction ends with.
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
    /// Opens the generation in force below `dir`, or makes an empty database with pages of `page_size` where there is
    /// none yet. What a crash left half built is removed. All readers get the extensions.
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
            Ok(None) => found_or_made(disk, dir, page_size)?,
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "CURRENT is written again: there is one generation that it can have named");
                the_only_one(disk.as_ref(), dir)?.ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        clean_up(disk.as_ref(), &db, number)?;
        let home = db.join(name(number));
        if !disk.exists(&home.join(DATABASE_FILE)).map_err(OpenError::disk(&home))? {
            let problem = "CURRENT names this generation, but it holds no database; let the node join anew";
            return Err(OpenError::layout(&home, problem));
        }
        let wal = home.join(format!("{DATABASE_FILE}-wal"));
        unsynced::make_good(disk.as_ref(), dir, &wal).map_err(OpenError::disk(&wal))?;
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

    /// The generation in force. Whoever keeps it keeps its files.
    pub fn current(&self) -> Arc<Generation> {
        Arc::clone(&lock(&self.current))
    }

    /// The number of the generation in force, without a lock.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Where temporary files of all its connections go.
    pub(crate) fn temp(&self) -> &TempSpace {
        &self.temp
    }

    /// Notes that the generation in force is damaged, so that the next start does not open it.
    pub fn note_damage(&self, what: &str) {
        damage::note(self.disk.as_ref(), &self.dir, what);
    }

    /// Notes that the disk failed, so that the next start relies on nothing that it may have lost in secret.
    pub fn note_unsynced(&self, what: &str) {
        unsynced::note(self.disk.as_ref(), &self.dir, what);
    }

    /// Begins the next generation with an empty database file. One at a time: beginning another takes the place of the
    /// first.
    pub fn stage(&self) -> Result<Staged, OpenError> {
        stage(&self.disk, &self.dir, self.number().saturating_add(1))
    }

    /// Puts a finished generation in force, so that it survives power loss, and retires the one before.
    ///
    /// No connection to the staged database may be open. After an error it is not known which of the two is in force:
    /// only opening the store again tells.
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

    /// Makes it durable under its final name, which is returned.
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
            // What can't be removed now is removed at the next start.
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

/// Without `CURRENT`: the one generation that is there (the node died before it could name it), else a new one.
fn found_or_made(disk: &Arc<dyn Disk>, dir: &Path, page_size: u32) -> Result<u64, OpenError> {
    if generations(disk.as_ref(), dir)?.is_empty() {
        build(disk, dir, FIRST, |vfs, path| connection::create_database(vfs, path, page_size))?;
    }
    let problem = "holds several generations, but CURRENT, which says which one, is gone";
    the_only_one(disk.as_ref(), dir)?.ok_or_else(|| OpenError::layout(&dir.join(DB_DIR), problem))
}

/// Puts in force the one generation that is there, if there is one alone.
fn the_only_one(disk: &dyn Disk, dir: &Path) -> Result<Option<u64>, OpenError> {
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

/// Makes the first generation of the store in `dir` and puts it in force. `fill` is given the VFS and the empty file,
/// and leaves a database in WAL mode that needs no `-wal`, with no connection open.
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
        return Err(OpenError::layout(&db, "holds a database already; choose an empty directory"));
    }
    build(disk, dir, FIRST, fill)?;
    pointer::write(disk.as_ref(), dir, FIRST).map_err(OpenError::disk(dir))
}

/// The database file of the generation in force, of a store that is not open; `None` if there never was one.
pub(crate) fn database_in_force(disk: &dyn Disk, dir: &Path) -> Result<Option<PathBuf>, OpenError> {
    let number = pointer::read(disk, dir)?;
    Ok(number.map(|number| dir.join(DB_DIR).join(name(number)).join(DATABASE_FILE)))
}

/// Makes a generation durable, but does not put it in force.
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
