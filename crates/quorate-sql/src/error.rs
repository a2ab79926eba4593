//! Why a store can't be opened.

use std::io;
use std::path::{Path, PathBuf};

use quorate_model::{StoreFault, StoreIdentity};

use crate::usage::NoMemory;
use crate::vfs::VfsError;

/// Why a store, or a connection to its database, can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is in use.
    #[error("{0} is in use by another process; stop it first")]
    InUse(PathBuf),
    /// A file operation failed.
    #[error("{path}: {source}")]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// SQLite could not open or prepare the database.
    #[error("{path}: {source}")]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// The error.
        source: rusqlite::Error,
    },
    /// The contents of the directory are not what they should be.
    #[error("{path}: {problem}")]
    Layout {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The database holds the data of another cluster, epoch or group.
    #[error("the database belongs to {found:?}, not to {expected:?}; give this node a directory of its own")]
    Identity {
        /// The identity that was expected.
        expected: StoreIdentity,
        /// The identity of the database.
        found: StoreIdentity,
    },
    /// The linked SQLite lacks what this crate requires.
    #[error("this SQLite can't be used: {0}")]
    Unsuitable(String),
    /// The VFS could not be created.
    #[error(transparent)]
    Vfs(#[from] VfsError),
    /// The store reported a fault.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

impl From<NoMemory> for OpenError {
    fn from(none: NoMemory) -> Self {
        Self::Fault(none.into())
    }
}

impl OpenError {
    /// Returns whether another attempt may succeed without help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::InUse(_) | Self::Disk { .. } | Self::Sqlite { .. } => true,
            Self::Fault(fault) => fault.is_retryable(),
            Self::Layout { .. } | Self::Identity { .. } | Self::Unsuitable(_) | Self::Vfs(_) => false,
        }
    }

    /// Returns whether the data are damaged: then only a copy from another node, or a backup, restores them.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            Self::Layout { .. } | Self::Fault(StoreFault::Damaged(_)) => true,
            Self::Sqlite { source, .. } => matches!(source.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase)),
            _ => false,
        }
    }

    pub(crate) fn disk(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        |source| Self::Disk { path, source }
    }

    pub(crate) fn sqlite(path: &Path) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        |source| Self::Sqlite { path, source }
    }

    pub(crate) fn layout(path: &Path, problem: impl Into<String>) -> Self {
        Self::Layout { path: path.to_path_buf(), problem: problem.into() }
    }
}
