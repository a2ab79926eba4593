//! The errors of replication.

use std::io;
use std::path::PathBuf;

use quorate_archive::ArchiveError;

/// Why a database can't be replicated or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicateError {
    /// SQLite refuses, or can't do it now.
    #[error("{during}: {source}")]
    Sqlite {
        /// What could not be done.
        during: &'static str,
        /// Why.
        source: rusqlite::Error,
    },
    /// A file of the database can't be read, or is damaged.
    #[error("{during}: {source}")]
    Io {
        /// What could not be done.
        during: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The database can't be in WAL mode.
    #[error(
        "the database is in journal mode '{0}', and only one in WAL mode can be replicated; SQLite refuses to change it"
    )]
    NotWal(String),
    /// Another file has the name of the database.
    #[error("the database was replaced by another file")]
    Replaced,
    /// There is no longer a file with the name of the database.
    #[error("the database is gone; if there is one again, it is archived instead")]
    Gone,
    /// The store did not answer in time when the loop had been told to stop.
    #[error("the last changes could not be archived in time; the next start archives them: {0}")]
    Late(String),
    /// The database is being changed faster than it can be looked at.
    #[error("the database changes too fast to be looked at; try again")]
    Unsteady,
    /// A boundary is still being read.
    #[error("the boundary before is still being read")]
    Busy,
    /// The archive can't be written or read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// What was restored is not a sound database.
    #[error("the restored database is not sound: {0}")]
    Unsound(String),
    /// The file to follow with is none that was made for it, or was changed by another program.
    #[error(
        "the file is no copy that `--follow` made, or another program has changed it: name another file, or remove it \
         together with the one that ends with '-position'"
    )]
    NoCopy,
    /// SQLite would take this file for a part of the database.
    #[error("'{0}' is left of another database: remove it first")]
    Companion(PathBuf),
    /// The size of the pages has changed.
    #[error(
        "the database has pages of {origin} bytes now, and the copy has pages of {copy} bytes: remove the copy, and \
         restore it again"
    )]
    PageSize {
        /// The size of the copy's pages.
        copy: u32,
        /// The size of the pages in the store.
        origin: u32,
    },
    /// The process ends.
    #[error("the process ends")]
    Closed,
}

impl ReplicateError {
    /// Whether the same work may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Sqlite { source, .. } => is_passing(source),
            Self::Io { source, .. } => source.kind() != io::ErrorKind::NotFound,
            Self::Archive(error) => error.is_retryable(),
            Self::Replaced | Self::Gone | Self::Unsteady | Self::Busy => true,
            Self::NotWal(_)
            | Self::Late(_)
            | Self::Unsound(_)
            | Self::NoCopy
            | Self::Companion(_)
            | Self::PageSize { .. }
            | Self::Closed => false,
        }
    }

    /// Whether another program has a lock on the file.
    pub(crate) fn is_busy(&self) -> bool {
        let Self::Sqlite { source, .. } = self else { return false };
        source.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
    }

    /// For `map_err`: an error of SQLite.
    pub(crate) fn sqlite(during: &'static str) -> impl Fn(rusqlite::Error) -> Self {
        move |source| Self::Sqlite { during, source }
    }

    /// For `map_err`: an error of a file.
    pub(crate) fn io(during: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { during, source }
    }
}

/// Whether an error of SQLite may be gone the next time.
fn is_passing(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed, OutOfMemory, SystemIoFailure,
    };
    let passing =
        [CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed, OutOfMemory, SystemIoFailure];
    error.sqlite_error_code().is_some_and(|code| passing.contains(&code))
}
