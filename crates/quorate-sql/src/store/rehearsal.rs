//! The handle to a rehearsal: statements that run on the write connection between two batches, and leave nothing.
//!
//! Invariants:
//! - When the handle is gone the writer rolls the rehearsal back, unless something else has.
//! - The handle keeps no store open.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use quorate_model::{Stamp, Statement, StoreFault};

use super::SqlStore;
use super::core::Core;
use super::shared::Shared;
use crate::apply::{RehearsalError, Rehearsed};

/// Statements that are run on the applied state, and recorded, before they are proposed together.
pub struct Rehearsal {
    shared: Weak<Shared>,
    number: u64,
    index: u64,
}

impl SqlStore {
    /// Begins a rehearsal, which ends any other. Blocks until the running batch is applied.
    ///
    /// # Errors
    ///
    /// The store's fault, where it applies nothing.
    pub fn rehearse(&self) -> Result<Rehearsal, StoreFault> {
        let shared = self.shared();
        if let Some(fault) = shared.fault.borrow().clone() {
            return Err(fault);
        }
        let number = shared.rehearsals.begun.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let begin = |core: &mut Core| {
            let _scope = core.scope();
            core.applier().begin_rehearsal(number).map(|()| core.applied().index())
        };
        let index = shared.turn.visit(|core| core.as_mut().ok_or(StoreFault::Closed).and_then(begin))?;
        Ok(Rehearsal { shared: Arc::downgrade(shared), number, index })
    }
}

impl Rehearsal {
    /// The entry behind which it began.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Runs a statement, at this time or the last applied one if that is later. Blocks as long as it takes, but no
    /// longer than the budget of an entry.
    ///
    /// # Errors
    ///
    /// [`RehearsalError::Failed`] for a statement that fails, without which the rehearsal goes on.
    pub fn run(&self, stamp: Stamp, statement: Statement) -> Result<Rehearsed, RehearsalError> {
        self.shared.upgrade().ok_or(RehearsalError::Over)?.turn.visit(|core| {
            let core = core.as_mut().ok_or(RehearsalError::Over)?;
            let _scope = core.scope();
            core.applier().rehearse(self.number, stamp, statement.into())
        })
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.rehearsals.ended.fetch_max(self.number, Ordering::AcqRel);
            shared.writer.wake();
        }
    }
}

impl std::fmt::Debug for Rehearsal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rehearsal").field("number", &self.number).field("index", &self.index).finish_non_exhaustive()
    }
}
