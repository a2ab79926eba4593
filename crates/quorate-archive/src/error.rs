//! The errors of an archive.

use crate::ltx;
use crate::objects::ObjectsError;

/// Why an archive can't be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The store refuses, or can't be reached.
    #[error("object storage: {0}")]
    Objects(#[from] ObjectsError),
    /// Another node has taken over the archive.
    #[error("node {node} has taken over the archive (token {token})")]
    Fenced {
        /// The other node.
        node: u64,
        /// Its token, which is higher than that of this archiver.
        token: u64,
    },
    /// The archive is ahead of the database.
    #[error("the archive holds entry {archived}, but this database ends at entry {index}; wait until it has caught up")]
    Behind {
        /// The last entry that a boundary in the archive holds.
        archived: u64,
        /// The last entry in the database.
        index: u64,
    },
    /// The store carries out requests whose conditions don't hold.
    #[error(
        "the store ignores the conditions of requests (If-None-Match, If-Match), without which two archivers would \
         damage the archive; use another store"
    )]
    Unfit,
    /// Another archiver has changed the archive meanwhile.
    #[error("the archive was changed by another archiver meanwhile; try again")]
    Changed,
    /// The store has no archive of this cluster, or the archive does not hold the state that the caller wants.
    #[error("{0}")]
    Missing(String),
    /// The place holds the archives of several clusters or databases.
    #[error("there are several archives at this place; name one of {0}")]
    Several(String),
    /// An object is damaged.
    #[error("the object '{key}' is damaged: {what}")]
    Damaged {
        /// Its key.
        key: String,
        /// What is wrong.
        what: String,
    },
    /// An object was written by a newer version.
    #[error("the object '{key}' has the format {format}, which this version does not know; install a newer one")]
    Newer {
        /// Its key.
        key: String,
        /// Its format.
        format: u32,
    },
    /// An LTX file can't be read or written.
    #[error("the object '{key}': {source}")]
    Ltx {
        /// Its key.
        key: String,
        /// The reason.
        source: ltx::Error,
    },
    /// The database can't be read.
    #[error("the database: {0}")]
    Source(std::io::Error),
    /// The restored database can't be written.
    #[error("the restored database: {0}")]
    Disk(std::io::Error),
    /// The process ends.
    #[error("the process ends")]
    Closed,
}

impl ArchiveError {
    /// Whether the same work may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Objects(error) => error.is_retryable,
            Self::Behind { .. } | Self::Changed | Self::Source(_) | Self::Disk(_) => true,
            Self::Ltx { source, .. } => source.is_retryable(),
            Self::Fenced { .. }
            | Self::Unfit
            | Self::Missing(_)
            | Self::Several(_)
            | Self::Damaged { .. }
            | Self::Newer { .. }
            | Self::Closed => false,
        }
    }

    pub(crate) fn damaged(key: &str, what: impl Into<String>) -> Self {
        Self::Damaged { key: key.to_owned(), what: what.into() }
    }

    /// For `map_err`: an error about the LTX file of this key.
    pub(crate) fn ltx(key: &str) -> impl Fn(ltx::Error) -> Self {
        move |source| Self::Ltx { key: key.to_owned(), source }
    }
}
