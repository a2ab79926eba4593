//! A backup: an image stored as a plain SQLite file, for any `sqlite3` and for [`restore`]. [`Replay`] makes one from
//! the files of an archive.
//!
//! Invariants:
//! - A file under its final name is complete, verified and durable: it is built under another name and renamed last. A
//!   replay leaves the name to its caller.
//! - A backup carries a checksum over all of it ([`seal`]), which is checked before anything is restored from it.
//! - A backup needs no other file: its journal mode is `delete`. If a `-wal` or a journal of that name exists, no
//!   backup is written and none is read, because SQLite would treat that file as a part of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_apply::{AppliedRow, check_level};
use quorate_env::Cause;
use quorate_env::disk::{Disk, OpenMode};
use quorate_model::limits::FORMAT_LEVEL;
use quorate_model::{Applied, GroupId, StoreFault, StoreIdentity};
use rusqlite::{Connection, ErrorCode};

use crate::authorizer::rules::is_reserved;
use crate::connection;
use crate::error::OpenError;
use crate::image::{self, Intake};
use crate::records::{applied_row, sessions};
use crate::vfs;

mod replay;
mod restore;
mod seal;
#[cfg(test)]
mod tests;

pub use replay::Replay;
pub use restore::{Take, epoch_of, restore};

/// The suffix of a backup under construction. The next backup replaces one that a killed process left.
pub const PARTIAL_SUFFIX: &str = ".partial";

/// The suffixes of the files that SQLite keeps next to a database.
const BESIDE: [&str; 2] = ["-journal", "-wal"];

/// The smallest page size that a store accepts: the block size of images.
const PAGE_SIZE_MIN: i64 = 4096;

/// The contents of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The cluster, epoch and group of the data.
    pub identity: StoreIdentity,
    /// The last applied entry, and the membership.
    pub applied: Applied,
    /// The size of the file in bytes.
    pub bytes: u64,
}

/// Why a backup can't be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A file of this name already exists.
    #[error("{} exists; choose another name, or have it replaced", .0.display())]
    Exists(PathBuf),
    /// SQLite would read this file as a part of the backup.
    #[error(
        "{} exists, and SQLite would treat it as a part of the backup; open and close the database that it \
         belongs to with sqlite3, or move it away", .0.display()
    )]
    Beside(PathBuf),
    /// The file is not a backup.
    #[error("{} is not a backup of Quorate: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// The file is damaged.
    #[error("{} is damaged: {what}; use another backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage that was found.
        what: String,
    },
    /// The file has a format that this version does not know.
    #[error("{} needs a newer version of Quorate: {what}; install that version", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// What this version does not know.
        what: String,
    },
    /// The data need functions or collations that this program does not register.
    #[error("{} can't be used by this program: {what}; use the program that the nodes run", path.display())]
    Extensions {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// Entries are missing.
    #[error("{}: entry {found} came after entry {after}; the entries between them are missing", path.display())]
    Gap {
        /// The file.
        path: PathBuf,
        /// The last entry before the gap.
        after: u64,
        /// The first entry after the gap.
        found: u64,
    },
    /// An entry takes more time or memory than this machine has.
    #[error("{}: entry {index}: {fault}; try again on another machine", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// The entry.
        index: u64,
        /// Why it can't be applied.
        #[source]
        fault: StoreFault,
    },
    /// The received image is incomplete.
    #[error("the backup is not whole: {0}; try again")]
    Lost(String),
    /// The operating system returned an error.
    #[error("{}: {source}", path.display())]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: Cause,
    },
}

impl FileError {
    /// Whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Disk { .. } | Self::Entry { .. })
    }

    fn disk(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |error| Self::Disk { path: path.to_path_buf(), source: Cause::from(error) }
    }

    fn fault(path: &Path) -> impl FnOnce(StoreFault) -> Self {
        let path = path.to_path_buf();
        |fault| match fault {
            StoreFault::Damaged(what) | StoreFault::Diverged(what) => Self::Damaged { path, what },
            StoreFault::Unsupported(what) => Self::Newer { path, what },
            StoreFault::ImageLost(what) => Self::Lost(what),
            StoreFault::Full(what) | StoreFault::Io(what) => Self::Disk { path, source: what.into() },
            StoreFault::Memory(_)
            | StoreFault::TooMuch(_)
            | StoreFault::Slow(_)
            | StoreFault::Stuck(_)
            | StoreFault::Closed => Self::Disk { path, source: Cause::from(fault) },
        }
    }

    /// The error for a fault which says that extensions are missing.
    fn extensions(path: &Path) -> impl FnOnce(StoreFault) -> Self {
        let path = path.to_path_buf();
        |fault| match fault {
            StoreFault::Unsupported(what) => Self::Extensions { path, what },
            fault => Self::fault(&path)(fault),
        }
    }

    fn open(path: &Path) -> impl FnOnce(OpenError) -> Self {
        let path = path.to_path_buf();
        |error| match error {
            OpenError::Fault(fault) => Self::fault(&path)(fault),
            OpenError::Disk { path, source } => Self::Disk { path, source: Cause::from(source) },
            OpenError::Sqlite { path, source } if is(&source, ErrorCode::NotADatabase) => {
                Self::Foreign { path, what: "it is not a SQLite database".to_owned() }
            }
            OpenError::Sqlite { path, source } if is(&source, ErrorCode::DatabaseCorrupt) => {
                Self::Damaged { path, what: source.to_string() }
            }
            OpenError::Sqlite { path, source } => Self::Disk { path, source: Cause::from(source) },
            other => Self::Disk { path, source: Cause::from(other) },
        }
    }
}

/// A backup under construction. Dropping it before [`BackupFile::finish`] removes the file. Its methods block.
pub struct BackupFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    partial: PathBuf,
    replaces: bool,
    intake: Option<Intake>,
}

impl BackupFile {
    /// Begins a backup with the final name `path`. `replaces` allows it to replace an existing file.
    pub fn create(disk: &Arc<dyn Disk>, path: &Path, replaces: bool) -> Result<Self, FileError> {
        check_free(disk.as_ref(), path, replaces)?;
        let partial = with_suffix(path, PARTIAL_SUFFIX);
        remove(disk.as_ref(), &partial).map_err(FileError::disk(&partial))?;
        let file = disk.open(&partial, OpenMode::CreateNew).map_err(FileError::disk(&partial))?;
        let intake = Some(Intake::new(file));
        Ok(Self { disk: Arc::clone(disk), path: path.to_path_buf(), partial, replaces, intake })
    }

    /// Takes the next piece of an image.
    pub fn write(&mut self, piece: &Bytes) -> Result<(), FileError> {
        let Some(intake) = &mut self.intake else { return Ok(()) };
        intake.write(piece).map_err(FileError::fault(&self.partial))
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.intake.as_ref().map_or(0, Intake::bytes)
    }

    /// Verifies the file after the last piece, makes it durable and renames it to its final name.
    pub fn finish(mut self) -> Result<Backup, FileError> {
        let (disk, partial) = (Arc::clone(&self.disk), self.partial.clone());
        let Some(intake) = self.intake.take() else { return Err(FileError::Lost("no piece arrived".to_owned())) };
        let finish = || {
            let (identity, log_id) = intake.finish().map_err(FileError::fault(&partial))?;
            let vfs = vfs_of(disk.as_ref(), &partial)?;
            let conn = connection::open_alone(&vfs, &partial).map_err(FileError::open(&partial))?;
            connection::set_journal_mode(&conn, &partial, "delete").map_err(FileError::open(&partial))?;
            drop(conn);
            let row = image::verify(&vfs, &partial, identity, log_id, None).map_err(FileError::fault(&partial))?;
            let file = disk.open(&partial, OpenMode::ReadWrite).map_err(FileError::disk(&partial))?;
            seal::seal(&*file).map_err(FileError::disk(&partial))?;
            file.sync_data().map_err(FileError::disk(&partial))?;
            let bytes = file.len().map_err(FileError::disk(&partial))?;
            check_free(disk.as_ref(), &self.path, self.replaces)?;
            disk.rename(&partial, &self.path).map_err(FileError::disk(&self.path))?;
            let dir = dir_of(&self.path);
            disk.sync_dir(dir).map_err(FileError::disk(dir))?;
            Ok(Backup { identity, applied: row.applied, bytes })
        };
        finish().inspect_err(|_| drop(remove(disk.as_ref(), &partial)))
    }
}

impl Drop for BackupFile {
    fn drop(&mut self) {
        if self.intake.take().is_some() {
            // If the removal fails, the next backup of this name replaces the file.
            let _ = remove(self.disk.as_ref(), &self.partial);
        }
    }
}

/// Returns the contents of a backup after checking the whole file. Blocks while it reads the file.
pub fn inspect(disk: &dyn Disk, path: &Path) -> Result<Backup, FileError> {
    let found = Found::open(disk, path)?;
    let row = found.row()?.ok_or_else(|| found.foreign("it is a SQLite database of another origin"))?;
    check_level(row.applied.level, FORMAT_LEVEL).map_err(FileError::fault(path))?;
    seal::check(disk, path)?;
    found.check()?;
    sessions::check_tables(&found.conn).map_err(|error| found.damaged(error.to_string()))?;
    Ok(Backup { identity: row.identity, applied: row.applied, bytes: found.bytes })
}

/// Checks whether a SQLite database of another origin can be restored like a backup, with epoch 0 and nothing applied.
/// Blocks while it reads the file.
pub fn inspect_plain(disk: &dyn Disk, path: &Path) -> Result<Backup, FileError> {
    let found = Found::open(disk, path)?;
    if found.row()?.is_some() {
        return Err(found.foreign("it is a backup of Quorate, not a plain database"));
    }
    found.check()?;
    let unsuitable = unsuitable(&found.conn).map_err(|error| found.damaged(error.to_string()))?;
    unsuitable.map_or(Ok(()), |what| Err(found.foreign(&what)))?;
    let identity = StoreIdentity { group: GroupId::MAIN, ..StoreIdentity::default() };
    Ok(Backup { identity, applied: Applied::default(), bytes: found.bytes })
}

/// The property of a plain database that a store can't work with, if there is one.
fn unsuitable(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let encoding: String = conn.query_row("PRAGMA encoding", [], |row| row.get(0))?;
    if encoding != "UTF-8" {
        return Ok(Some(format!("its encoding is {encoding}; copy its tables into a UTF-8 database")));
    }
    let page_size: i64 = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    if page_size < PAGE_SIZE_MIN {
        let text = format!("its pages have {page_size} bytes; run PRAGMA page_size = {PAGE_SIZE_MIN} and VACUUM on it");
        return Ok(Some(text));
    }
    let mut statement = conn.prepare("SELECT name FROM sqlite_schema")?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    let reserved = names.into_iter().find(|name| is_reserved(name));
    Ok(reserved.map(|name| format!("its name '{name}' is reserved for Quorate; rename it")))
}

/// A file under inspection, which nobody writes meanwhile.
struct Found {
    path: PathBuf,
    conn: Connection,
    bytes: u64,
}

impl Found {
    fn open(disk: &dyn Disk, path: &Path) -> Result<Self, FileError> {
        for beside in BESIDE.map(|suffix| with_suffix(path, suffix)) {
            if disk.exists(&beside).map_err(FileError::disk(&beside))? {
                return Err(FileError::Beside(beside));
            }
        }
        let bytes = disk.open(path, OpenMode::Read).and_then(|file| file.len()).map_err(FileError::disk(path))?;
        let vfs = vfs_of(disk, path)?;
        let conn = connection::open_immutable(&vfs, path).map_err(FileError::open(path))?;
        Ok(Self { path: path.to_path_buf(), conn, bytes })
    }

    /// The applied row, if the file is the database of a store.
    fn row(&self) -> Result<Option<AppliedRow>, FileError> {
        applied_row::read(&self.conn).map_err(|fault| {
            // The error of reading the first page tells a damaged database from another file.
            let opened: rusqlite::Result<i64> = self.conn.query_row("PRAGMA schema_version", [], |row| row.get(0));
            let is_none = opened.is_err_and(|error| is(&error, ErrorCode::NotADatabase));
            if is_none { self.foreign("it is not a SQLite database") } else { FileError::fault(&self.path)(fault) }
        })
    }

    fn check(&self) -> Result<(), FileError> {
        match image::quick_check(&self.conn) {
            Ok(verdict) if verdict == "ok" => Ok(()),
            Ok(verdict) => Err(self.damaged(verdict)),
            Err(error) => Err(self.damaged(error.to_string())),
        }
    }

    fn foreign(&self, what: &str) -> FileError {
        FileError::Foreign { path: self.path.clone(), what: what.to_owned() }
    }

    fn damaged(&self, what: String) -> FileError {
        FileError::Damaged { path: self.path.clone(), what }
    }
}

fn is(error: &rusqlite::Error, code: ErrorCode) -> bool {
    error.sqlite_error_code() == Some(code)
}

/// Fails if a backup of this name can't be written.
fn check_free(disk: &dyn Disk, path: &Path, replaces: bool) -> Result<(), FileError> {
    let exists = |path: &Path| disk.exists(path).map_err(FileError::disk(path));
    if !replaces && exists(path)? {
        return Err(FileError::Exists(path.to_path_buf()));
    }
    for beside in BESIDE.map(|suffix| with_suffix(path, suffix)) {
        if exists(&beside)? {
            return Err(FileError::Beside(beside));
        }
    }
    Ok(())
}

/// Removes a backup under construction, or a file that was restored, if it exists, and the files that SQLite made next
/// to it.
///
/// # Errors
///
/// Returns the error of the operating system.
pub fn remove(disk: &dyn Disk, partial: &Path) -> io::Result<()> {
    let beside = BESIDE.iter().map(|suffix| with_suffix(partial, suffix));
    for path in beside.chain([partial.to_path_buf()]) {
        if disk.exists(&path)? {
            disk.remove_file(&path)?;
        }
    }
    Ok(())
}

fn vfs_of(disk: &dyn Disk, path: &Path) -> Result<String, FileError> {
    vfs::over(disk.sqlite_vfs().as_deref()).map_err(|error| FileError::open(path)(error.into()))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The directory of a file.
fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
