//! What can go wrong, by operation.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_model::{GroupId, LogId};
use thiserror::Error;

/// Why a log can't be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Something that was acknowledged is damaged or missing. The node must come back as a new member with an empty
    /// directory, never under its old Raft id: it has promised what it no longer holds.
    #[error("{} is damaged at byte {offset}: {what}; rejoin as a new member, with an empty directory", path.display())]
    Corrupt {
        /// The segment, or the directory.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The disk failed, or it is full. Nothing was lost by that.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has this log open.
    #[error("the log in {} is in use; is the node already running?", dir.display())]
    Busy {
        /// The directory.
        dir: PathBuf,
    },
    /// A later version of Quorate wrote this.
    #[error("{} has format {version}, which this version does not know; run the version that wrote it", path.display())]
    Version {
        /// The segment.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// What the log would have to repeat at the start of each segment is too long, or its numbers are used up.
    #[error(transparent)]
    Limit(WalError),
}

impl From<WalError> for OpenError {
    fn from(error: WalError) -> Self {
        match error {
            WalError::Io { action, path, source } => {
                Self::Io { action, path, source: io::Error::new(source.kind(), source) }
            }
            other => Self::Limit(other),
        }
    }
}

impl OpenError {
    /// Whether opening the same directory again may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Busy { .. })
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_path_buf(), offset, what: what.into() }
    }

    /// For `map_err`: an I/O error of `action` on `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}

/// Why the log does not take a record. But for [`WalError::Hole`] and [`WalError::BelowFloor`] and
/// [`WalError::TooLarge`], which refuse one call, it is the end of this log until it is opened again.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum WalError {
    /// The disk failed. Nothing may be assumed of what was not completed; restart the node.
    #[error("cannot {action} {}: {source}; the log takes no more records, restart the node", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// More is waiting to be written than may: admission let too much in.
    #[error("{pending} bytes wait to be written, more than {limit}; the log takes no more records, restart the node")]
    Overrun {
        /// What waits, in bytes.
        pending: usize,
        /// What may wait.
        limit: usize,
    },
    /// There are no more numbers for segments.
    #[error("the log used up its segment numbers; replace this node by a new member")]
    Exhausted,
    /// The first entry does not follow the last one.
    #[error("group {group:?} expects entry {expected}, not {found}")]
    Hole {
        /// The group.
        group: GroupId,
        /// The index that comes next.
        expected: u64,
        /// The index that came.
        found: u64,
    },
    /// What was purged can't be truncated.
    #[error("group {group:?} can't be truncated to {to:?}: it is purged up to {floor:?}")]
    BelowFloor {
        /// The group.
        group: GroupId,
        /// The last entry to keep.
        to: Option<u64>,
        /// The purged floor.
        floor: Option<LogId>,
    },
    /// An entry, a vote or an identity is too long.
    #[error("{bytes} bytes are more than the limit of {limit}; send less at a time")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

impl WalError {
    /// Whether the same call on the same log may succeed later: never.
    pub fn is_retryable(&self) -> bool {
        false
    }

    /// For `map_err`: an I/O error of `action` on `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source: Arc::new(source) }
    }

    /// Whether the disk is full, which passes.
    pub(crate) fn is_full_disk(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }
}

/// Why entries can't be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// They are purged; an image must take their place.
    #[error("group {group:?} is purged up to {floor:?}")]
    Purged {
        /// The group.
        group: GroupId,
        /// The last purged entry.
        floor: LogId,
    },
    /// The disk failed.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The segment.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The frame that holds them is damaged. The node must not serve; open the log again to learn more.
    #[error("{} is damaged at byte {offset}", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where the frame begins.
        offset: u64,
    },
    /// The log has stopped.
    #[error(transparent)]
    Stopped(#[from] WalError),
}

impl ReadError {
    /// Whether the same read may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Io { .. })
    }
}
