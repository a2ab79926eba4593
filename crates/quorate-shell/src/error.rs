//! Why a statement or a command failed.

use std::fmt::Display;

use quorate::Error as SqlError;
use quorate_env::Cause;

use crate::format::visible;

/// The result of a statement or a command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a statement or a command failed, as a message for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster can't be reached, refuses this client, or did not answer in time. If a write was sent, the message
    /// says that it may have been done.
    #[error(transparent)]
    Connection(Cause),
    /// The statement or the command is wrong, or a file or the terminal failed.
    #[error(transparent)]
    Failed(Cause),
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Failed(message.into().into())
    }

    /// An error with the text of another, which is its source.
    pub(crate) fn of(error: impl Into<Cause>) -> Self {
        Self::Failed(caused(error.into()))
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
        let reworded = |cause: Cause| Cause::context(reword(cause.to_string()), cause);
        match self {
            Self::Connection(cause) => Self::Connection(reworded(cause)),
            Self::Failed(cause) => Self::Failed(reworded(cause)),
        }
    }
}

fn caused(cause: Cause) -> Cause {
    Cause::context(cause.to_string(), cause)
}

/// An error of the library. Text of the database in it is made harmless for terminals.
impl From<SqlError> for Error {
    fn from(error: SqlError) -> Self {
        // The library names its methods; the user knows the options that call them.
        let text = error.to_string().replace("(with_deadline)", "(--timeout)");
        let text = text.replace("(with_query_timeout)", "(--timeout)").replace("(with_budget)", "(--budget)");
        let message = visible::lines(&text);
        let is_connection = !matches!(
            error,
            SqlError::Failed(_)
                | SqlError::Conflict(_)
                | SqlError::TimedOut(_)
                | SqlError::TooLarge(_)
                | SqlError::SnapshotEnded
        );
        let cause = Cause::context(message, error);
        if is_connection { Self::Connection(cause) } else { Self::Failed(cause) }
    }
}

impl From<quorate_import::Error> for Error {
    fn from(error: quorate_import::Error) -> Self {
        Self::of(error)
    }
}

/// Adds context to an error.
pub(crate) trait Context<T> {
    /// Puts `what` and a colon before the error.
    fn context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T>;
}

impl<T, E: Into<Cause>> Context<T> for Result<T, E> {
    fn context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|error| Error::Failed(error.into()).within(what().into()))
    }
}
