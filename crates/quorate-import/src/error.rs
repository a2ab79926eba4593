//! Why an import failed.

use std::io;

/// The result of an import or of a part of one.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an import failed. Nothing that was written is undone: the same import, run again, continues where it stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The options contradict each other, or do not fit the file or the table.
    #[error("{0}")]
    Options(String),
    /// The file can't be imported as it is.
    #[error("{0}")]
    File(String),
    /// More lines are bad than the options allow.
    #[error("{0}")]
    TooManyBadLines(String),
    /// The table refuses rows.
    #[error(transparent)]
    Refused(quorate_env::Cause),
    /// An interrupted import of the same file can't continue: the file, the table or the options have changed.
    #[error("{0}")]
    Changed(String),
    /// Another process imports the same file.
    #[error("{0}")]
    Concurrent(String),
    /// A file, the standard output or a thread of this machine failed.
    #[error("{during}: {source}")]
    Io {
        /// What could not be done.
        during: String,
        /// Why.
        source: io::Error,
    },
    /// SQLite can't read the file.
    #[error("{during}: {source}")]
    Sqlite {
        /// What could not be done.
        during: String,
        /// Why.
        source: rusqlite::Error,
    },
    /// A record that the import keeps in the database can't be written or read.
    #[error("{during}: {source}")]
    Record {
        /// What could not be done.
        during: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The cluster failed before or after the rows were written.
    #[error("{during}: {source}")]
    Cluster {
        /// What could not be done.
        during: String,
        /// Why.
        source: quorate::Error,
    },
    /// The cluster failed while rows were written.
    #[error("{0}; run the same command again to continue")]
    Interrupted(#[source] quorate::Error),
    /// Rows were sent, and it is not known whether they were written.
    #[error("{0}")]
    Unknown(#[source] quorate::Error),
}

impl Error {
    /// Whether the same import may succeed later. No attempt inserts a row of a file twice; rows of the standard input
    /// can't be recognised, so there a second attempt may.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Cluster { source, .. } | Self::Interrupted(source) => source.is_retryable(),
            Self::Concurrent(_) | Self::Unknown(_) => true,
            Self::Options(_)
            | Self::File(_)
            | Self::TooManyBadLines(_)
            | Self::Refused(_)
            | Self::Changed(_)
            | Self::Io { .. }
            | Self::Sqlite { .. }
            | Self::Record { .. } => false,
        }
    }
}

/// An error of another crate, which becomes an [`Error`] when context is added.
pub trait Cause: Sized {
    /// Adds what could not be done.
    fn during(self, what: String) -> Error;
}

impl Cause for io::Error {
    fn during(self, during: String) -> Error {
        Error::Io { during, source: self }
    }
}

impl Cause for rusqlite::Error {
    fn during(self, during: String) -> Error {
        Error::Sqlite { during, source: self }
    }
}

impl Cause for serde_json::Error {
    fn during(self, during: String) -> Error {
        Error::Record { during, source: self }
    }
}

impl Cause for quorate::Error {
    fn during(self, during: String) -> Error {
        Error::Cluster { during, source: self }
    }
}

/// Adds context to an error.
pub trait Context<T> {
    /// Puts `what` and a colon before the error.
    fn context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T>;
}

impl<T, E: Cause> Context<T> for Result<T, E> {
    fn context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|error| error.during(what().into()))
    }
}
