//! Why a command had no result.

use quorate_model::{Failure, FailureKind, StoreFault};

/// A command that did not succeed: whom that belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// To the command: it is an outcome.
    Failure(Failure),
    /// To the node: it is never an outcome.
    Fault(StoreFault),
}

impl Trouble {
    /// Applies `change` to the failure, if it is one.
    #[must_use]
    pub fn with_failure(self, change: impl FnOnce(Failure) -> Failure) -> Self {
        match self {
            Self::Failure(failure) => Self::Failure(change(failure)),
            fault @ Self::Fault(_) => fault,
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<StoreFault> for Trouble {
    fn from(fault: StoreFault) -> Self {
        Self::Fault(fault)
    }
}

/// The failure of a command or a read for which the state machine has no store.
pub fn no_store() -> Trouble {
    Failure::new(FailureKind::Refused, "this cluster has no store for it").into()
}
