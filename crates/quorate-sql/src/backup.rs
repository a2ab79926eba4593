//! A backup: an image kept as a plain SQLite file, for any `sqlite3` and for a restore.
//!
//! Invariants:
//! - A file under its final name is whole, verified and durable: it is built under another name and renamed last.
//! - A backup needs no other file beside it: its journal mode is `delete`. Where a `-wal` or a journal of that name
//!   lies, none is made and none is read, because SQLite would take that for a part of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::disk::{Disk, OpenMode};
use quorate_model::{Applied, StoreFault};
use rusqlite::Connection;

use crate::applied_row::AppliedRow;
use crate::connection;
use crate::error::OpenError;
use crate::image::{self, Intake};
use crate::options::StoreIdentity;
use crate::session;
use crate::vfs;

#[cfg(test)]
mod tests;

/// What the name of a backup under construction ends with. One that a killed process left is replaced by the next.
pub const PARTIAL_SUFFIX: &str = ".partial";

/// What SQLite keeps beside a database, by the ends of the names.
const BESIDE: [&str; 2] = ["-journal", "-wal"];

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Whose data it is.
    pub identity: StoreIdentity,
    /// Up to which entry, and under which membership.
    pub applied: Applied,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Why a backup can't be made, or can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// There is something of this name already.
    #[error("{} exists; choose another name, or have it replaced", .0.display())]
    Exists(PathBuf),
    /// SQLite would read this file as a part of the backup.
    #[error(
        "{} lies beside it, and SQLite would take that for a part of the backup; open and close the database that it \
         belongs to with sqlite3, or move it away", .0.display()
    )]
    Beside(PathBuf),
    /// The file is something else.
    #[error("{} is no backup of Quorate: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// The file is damaged.
    #[error("{} is damaged: {what}; use another backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The file is of a format that this version does not know.
    #[error("{} is of a newer version: {what}; install that", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// What is not known.
        what: String,
    },
    /// What arrived is no whole image.
    #[error("the backup is not whole: {0}; try again")]
    Lost(String),
    /// The system refused something.
    #[error("{}: {what}", path.display())]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        what: String,
    },
}

impl FileError {
    /// Whether the same call may succeed later without help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Disk { .. })
    }

    fn disk(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |error| Self::Disk { path: path.to_path_buf(), what: error.to_string() }
    }

    fn fault(path: &Path) -> impl FnOnce(StoreFault) -> Self {
        let path = path.to_path_buf();
        |fault| match fault {
            StoreFault::Damaged(what) => Self::Damaged { path, what },
            StoreFault::Unsupported(what) => Self::Newer { path, what },
            StoreFault::ImageLost(what) => Self::Lost(what),
            StoreFault::Full(what) | StoreFault::Io(what) => Self::Disk { path, what },
            StoreFault::Closed => Self::Disk { path, what: fault.to_string() },
        }
    }

    fn open(path: &Path) -> impl FnOnce(OpenError) -> Self {
        let path = path.to_path_buf();
        |error| match error {
            OpenError::Fault(fault) => Self::fault(&path)(fault),
            OpenError::Disk { path, source } => Self::Disk { path, what: source.to_string() },
            OpenError::Sqlite { path, source } if is_corrupt(&source) => {
                Self::Damaged { path, what: source.to_string() }
            }
            OpenError::Sqlite { path, source } => Self::Disk { path, what: source.to_string() },
            other => Self::Disk { path, what: other.to_string() },
        }
    }
}

/// A backup under construction. Dropped before [`BackupFile::finish`], it leaves nothing behind. Its calls block.
pub struct BackupFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    partial: PathBuf,
    replaces: bool,
    intake: Option<Intake>,
}

impl BackupFile {
    /// Begins a backup that is to be called `path`; `replaces` says that something of that name may go.
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

    /// After the last piece: verifies the file, makes it durable and gives it its name.
    pub fn finish(mut self) -> Result<Backup, FileError> {
        let (disk, partial) = (Arc::clone(&self.disk), self.partial.clone());
        let Some(intake) = self.intake.take() else { return Err(FileError::Lost("nothing came".to_owned())) };
        let finish = || {
            let (identity, log_id) = intake.finish().map_err(FileError::fault(&partial))?;
            let vfs = vfs_of(disk.as_ref(), &partial)?;
            connection::set_journal_mode(&vfs, &partial, "delete").map_err(FileError::open(&partial))?;
            let row = image::verify(&vfs, &partial, identity, log_id).map_err(FileError::fault(&partial))?;
            let file = disk.open(&partial, OpenMode::ReadWrite).map_err(FileError::disk(&partial))?;
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
            // What can't be removed now is replaced by the next backup of this name.
            let _ = remove(self.disk.as_ref(), &self.partial);
        }
    }
}

/// Says what a backup holds, after a look at all of it. Blocks, as long as reading the file takes.
pub fn inspect(disk: &dyn Disk, path: &Path) -> Result<Backup, FileError> {
    for beside in BESIDE.map(|suffix| with_suffix(path, suffix)) {
        if disk.exists(&beside).map_err(FileError::disk(&beside))? {
            return Err(FileError::Beside(beside));
        }
    }
    let bytes = disk.open(path, OpenMode::Read).and_then(|file| file.len()).map_err(FileError::disk(path))?;
    let foreign = |what: &str| FileError::Foreign { path: path.to_path_buf(), what: what.to_owned() };
    let damaged = |what: String| FileError::Damaged { path: path.to_path_buf(), what };
    let conn = match connection::open_immutable(&vfs_of(disk, path)?, path) {
        Err(OpenError::Sqlite { source, .. }) if is_no_database(&source) => {
            return Err(foreign("it is no SQLite database"));
        }
        opened => opened.map_err(FileError::open(path))?,
    };
    let row = match AppliedRow::read(&conn) {
        Ok(row) => row.ok_or_else(|| foreign("it is a SQLite database of another origin"))?,
        Err(fault) => return Err(explained(&conn, fault, path)),
    };
    let verdict = image::quick_check(&conn).map_err(|error| damaged(error.to_string()))?;
    if verdict != "ok" {
        return Err(damaged(verdict));
    }
    session::check_tables(&conn).map_err(|error| damaged(error.to_string()))?;
    Ok(Backup { identity: row.identity, applied: row.applied, bytes })
}

/// Tells a damaged database from a file that is none: the header decides, which SQLite reads with the first page.
fn explained(conn: &Connection, fault: StoreFault, path: &Path) -> FileError {
    let opened: rusqlite::Result<i64> = conn.query_row("PRAGMA schema_version", [], |row| row.get(0));
    match opened {
        Err(error) if is_no_database(&error) => {
            FileError::Foreign { path: path.to_path_buf(), what: "it is no SQLite database".to_owned() }
        }
        _ => FileError::fault(path)(fault),
    }
}

fn is_corrupt(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt)
}

fn is_no_database(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase)
}

/// Fails where a backup of this name can't be made.
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

/// Removes a backup under construction with what SQLite made beside it.
fn remove(disk: &dyn Disk, partial: &Path) -> io::Result<()> {
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
