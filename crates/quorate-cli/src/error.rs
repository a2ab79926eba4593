//! Why a command failed, as it is told to the person who typed it.

use std::fmt::Display;

/// The result of a command or of a part of one.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A message that says what went wrong and, where there is something to do, what.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    message: String,
}

impl Error {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
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
