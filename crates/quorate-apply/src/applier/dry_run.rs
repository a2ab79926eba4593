//! Dry runs: the leader runs the commands of an interactive transaction before they are proposed.
//!
//! Their transaction stays open and unseen, like that of work ahead. If other work needs the connection, it rolls the
//! transaction back, and the dry run is over. The recorded commands are proposed as one entry, which every node runs,
//! including this one.
//!
//! Invariants:
//! - The open transaction holds the effects of the recorded commands, each under its stamp, on the applied state. A
//!   command that fails, or is undone, leaves no effects: the transaction is rolled back, and the commands recorded
//!   before it run again.
//! - A dry run is continued only by the caller that began it: each dry run has its own number.

use quorate_env::mutant::Mutant;
use quorate_model::limits::{BUDGET_DEFAULT, COMMANDS_MAX};
use quorate_model::{Command, CommandResult, Failure, FailureKind, Stamp, StoreFault};

use super::Applier;
use crate::{Allowance, CommandContext, Machine, Trouble};

/// The failure text of a statement that was stopped because it took too long.
const TOO_LONG: &str = "the statement takes too long for an interactive transaction, in which other writes wait for \
                        it; do less at once, or send the statements together (batch, transact)";

/// The dry run in the open transaction.
#[derive(Debug, Default)]
pub(super) struct OpenDryRun {
    number: u64,
    recorded: Vec<(Stamp, Command)>,
    results: Vec<CommandResult>,
    /// Bytes that the results return.
    returned: usize,
}

/// The effect of one command of a dry run.
#[derive(Clone, Debug, PartialEq)]
pub struct DryRunResult {
    /// Its result.
    pub result: CommandResult,
    /// The stamp that it ran under, if it was recorded because it may have written.
    pub recorded: Option<Stamp>,
}

/// Why a command of a dry run had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DryRunError {
    /// The command failed. The dry run goes on without it.
    #[error(transparent)]
    Failed(Failure),
    /// The connection was needed for other work, such as entries to apply or another dry run.
    #[error("the node needed its write connection for other work")]
    Over,
    /// A fault of the node. The dry run is over.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

impl DryRunError {
    /// Whether another dry run may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Failed(failure) => failure.is_retryable(),
            Self::Over => true,
            Self::Fault(fault) => fault.is_retryable(),
        }
    }
}

impl<M: Machine> Applier<M> {
    /// Begins a dry run on the applied state, and ends any other use of the open transaction. The calls of this dry run
    /// pass the same `number`.
    pub fn begin_dry_run(&mut self, number: u64) -> Result<(), StoreFault> {
        self.roll_back();
        M::with_stack(|| self.open_dry_run()).flatten()?;
        self.dry_run = Some(OpenDryRun { number, ..OpenDryRun::default() });
        Ok(())
    }

    /// Runs one more command at the time of `stamp`, or at the last applied time if that is later.
    pub fn dry_run(&mut self, number: u64, stamp: Stamp, command: Command) -> Result<DryRunResult, DryRunError> {
        let mut open = self.enter_dry_run(number)?;
        let stamp = Stamp { now: stamp.now.max(self.row.now), ..stamp };
        let done = with_stack::<M, _>(|| self.play(&mut open, stamp, command)).map_err(|error| match error {
            DryRunError::Fault(StoreFault::Slow(_)) => Failure::new(FailureKind::Budget, TOO_LONG).into(),
            DryRunError::Fault(StoreFault::TooMuch(why)) => Failure::new(FailureKind::TooBig, why).into(),
            error => error,
        });
        let done = self.check_not_closing().map_err(DryRunError::Fault).and(done);
        let is_over = match &done {
            Ok(_) => false,
            Err(DryRunError::Failed(_)) => with_stack::<M, _>(|| self.replay(&mut open)).is_err(),
            Err(_) => true,
        };
        self.leave_dry_run(open, is_over);
        done
    }

    /// Undoes all recorded commands but the first `count`.
    pub fn rewind_dry_run(&mut self, number: u64, count: usize) -> Result<(), DryRunError> {
        let mut open = self.enter_dry_run(number)?;
        open.recorded.truncate(count);
        let is_kept = Mutant::SavepointIgnored.is_on();
        let done = if is_kept { Ok(()) } else { with_stack::<M, _>(|| self.replay(&mut open)) };
        let done = self.check_not_closing().map_err(DryRunError::Fault).and(done);
        self.leave_dry_run(open, done.is_err());
        // What ran once runs again, so a failure is one of the node.
        done.map_err(|error| if let DryRunError::Failed(_) = error { DryRunError::Over } else { error })
    }

    /// Rolls a dry run back if it is the open one.
    pub fn end_dry_run(&mut self, number: u64) {
        if self.dry_run.as_ref().is_some_and(|open| open.number == number) {
            self.roll_back();
        }
    }

    /// Takes the open dry run, if it has this number, to run commands in it.
    fn enter_dry_run(&mut self, number: u64) -> Result<OpenDryRun, DryRunError> {
        let open = self.dry_run.take_if(|open| open.number == number).ok_or(DryRunError::Over)?;
        self.machine.allow(Allowance::DryRun);
        Ok(open)
    }

    /// Puts the open dry run back, or ends it.
    fn leave_dry_run(&mut self, open: OpenDryRun, is_over: bool) {
        self.machine.allow(Allowance::Usual);
        self.machine.clear_stamp();
        if is_over {
            self.roll_back();
        } else {
            self.dry_run = Some(open);
        }
    }

    /// Begins the transaction in the same way as for an entry.
    fn open_dry_run(&mut self) -> Result<(), StoreFault> {
        self.machine.begin()?;
        self.machine.begin_commands(None, 0, BUDGET_DEFAULT)
    }

    /// Runs a command and records it, unless it only reads.
    fn play(&mut self, open: &mut OpenDryRun, stamp: Stamp, command: Command) -> Result<DryRunResult, DryRunError> {
        let left = self.machine.budget_left();
        // Pauses of the caller between commands do not count.
        self.machine.resume_budget(left);
        let mut returned = open.returned;
        self.machine.enter(stamp.now, self.row.applied.level)?;
        self.machine.set_stamp(stamp);
        let context = CommandContext { earlier: &open.results, returned: &mut returned };
        let result = self.machine.run(&command, context);
        if let Some(fault) = self.machine.hidden_fault() {
            return Err(fault.into());
        }
        let result = result?;
        if self.machine.only_reads(&command) {
            // The entry will not contain this command, so its steps do not count.
            self.machine.resume_budget(left);
            return Ok(DryRunResult { result, recorded: None });
        }
        if open.recorded.len() >= COMMANDS_MAX {
            let text = format!("a transaction has at most {COMMANDS_MAX} statements that write; split it");
            return Err(DryRunError::Failed(Failure::new(FailureKind::TooBig, text)));
        }
        open.returned = returned;
        open.results.push(result.clone());
        open.recorded.push((stamp, command));
        Ok(DryRunResult { result, recorded: Some(stamp) })
    }

    /// Makes the state of the open transaction that of the recorded commands.
    fn replay(&mut self, open: &mut OpenDryRun) -> Result<(), DryRunError> {
        self.roll_back();
        self.open_dry_run()?;
        let before = std::mem::replace(open, OpenDryRun { number: open.number, ..OpenDryRun::default() });
        before.recorded.into_iter().try_for_each(|(stamp, command)| self.play(open, stamp, command).map(|_| ()))
    }
}

fn with_stack<M: Machine, T>(run: impl FnOnce() -> Result<T, DryRunError>) -> Result<T, DryRunError> {
    M::with_stack(run)?
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
