//! Why a command failed.

use quorate_model::locks::Token;
use quorate_model::{Failure, FailureKind};
use thiserror::Error;

/// Why a command failed; it has written nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LocksError {
    /// The lock is not held with the token that the entry depends on.
    #[error("the lock is not held with the token {}; acquire it again before you write", .0.0)]
    NotHeld(Token),
    /// The entry has not enough steps left.
    #[error("the entry needs more steps than its budget has; ask for more")]
    OutOfBudget,
}

impl LocksError {
    /// Returns `false`: a lease that has ended does not come back.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

impl From<LocksError> for Failure {
    fn from(error: LocksError) -> Self {
        let kind = match error {
            LocksError::NotHeld(_) => FailureKind::NotHeld,
            LocksError::OutOfBudget => FailureKind::Budget,
        };
        Self::new(kind, error.to_string())
    }
}
