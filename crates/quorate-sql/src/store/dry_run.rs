//! The handle to a dry run: statements that run on the write connection between two batches, and leave nothing.
//!
//! Invariants:
//! - When the handle is gone the writer rolls the dry run back, unless something else has.
//! - The handle keeps no store open.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use quorate_model::{Stamp, Statement, StoreFault};

use super::SqlStore;
use super::core::Core;
use super::shared::Shared;
use crate::apply::{DryRunError, DryRunResult};

/// Statements that are run on the applied state, and recorded, before they are proposed together.
pub struct DryRun {
    shared: Weak<Shared>,
    number: u64,
    index: u64,
}

impl SqlStore {
    /// Begins a dry run, which ends any other. Blocks until the running batch is applied.
    ///
    /// # Errors
    ///
    /// The store's fault, where it applies nothing.
    pub fn dry_run(&self) -> Result<DryRun, StoreFault> {
        let shared = self.shared();
        if let Some(fault) = shared.fault.borrow().clone() {
            return Err(fault);
        }
        let number = shared.dry_runs.begun.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let begin = |core: &mut Core| {
            let _scope = core.scope();
            core.applier().begin_dry_run(number).map(|()| core.applied().index())
        };
        let index = shared.turn.visit(|core| core.as_mut().ok_or(StoreFault::Closed).and_then(begin))?;
        Ok(DryRun { shared: Arc::downgrade(shared), number, index })
    }
}

impl DryRun {
    /// The entry behind which it began.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Runs a statement, at this time or the last applied one if that is later. Blocks as long as it takes, but no
    /// longer than the budget of an entry.
    ///
    /// # Errors
    ///
    /// [`DryRunError::Failed`] for a statement that fails, without which the dry run goes on.
    pub fn run(&self, stamp: Stamp, statement: Statement) -> Result<DryRunResult, DryRunError> {
        self.shared.upgrade().ok_or(DryRunError::Over)?.turn.visit(|core| {
            let core = core.as_mut().ok_or(DryRunError::Over)?;
            let _scope = core.scope();
            core.applier().dry_run(self.number, stamp, statement.into())
        })
    }
}

impl Drop for DryRun {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.dry_runs.ended.fetch_max(self.number, Ordering::AcqRel);
            shared.writer.wake();
        }
    }
}

impl std::fmt::Debug for DryRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DryRun").field("number", &self.number).field("index", &self.index).finish_non_exhaustive()
    }
}
