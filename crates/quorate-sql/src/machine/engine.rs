//! Transactions and scopes of the write connection.
//!
//! A rollback also undoes schema changes, without the caches of the schema; so the effects of statements are kept for
//! each scope, and the caches are refreshed after a rollback that undid some.

use quorate_apply::{Allowance, Engine, Scope};
use quorate_model::{Failure, FailureKind, StoreFault};

use super::SqlMachine;
use crate::authorizer::Effects;
use crate::{stack, usage};

const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";
const SAVEPOINT: &str = "SAVEPOINT entry";
const RELEASE: &str = "RELEASE entry";
const ROLLBACK_TO: &str = "ROLLBACK TO entry";

/// The effects of the statements of the open transaction.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    /// Those of the innermost scope.
    pub(super) innermost: Effects,
    /// The open scopes.
    open: Vec<Opened>,
}

/// An open scope.
#[derive(Debug)]
struct Opened {
    scope: Scope,
    /// The effects of the scope around it before.
    before: Effects,
    /// How many changes of keys were noted before.
    changes: usize,
}

impl Scopes {
    fn push(&mut self, scope: Scope, changes: usize) {
        self.open.push(Opened { scope, before: std::mem::take(&mut self.innermost), changes });
    }

    fn pop(&mut self) -> Option<Scope> {
        let Opened { scope, before, .. } = self.open.pop()?;
        self.innermost.add(before);
        Some(scope)
    }

    /// Returns how many changes of keys were noted before the innermost scope.
    fn changes_before(&self) -> usize {
        self.open.last().map_or(0, |opened| opened.changes)
    }

    /// Whether the innermost scope can't be undone by itself.
    pub(super) fn is_bare(&self) -> bool {
        self.open.last().is_some_and(|opened| opened.scope == Scope::Bare)
    }

    /// Whether anything before the innermost scope has changed the schema.
    fn schema_changed_before(&self) -> bool {
        self.open.iter().any(|opened| opened.before.schema)
    }

    /// Ends all scopes, and returns the effects of all of them.
    fn end(&mut self) -> Effects {
        while self.pop().is_some() {}
        std::mem::take(&mut self.innermost)
    }
}

impl SqlMachine {
    /// Whether a failed command has left something behind that nothing has undone.
    fn left_something(&self, failure: &Failure) -> bool {
        if !self.scopes.innermost.writes {
            return self.keys.failed_late;
        }
        !leaves_nothing(failure) || self.determinism.counters().counted(self.db.connection())
    }
}

impl Engine for SqlMachine {
    fn begin(&mut self) -> Result<(), StoreFault> {
        self.own(BEGIN)?;
        self.refresh_caches(self.undone_effects)?;
        self.undone_effects = Effects::default();
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreFault> {
        self.own(COMMIT)?;
        self.scopes.end();
        Ok(())
    }

    fn roll_back(&mut self) {
        if self.is_open() {
            // A failure is ignored: SQLite rolls back when the connection is closed.
            drop(self.own(ROLLBACK));
        }
        self.undone_effects.add(self.scopes.end());
        self.keys.rolled_back(0);
        self.locks.rolled_back();
    }

    fn is_open(&self) -> bool {
        !self.db.connection().is_autocommit()
    }

    fn open_scope(&mut self, scope: Scope) -> Result<(), StoreFault> {
        self.scopes.push(scope, self.keys.changes.len());
        if scope == Scope::Undoable { self.own(SAVEPOINT) } else { Ok(()) }
    }

    fn keep_scope(&mut self) -> Result<(), StoreFault> {
        if self.scopes.pop() == Some(Scope::Undoable) { self.own(RELEASE) } else { Ok(()) }
    }

    fn undo_scope(&mut self, failure: &Failure) -> Result<(), StoreFault> {
        if self.scopes.is_bare() {
            if self.left_something(failure) {
                return self.give_up();
            }
            self.scopes.pop();
            return Ok(());
        }
        self.own(ROLLBACK_TO)?;
        self.own(RELEASE)?;
        self.keys.rolled_back(self.scopes.changes_before());
        self.locks.rolled_back();
        // After a schema change, every ROLLBACK TO in the transaction makes SQLite discard its loaded schema, so the
        // effects stay.
        let mut undone = self.scopes.innermost;
        undone.schema |= self.scopes.schema_changed_before();
        self.refresh_caches(undone)?;
        self.scopes.pop();
        Ok(())
    }

    fn allow(&mut self, allowance: Allowance) {
        let budget = &self.determinism.budget;
        match allowance {
            Allowance::Usual => {
                budget.allow(None);
                budget.be_patient(0);
                budget.set_dry_run(false);
                usage::be_generous(false);
            }
            Allowance::Again(times) => {
                budget.be_patient(times);
                usage::be_generous(times > 0);
            }
            Allowance::Ahead(max) => budget.allow(Some(max)),
            Allowance::DryRun => budget.set_dry_run(true),
        }
    }

    fn is_closing(&self) -> bool {
        self.determinism.budget.is_closing()
    }

    fn with_stack<T>(run: impl FnOnce() -> T) -> Result<T, StoreFault> {
        stack::for_write(|| Ok(run()))
    }
}

/// Whether a failed statement has undone its own changes, unless they were counted. SQLite gives a statement a journal
/// of its own if a constraint may fail, but none for failures of STRICT, of an aggregate or of the store.
fn leaves_nothing(failure: &Failure) -> bool {
    failure.kind == FailureKind::Constraint && failure.sqlite_code != rusqlite::ffi::SQLITE_CONSTRAINT_DATATYPE
}
