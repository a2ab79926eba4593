//! The errors of a configuration.

use std::path::{Path, PathBuf};

use quorate_env::Cause;

/// An error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: Cause,
    },
    /// The text is not TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The message of the parser.
        message: String,
        /// The error of the parser, without the text, which may contain the secret.
        source: Cause,
    },
    /// Another error, with the file and, if known, the line in which it occurred.
    #[error("{}: {}", place(path, *line), within(error))]
    InFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1; `None` if the error is not in one line.
        line: Option<usize>,
        /// The error.
        #[source]
        error: Box<Self>,
    },
    /// A key is not known.
    #[error("the key '{key}' is not known; did you mean '{nearest}'?")]
    UnknownKey {
        /// The key, with the tables around it.
        key: String,
        /// The known key with the most similar spelling.
        nearest: String,
    },
    /// A variable of the environment is not known.
    #[error("the variable {name} is not known; did you mean {nearest}?")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The known variable with the most similar spelling.
        nearest: String,
    },
    /// The name or the value of a variable of the environment is not UTF-8.
    #[error("the variable {0} is not UTF-8 text")]
    NotText(String),
    /// A key has a value of the wrong kind.
    #[error("'{key}' must be {expected}, not {found}")]
    Value {
        /// The key, with the tables around it.
        key: String,
        /// The expected kind.
        expected: &'static str,
        /// The kind that was found. It is never the value itself, which may be a secret.
        found: &'static str,
    },
    /// A key is missing.
    #[error("'{0}' is missing")]
    Missing(&'static str),
    /// The secret can't be read or is not valid.
    #[error("the secret: {0}")]
    Secret(#[source] Cause),
    /// The files of TLS can't be used.
    #[error("TLS: {0}")]
    Tls(#[source] Cause),
    /// The settings are invalid or contradict each other.
    #[error(transparent)]
    Invalid(Cause),
}

/// Formats a place in a file as editors and compilers do.
fn place(path: &Path, line: Option<usize>) -> String {
    line.map_or_else(|| path.display().to_string(), |line| format!("{}:{line}", path.display()))
}

/// Returns the text of an error in a file, without a line number, which already stands before it.
fn within(error: &ConfigError) -> String {
    if let ConfigError::Syntax { message, .. } = error { message.clone() } else { error.to_string() }
}

impl ConfigError {
    /// Returns the error as one in this file.
    pub(super) fn in_file(self, path: &Path, line: Option<usize>) -> Self {
        Self::InFile { path: path.to_owned(), line, error: Box::new(self) }
    }

    /// Returns `false`: the configuration must be changed.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
