//! Why a command failed, as a message for its user.

use std::fmt::Display;

use quorate_env::Cause;

/// The result of a command or of a part of one.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A message that says what went wrong and, if the user can do something about it, what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    message: String,
    source: Option<Cause>,
    is_connection: bool,
}

impl Error {
    /// Creates an error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None, is_connection: false }
    }

    /// Creates an error with the text of another, which is its source.
    pub fn of(error: impl Into<Cause>) -> Self {
        let cause = error.into();
        Self::caused(cause.to_string(), cause)
    }

    /// Creates an error with this message, which contains the text of its source.
    pub fn caused(message: impl Into<String>, error: impl Into<Cause>) -> Self {
        Self { message: message.into(), source: Some(error.into()), is_connection: false }
    }

    /// Marks the cluster as the cause: it can't be reached, refuses this client, or does not answer in time.
    #[must_use]
    pub fn of_connection(self) -> Self {
        Self { is_connection: true, ..self }
    }

    /// Puts `what` and a colon before the message.
    #[must_use]
    pub fn within(self, what: impl Display) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Returns the exit code of the process: 3 if the cluster is the cause, otherwise 1. Wrong arguments give 2, in
    /// clap.
    pub fn exit_code(&self) -> u8 {
        if self.is_connection { 3 } else { 1 }
    }
}

impl From<quorate_shell::Error> for Error {
    fn from(error: quorate_shell::Error) -> Self {
        let is_connection = error.is_connection();
        Self { is_connection, ..Self::of(error) }
    }
}

/// The shell's `.status` calls back into this program, which may fail.
impl From<Error> for quorate_shell::Error {
    fn from(error: Error) -> Self {
        if error.is_connection { Self::Connection(error.into()) } else { Self::Failed(error.into()) }
    }
}

impl From<quorate::Error> for Error {
    fn from(error: quorate::Error) -> Self {
        quorate_shell::Error::from(error).into()
    }
}

impl From<quorate_import::Error> for Error {
    fn from(error: quorate_import::Error) -> Self {
        quorate_shell::Error::from(error).into()
    }
}

/// Adds context to an error.
pub trait Context<T> {
    /// Puts `what` and a colon before the error.
    fn context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T>;
}

impl<T, E: Into<Cause>> Context<T> for Result<T, E> {
    fn context<W: Into<String>>(self, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|error| Error::of(error).within(what().into()))
    }
}
