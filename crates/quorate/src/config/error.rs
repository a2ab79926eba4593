//! What can be wrong with a configuration.

use std::path::{Path, PathBuf};

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The text is not TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// Where, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Something is wrong in a file, or with what it says as a whole.
    #[error("{}: {}", place(path, *line), within(error))]
    InFile {
        /// Which.
        path: PathBuf,
        /// Where, from 1; none where it is no single line.
        line: Option<usize>,
        /// What.
        error: Box<Self>,
    },
    /// A key is not known.
    #[error("the key '{key}' is not known; did you mean '{nearest}'?")]
    UnknownKey {
        /// The key, with the tables around it.
        key: String,
        /// The known key that is spelled most alike.
        nearest: String,
    },
    /// A variable of the environment is not known.
    #[error("the variable {name} is not known; did you mean {nearest}?")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The known variable that is spelled most alike.
        nearest: String,
    },
    /// A key has a value of another kind.
    #[error("'{key}' must be {expected}, not {found}")]
    Value {
        /// The key, with the tables around it.
        key: String,
        /// What it should be.
        expected: &'static str,
        /// The kind of what it is. Never the value, which may be a secret.
        found: &'static str,
    },
    /// A key is missing.
    #[error("'{0}' is missing")]
    Missing(&'static str),
    /// The secret can't be had.
    #[error("the secret: {0}")]
    Secret(String),
    /// The parts do not fit together.
    #[error("{0}")]
    Invalid(String),
}

/// A place in a file, as editors and compilers write it.
fn place(path: &Path, line: Option<usize>) -> String {
    line.map_or_else(|| path.display().to_string(), |line| format!("{}:{line}", path.display()))
}

/// An error behind its place, which need not be told twice.
fn within(error: &ConfigError) -> String {
    if let ConfigError::Syntax { message, .. } = error { message.clone() } else { error.to_string() }
}

impl ConfigError {
    /// The same, in this file.
    pub(super) fn in_file(self, path: &Path, line: Option<usize>) -> Self {
        Self::InFile { path: path.to_owned(), line, error: Box::new(self) }
    }

    /// Never: somebody has to change the configuration.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
