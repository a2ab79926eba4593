//! Why an operation on a store or on backups failed.
//!
//! Invariant: no text contains a credential, a passphrase or an identity.

use std::io;
use std::path::{Path, PathBuf};

use quorate::backup::BackupError;
use quorate_env::Cause;

/// The error of this crate.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A URL does not name a place in a store.
    #[error("{0}")]
    Location(String),
    /// A store can't be used as it is configured.
    #[error("{location} can't be used: {source}")]
    Open {
        /// The store.
        location: String,
        /// The reason.
        source: Cause,
    },
    /// A request to a store failed.
    #[error("{location}: cannot {what}: {source}{}", advice(*.is_retryable))]
    Request {
        /// The store.
        location: String,
        /// What was asked for.
        what: String,
        /// Whether the same request may succeed later.
        is_retryable: bool,
        /// The error of the request.
        source: Cause,
    },
    /// An object does not exist.
    #[error("{location} has no object '{name}'; `quorate backups list` shows the backups there")]
    Missing {
        /// The store.
        location: String,
        /// The object.
        name: String,
    },
    /// An object of this name exists already.
    #[error("{location} has an object '{name}' already, which is not replaced; try again")]
    Exists {
        /// The store.
        location: String,
        /// The object.
        name: String,
    },
    /// A store gives no backup to choose.
    #[error("{0} holds no backup; check the prefix in the URL")]
    Empty(String),
    /// More objects than can be listed.
    #[error("{location} holds more than {max} objects: give backups a prefix of their own")]
    TooMany {
        /// The store.
        location: String,
        /// The limit.
        max: usize,
    },
    /// A name is not that of a backup.
    #[error("'{0}' is not the name of a backup, such as 20261127T020000Z-CLUSTER-1.1.57.db.zst")]
    Name(String),
    /// A recipient, an identity or a passphrase can't be used.
    #[error("{0}")]
    Key(String),
    /// A backup, or an object of an archive, is encrypted, and what decrypts it is not there.
    #[error("'{name}' can't be decrypted: {what}")]
    Locked {
        /// The backup, or the object.
        name: String,
        /// What is missing or wrong.
        what: String,
    },
    /// A stored backup, or an object of an archive, is damaged.
    #[error("'{name}' is damaged: {source}; restore an earlier backup or state")]
    Damaged {
        /// The backup, or the object.
        name: String,
        /// What was found.
        source: Cause,
    },
    /// A text does not name a state of an archive.
    #[error(
        "'{0}' is no state: write latest, a position such as 1.1.4711, the number of an entry, or a time such as \
         2026-11-27T20:15:00Z"
    )]
    State(String),
    /// A text is not the id of a cluster.
    #[error("'{0}' is not the id of a cluster: 32 hexadecimal digits, as `quorate archive list` shows")]
    Cluster(String),
    /// A schedule can't be read.
    #[error("'{text}' is not a schedule: {source}; write a cron expression such as \"0 2 * * *\", in UTC, or @daily")]
    Schedule {
        /// The text.
        text: String,
        /// What is wrong with it.
        source: Cause,
    },
    /// The database could not be copied from the cluster, or the copy is not a backup.
    #[error(transparent)]
    Backup(Cause<BackupError>),
    /// A local file or directory can't be used.
    #[error("{}: {source}", path.display())]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: Cause,
    },
    /// The program is ending.
    #[error("the program is ending")]
    Closed,
}

impl Error {
    /// Returns whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Request { is_retryable, .. } => *is_retryable,
            Self::Backup(error) => error.is_retryable(),
            Self::Exists { .. } | Self::Disk { .. } => true,
            Self::Location(_)
            | Self::Open { .. }
            | Self::Missing { .. }
            | Self::Empty(_)
            | Self::TooMany { .. }
            | Self::Name(_)
            | Self::Key(_)
            | Self::Locked { .. }
            | Self::Damaged { .. }
            | Self::State(_)
            | Self::Cluster(_)
            | Self::Schedule { .. }
            | Self::Closed => false,
        }
    }

    pub(crate) fn disk(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |error| Self::Disk { path: path.to_path_buf(), source: Cause::from(error) }
    }
}

impl From<BackupError> for Error {
    fn from(error: BackupError) -> Self {
        Self::Backup(Cause::of(error))
    }
}

fn advice(is_retryable: bool) -> &'static str {
    if is_retryable { "" } else { "; check the URL and the credentials" }
}
