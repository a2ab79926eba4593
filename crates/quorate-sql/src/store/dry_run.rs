//! The handle to a dry run: its commands run on the write connection between two batches, and leave no effects.
//!
//! Invariants:
//! - When the handle is dropped, the writer rolls the dry run back, unless other work already has.
//! - The handle does not keep the store open.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use quorate_apply::{DryRunError, DryRunResult};
use quorate_model::{Command, Failure, FailureKind, Stamp, StoreFault};

use super::SqlStore;
use super::core::Core;
use super::shared::Shared;

/// Commands that run on the applied state and are recorded before they are proposed together.
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
    /// The store's fault, if it has one.
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
        let index = shared.writer_lock.visit(|core| core.as_mut().ok_or(StoreFault::Closed).and_then(begin))?;
        Ok(DryRun { shared: Arc::downgrade(shared), number, index })
    }
}

impl DryRun {
    /// The index of the last entry that was applied when the dry run began.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Runs a command at the time of `stamp`, or at the last applied time if that is later. Blocks while the command
    /// runs, within the budget of an entry.
    ///
    /// # Errors
    ///
    /// [`DryRunError::Failed`] if the command fails. The dry run then goes on without it.
    pub fn run(&self, stamp: Stamp, command: Command) -> Result<DryRunResult, DryRunError> {
        if !command.may_run_dry() {
            let failure = Failure::new(FailureKind::Refused, "only statements may run in an interactive transaction");
            return Err(DryRunError::Failed(failure));
        }
        self.visit(|core| core.applier().dry_run(self.number, stamp, command))
    }

    /// Undoes all recorded commands but the first `count`. Blocks while these run again.
    ///
    /// # Errors
    ///
    /// After an error the dry run is over.
    pub fn rewind(&self, count: usize) -> Result<(), DryRunError> {
        self.visit(|core| core.applier().rewind_dry_run(self.number, count))
    }

    fn visit<T>(&self, run: impl FnOnce(&mut Core) -> Result<T, DryRunError>) -> Result<T, DryRunError> {
        self.shared.upgrade().ok_or(DryRunError::Over)?.writer_lock.visit(|core| {
            let core = core.as_mut().ok_or(DryRunError::Over)?;
            let _scope = core.scope();
            run(core)
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
