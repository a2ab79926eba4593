//! A backup: an image kept as a plain SQLite file, for any `sqlite3` and for a [`restore`].
//!
//! Invariants:
//! - A file under its final name is whole, verified and durable: it is built under another name and renamed last.
//! - A backup carries a checksum over all of it ([`seal`]), which is checked before anything is restored from it.
//! - A backup needs no other file beside it: its journal mode is `delete`. Where a `-wal` or a journal of that name
//!   lies, none is made and none is read, because SQLite would take that for a part of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::disk::{Disk, OpenMode};
use quorate_model::{Applied, GroupId, StoreFault};
use rusqlite::{Connection, ErrorCode};

use crate::applied_row::AppliedRow;
use crate::authorizer::rules::is_reserved;
use crate::connection;
use crate::error::OpenError;
use crate::identity::StoreIdentity;
use crate::image::{self, Intake};
use crate::session;
use crate::vfs;

mod restore;
mod seal;
#[cfg(test)]
mod tests;

pub use restore::{epoch_of, restore};

/// What the name of a backup under construction ends with. One that a killed process left is replaced by the next.
pub const PARTIAL_SUFFIX: &str = ".partial";

/// What SQLite keeps beside a database, by the ends of the names.
const BESIDE: [&str; 2] = ["-journal", "-wal"];

/// Bytes of the smallest pages that a store works with: those of an image's blocks.
const PAGE_SIZE_MIN: i64 = 4096;

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
            StoreFault::Damaged(what) | StoreFault::Diverged(what) => Self::Damaged { path, what },
            StoreFault::Unsupported(what) => Self::Newer { path, what },
            StoreFault::ImageLost(what) => Self::Lost(what),
            StoreFault::Full(what) | StoreFault::Io(what) => Self::Disk { path, what },
            StoreFault::Memory(_)
            | StoreFault::TooMuch(_)
            | StoreFault::Slow(_)
            | StoreFault::Stuck(_)
            | StoreFault::Closed => Self::Disk { path, what: fault.to_string() },
        }
    }

    fn open(path: &Path) -> impl FnOnce(OpenError) -> Self {
        let path = path.to_path_buf();
        |error| match error {
            OpenError::Fault(fault) => Self::fault(&path)(fault),
            OpenError::Disk { path, source } => Self::Disk { path, what: source.to_string() },
            OpenError::Sqlite { path, source } if is(&source, ErrorCode::NotADatabase) => {
                Self::Foreign { path, what: "it is no SQLite database".to_owned() }
            }
            OpenError::Sqlite { path, source } if is(&source, ErrorCode::DatabaseCorrupt) => {
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
            // What can't be removed now is replaced by the next backup of this name.
            let _ = remove(self.disk.as_ref(), &self.partial);
        }
    }
}

/// Says what a backup holds, after a look at all of it. Blocks, as long as reading the file takes.
pub fn inspect(disk: &dyn Disk, path: &Path) -> Result<Backup, FileError> {
    let found = Found::open(disk, path)?;
    let row = found.row()?.ok_or_else(|| found.foreign("it is a SQLite database of another origin"))?;
    seal::check(disk, path)?;
    found.check()?;
    session::check_tables(&found.conn).map_err(|error| found.damaged(error.to_string()))?;
    Ok(Backup { identity: row.identity, applied: row.applied, bytes: found.bytes })
}

/// Says whether a SQLite database of another origin can be restored as if it were a backup, of an epoch 0 in which
/// nothing was applied. Blocks, as long as reading the file takes.
pub fn inspect_plain(disk: &dyn Disk, path: &Path) -> Result<Backup, FileError> {
    let found = Found::open(disk, path)?;
    if found.row()?.is_some() {
        return Err(found.foreign("it is no plain database: it is a backup of Quorate"));
    }
    found.check()?;
    let unsuitable = unsuitable(&found.conn).map_err(|error| found.damaged(error.to_string()))?;
    unsuitable.map_or(Ok(()), |what| Err(found.foreign(&what)))?;
    let identity = StoreIdentity { group: GroupId::MAIN, ..StoreIdentity::default() };
    Ok(Backup { identity, applied: Applied::default(), bytes: found.bytes })
}

/// What of a plain database a store can't work with.
fn unsuitable(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let encoding: String = conn.query_row("PRAGMA encoding", [], |row| row.get(0))?;
    if encoding != "UTF-8" {
        return Ok(Some(format!("its encoding is {encoding}; copy its tables into a database of UTF-8")));
    }
    let page_size: i64 = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    if page_size < PAGE_SIZE_MIN {
        let text = format!("its pages have {page_size} bytes; run PRAGMA page_size = {PAGE_SIZE_MIN} and VACUUM on it");
        return Ok(Some(text));
    }
    let mut statement = conn.prepare("SELECT name FROM sqlite_schema")?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    let reserved = names.into_iter().find(|name| is_reserved(name));
    Ok(reserved.map(|name| format!("'{name}' in it is a name of Quorate's; rename it")))
}

/// A file that is looked at: nobody writes it meanwhile.
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

    /// The applied row, if it is a store's database.
    fn row(&self) -> Result<Option<AppliedRow>, FileError> {
        AppliedRow::read(&self.conn).map_err(|fault| {
            // A damaged database, or a file that is none: the first page decides.
            let opened: rusqlite::Result<i64> = self.conn.query_row("PRAGMA schema_version", [], |row| row.get(0));
            let is_none = opened.is_err_and(|error| is(&error, ErrorCode::NotADatabase));
            if is_none { self.foreign("it is no SQLite database") } else { FileError::fault(&self.path)(fault) }
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
