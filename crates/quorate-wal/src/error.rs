//! The errors of the log, by operation.

use std::io;
use std::path::{Path, PathBuf};

use quorate_env::Cause;
use quorate_model::{GroupId, LogId};
use thiserror::Error;

/// The reason why a log can't be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Acknowledged records are damaged or missing. The node must rejoin as a new member with an empty directory, never
    /// under its old Raft id, because it no longer holds what it promised under that id.
    #[error("{} is damaged at byte {offset}: {what}; rejoin as a new member, with an empty directory", path.display())]
    Corrupt {
        /// The segment, or the directory.
        path: PathBuf,
        /// The byte offset in it.
        offset: u64,
        /// A description of the damage.
        what: String,
    },
    /// An I/O error, or a full disk. No data was lost.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file or directory that it was applied to.
        path: PathBuf,
        /// The operating system's error.
        source: Cause<io::Error>,
    },
    /// The log is already open, usually in another process.
    #[error("the log in {} is in use; is the node already running?", dir.display())]
    Busy {
        /// The directory.
        dir: PathBuf,
    },
    /// A later version of Quorate wrote this segment.
    #[error("{} has format {version}, which this version does not know; run the version that wrote it", path.display())]
    Version {
        /// The segment.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// The state that every segment header repeats is too long, or the segment numbers are used up.
    #[error(transparent)]
    Limit(WalError),
}

impl From<WalError> for OpenError {
    fn from(error: WalError) -> Self {
        match error {
            WalError::Io { action, path, source } => Self::Io { action, path, source },
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
        move |error| Self::Io { action, path, source: Cause::of(error) }
    }
}

/// The reason why the log rejects a record. [`WalError::Hole`], [`WalError::BelowFloor`] and [`WalError::TooLarge`]
/// reject a single call; after any other error the log accepts nothing until it is opened again.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum WalError {
    /// An I/O error. Records whose completion has not run may or may not be on disk. Restart the node.
    #[error("cannot {action} {}: {source}; the log takes no more records, restart the node", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file or directory that it was applied to.
        path: PathBuf,
        /// The operating system's error.
        source: Cause<io::Error>,
    },
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// More bytes are waiting to be written than [`WalOptions::pending_limit`](crate::WalOptions::pending_limit)
    /// allows; admission control let too much in.
    #[error(
        "{pending} bytes wait to be written, but the limit is {limit}; the log takes no more records, restart the node"
    )]
    Overrun {
        /// Bytes waiting to be written.
        pending: usize,
        /// The limit.
        limit: usize,
    },
    /// The segment numbers are used up.
    #[error("the log has used up its segment numbers; replace this node with a new member")]
    Exhausted,
    /// An entry does not follow the one before it.
    #[error("group {group:?} expects entry {expected}, not {found}")]
    Hole {
        /// The group.
        group: GroupId,
        /// The index of the next entry.
        expected: u64,
        /// The index of the rejected entry.
        found: u64,
    },
    /// A truncation would remove purged entries.
    #[error("group {group:?} can't be truncated to {to:?}: it is purged up to {floor:?}")]
    BelowFloor {
        /// The group.
        group: GroupId,
        /// The last entry to keep.
        to: Option<u64>,
        /// The last purged entry.
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
    /// Whether the same call on the same log may succeed later. Always false.
    pub fn is_retryable(&self) -> bool {
        false
    }

    /// For `map_err`: an I/O error of `action` on `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |error| Self::Io { action, path, source: Cause::of(error) }
    }

    /// Whether the disk is full. The writer and the keeper retry after this error.
    pub(crate) fn is_full_disk(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }
}

/// The reason why entries can't be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The entries are purged; the reader needs an image instead.
    #[error("group {group:?} is purged up to {floor:?}")]
    Purged {
        /// The group.
        group: GroupId,
        /// The last purged entry.
        floor: LogId,
    },
    /// An I/O error.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The segment.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The frame that holds the entries is damaged. The node must stop serving; opening the log again shows the extent
    /// of the damage.
    #[error("{} is damaged at byte {offset}", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// The offset of the frame.
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
