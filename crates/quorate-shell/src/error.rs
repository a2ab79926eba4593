//! Why a statement or a command failed.

use std::fmt::Display;

use quorate::Error as SqlError;

use crate::format::visible;

/// The result of a statement or a command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a statement or a command failed, as a message for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster can't be reached, refuses this client, or did not answer in time. If a write was sent, the message
    /// says that it may have been done.
    #[error("{0}")]
    Connection(String),
    /// The statement or the command is wrong, or a file or the terminal failed.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Whether the cluster is the cause. Another statement would most likely fail too.
    pub fn is_connection(&self) -> bool {
        matches!(self, Self::Connection(_))
    }

    /// The error with `what` and a colon before its message.
    #[must_use]
    pub(crate) fn within(self, what: impl Display) -> Self {
        self.reworded(|message| format!("{what}: {message}"))
    }

    /// The error with a semicolon and `what` after its message.
    #[must_use]
    pub(crate) fn followed_by(self, what: impl Display) -> Self {
        self.reworded(|message| format!("{message}; {what}"))
    }

    fn reworded(self, reword: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Connection(message) => Self::Connection(reword(message)),
            Self::Failed(message) => Self::Failed(reword(message)),
        }
    }
}

/// An error of the library. Text of the database in it is made harmless for terminals.
impl From<SqlError> for Error {
    fn from(error: SqlError) -> Self {
        // The library names its methods; the user knows the options that call them.
        let text = error.to_string().replace("(with_deadline)", "(--timeout)");
        let text = text.replace("(with_query_timeout)", "(--timeout)").replace("(with_budget)", "(--budget)");
        let message = visible::lines(&text);
        match error {
            SqlError::Failed(_)
            | SqlError::Conflict(_)
            | SqlError::TimedOut(_)
            | SqlError::TooLarge(_)
            | SqlError::SnapshotEnded => Self::Failed(message),
            _ => Self::Connection(message),
        }
    }
}

impl From<quorate_import::Error> for Error {
    fn from(error: quorate_import::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Adds context to an error.
pub(crate) trait Context<T> {
    /// Puts `what` and a colon before the error.
    fn context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|error| Error::new(format!("{}: {error}", what().into())))
    }
}
