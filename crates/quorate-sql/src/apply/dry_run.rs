//! Dry runs: the statements of an interactive transaction, run before they are proposed, on the node that leads.
//!
//! Their transaction stays open and unseen, as that of work ahead does: who else needs the connection rolls it back,
//! and the dry run is over. What is recorded of it is proposed as one entry, which every node runs, this one too.
//!
//! Invariants:
//! - The open transaction is what the recorded statements, each under its stamp, make of what is applied. One that
//!   fails is as if it had never run: all is rolled back, and those recorded before it run again.
//! - Only who began a dry run goes on with it: others have another number.

use quorate_model::limits::{BUDGET_DEFAULT, COMMANDS_MAX};
use quorate_model::{
    CommandResult, Failure, FailureKind, Param, SqlReply, Stamp, Statement, StatementResult, StoreFault,
};

use super::Applier;
use crate::classify::Trouble;
use crate::usage::NoMemory;
use crate::{stack, usage, vfs};

/// Why a statement was stopped that took too long.
const TOO_LONG: &str = "the statement takes too long for an interactive transaction, in which other writes wait for \
                        it; do less at once, or send the statements together (batch, transact)";

/// The open transaction's.
#[derive(Debug, Default)]
pub(super) struct OpenDryRun {
    number: u64,
    recorded: Vec<(Stamp, Statement<Param>)>,
    results: Vec<CommandResult>,
    /// Bytes that the results return.
    returned: usize,
}

/// What a statement of a dry run did.
#[derive(Clone, Debug, PartialEq)]
pub struct DryRunResult {
    /// Its result.
    pub result: StatementResult,
    /// What it ran under, if it is recorded: it may have written.
    pub recorded: Option<Stamp>,
}

/// Why a statement of a dry run did nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DryRunError {
    /// The statement failed; the dry run goes on without it.
    #[error(transparent)]
    Failed(Failure),
    /// Something else was applied, or another dry run begun.
    #[error("the node had something else to apply")]
    Over,
    /// The node's own trouble. The dry run is over.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

impl DryRunError {
    /// Whether another dry run may fare better.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Failed(failure) => failure.is_retryable(),
            Self::Over => true,
            Self::Fault(fault) => fault.is_retryable(),
        }
    }
}

impl Applier {
    /// Begins a dry run on what is applied, in place of whatever else is open. Statements say its number.
    pub fn begin_dry_run(&mut self, number: u64) -> Result<(), StoreFault> {
        self.roll_back();
        stack::for_write(|| self.open_dry_run())?;
        self.dry_run = Some(OpenDryRun { number, ..OpenDryRun::default() });
        Ok(())
    }

    /// Runs one more statement, at this time or the last applied one if that is later.
    pub fn dry_run(
        &mut self,
        number: u64,
        stamp: Stamp,
        statement: Statement<Param>,
    ) -> Result<DryRunResult, DryRunError> {
        let open = self.dry_run.take_if(|open| open.number == number);
        let Some(mut open) = open else { return Err(DryRunError::Over) };
        let stamp = Stamp { now: stamp.now.max(self.row.now), ..stamp };
        self.determinism.budget.set_dry_run(true);
        let done = stack::for_write(|| self.play(&mut open, stamp, statement)).map_err(|error| match error {
            DryRunError::Fault(StoreFault::Slow(_)) => Failure::new(FailureKind::Budget, TOO_LONG).into(),
            DryRunError::Fault(StoreFault::TooMuch(why)) => Failure::new(FailureKind::TooBig, why).into(),
            error => error,
        });
        let done = self.check_not_closing().map_err(DryRunError::Fault).and(done);
        let is_over = match &done {
            Ok(_) => false,
            Err(DryRunError::Failed(_)) => stack::for_write(|| self.replay(&mut open)).is_err(),
            Err(_) => true,
        };
        self.determinism.budget.set_dry_run(false);
        vfs::clock::set(None);
        if is_over {
            self.roll_back();
        } else {
            self.dry_run = Some(open);
        }
        done
    }

    /// Rolls a dry run back, if it is the open one.
    pub fn end_dry_run(&mut self, number: u64) {
        if self.dry_run.as_ref().is_some_and(|open| open.number == number) {
            self.roll_back();
        }
    }

    /// Begins the transaction as an entry is begun.
    fn open_dry_run(&mut self) -> Result<(), StoreFault> {
        self.begin()?;
        self.reset_changes()?;
        self.determinism.begin(self.db.connection(), None, 0, BUDGET_DEFAULT);
        Ok(())
    }

    /// Runs a statement and records it, unless it only reads.
    fn play(
        &mut self,
        open: &mut OpenDryRun,
        stamp: Stamp,
        statement: Statement<Param>,
    ) -> Result<DryRunResult, DryRunError> {
        let left = self.determinism.budget.left();
        // Its caller's pauses do not count.
        self.determinism.budget.begin(None, left);
        let mut returned = open.returned;
        vfs::clock::set(Some(stamp.now));
        self.determinism.seed(stamp.seed);
        usage::forget();
        let result = self.statement(&statement, &open.results, &mut returned);
        if let Some(fault) = usage::swallowed() {
            return Err(fault.into());
        }
        let result = result?;
        let reads = self.db.get(&statement.sql).is_some_and(|prepared| prepared.statement().readonly());
        if reads {
            // When the entry is applied it is not there.
            self.determinism.budget.begin(None, left);
            return Ok(DryRunResult { result, recorded: None });
        }
        if open.recorded.len() >= COMMANDS_MAX {
            let text = format!("a transaction has at most {COMMANDS_MAX} statements that write; split it");
            return Err(DryRunError::Failed(Failure::new(FailureKind::TooBig, text)));
        }
        open.returned = returned;
        open.results.push(CommandResult::Sql(SqlReply::Statement(result.clone())));
        open.recorded.push((stamp, statement));
        Ok(DryRunResult { result, recorded: Some(stamp) })
    }

    /// Makes the open transaction what it was before a statement failed.
    fn replay(&mut self, open: &mut OpenDryRun) -> Result<(), DryRunError> {
        self.roll_back();
        self.open_dry_run()?;
        let before = std::mem::replace(open, OpenDryRun { number: open.number, ..OpenDryRun::default() });
        before.recorded.into_iter().try_for_each(|(stamp, statement)| self.play(open, stamp, statement).map(|_| ()))
    }
}

impl From<NoMemory> for DryRunError {
    fn from(none: NoMemory) -> Self {
        Self::Fault(none.into())
    }
}

impl From<Failure> for DryRunError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Trouble> for DryRunError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Failure(failure) => Self::Failed(failure),
            Trouble::Fault(fault) => Self::Fault(fault),
        }
    }
}
