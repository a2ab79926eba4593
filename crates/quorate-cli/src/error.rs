//! Why a command failed, as it is told to the person who typed it.

use std::fmt::Display;

/// The result of a command or of a part of one.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A message that says what went wrong and, where there is something to do, what.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    message: String,
    is_connection: bool,
}

impl Error {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_connection: false }
    }

    /// The same, for a cluster that can't be reached, lets nobody in, or does not answer in time.
    #[must_use]
    pub fn of_connection(self) -> Self {
        Self { is_connection: true, ..self }
    }

    /// Whether the cluster can't be reached, lets nobody in, or did not answer in time.
    pub fn is_connection(&self) -> bool {
        self.is_connection
    }

    /// The same, with what comes before it and a colon.
    #[must_use]
    pub fn within(self, what: impl Display) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// The same, with more about it behind a semicolon.
    #[must_use]
    pub fn followed_by(self, what: impl Display) -> Self {
        Self { message: format!("{}; {what}", self.message), ..self }
    }

    /// What the process ends with: 3 where the cluster is the trouble, else 1. What is typed wrongly ends with 2.
    pub fn exit_code(&self) -> u8 {
        if self.is_connection { 3 } else { 1 }
    }
}

/// Says in whose course an error came.
pub trait Told<T> {
    /// Puts `what` and a colon before the error.
    fn told<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T>;
}

impl<T, E: Display> Told<T> for Result<T, E> {
    fn told<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|error| Error::new(format!("{}: {error}", what().into())))
    }
}
