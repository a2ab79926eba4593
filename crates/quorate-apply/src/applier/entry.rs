//! One entry: its session and its key, its scope, its commands, and the checks at its end.

use quorate_env::Env;
use quorate_env::mutant::Mutant;
use quorate_model::{
    Archiver, Command, CommandResult, ControlCommand, ControlReply, Failure, FailureKind, Mode, Outcome, Proposal,
    Reply, Results, SessionId, Stamp, StoreFault,
};

use super::batch::{Doing, Stop};
use super::{Applier, SWEPT_PER_ENTRY, SWEPT_PER_TICK, check_level};
use crate::requests;
use crate::session::Admission;
use crate::{CommandContext, Machine, Scope, Trouble, Users};

/// The failure text of a rejected proposal.
const REJECTED: &str = "the nodes could not apply this write in the time and memory that it has, so the cluster does \
                        not run it; their logs say why; do less at once, or allow it more (with_budget)";

/// The proposal that is running.
#[derive(Clone, Copy)]
pub(super) struct Running<'a> {
    pub(super) index: u64,
    pub(super) stamp: Stamp,
    pub(super) proposal: &'a Proposal,
    /// For the second run of a pipeline: the failure of the command that closed the transaction of the first run.
    pub(super) ended: Option<&'a Failure>,
}

/// What the control commands of an entry change after all of its commands have succeeded.
#[derive(Debug, Default)]
pub(super) struct ControlChanges {
    opens_session: bool,
    closes: Vec<SessionId>,
    /// The format level to raise to, or 0.
    level: u32,
    /// The users, if a command has changed them.
    users: Option<Users>,
    /// The archiver, if a command has appointed another one, or nobody.
    archiver: Option<Option<Archiver>>,
}

/// The result of an entry's commands.
pub(super) type Ran = Result<Results, Trouble>;

/// The result of one run of a proposal.
enum Attempt {
    Done(Outcome),
    /// A command closed the transaction; the failure of that command.
    Ended(Failure),
}

impl<M: Machine> Applier<M> {
    /// Applies a proposal.
    pub(super) fn proposal(
        &mut self,
        index: u64,
        stamp: Stamp,
        proposal: &Proposal,
        doing: &Doing,
    ) -> Result<Outcome, Stop> {
        let now = self.begin_entry(stamp);
        if let Admission::Answered(outcome) = self.admit(proposal, now)? {
            return Ok(outcome);
        }
        self.machine.enter(now, self.staged.row.applied.level)?;
        let outcome = self.fresh(index, Stamp { now, ..stamp }, proposal, doing);
        if let (false, Some(fault)) = (matches!(outcome, Err(Stop::Fault(_))), self.machine.hidden_fault()) {
            return Err(fault.into());
        }
        let outcome = outcome?;
        self.machine.leave(index, proposal);
        self.machine.sweep(now, SWEPT_PER_ENTRY)?;
        let topics = self.machine.take_touched().into_iter().map(|topic| (index, topic));
        self.staged.touched.topics.extend(topics);
        if Mutant::LastChangesOnly.is_on() {
            self.staged.touched.changes.clear();
        }
        self.staged.touched.changes.append(&mut self.machine.take_changes());
        self.keep((index, now), proposal, outcome)
    }

    /// Applies a proposal that the cluster decided not to run. A retry of it gets the same outcome.
    pub(super) fn rejection(&mut self, index: u64, stamp: Stamp, proposal: &Proposal) -> Result<Outcome, Stop> {
        // The note was made by running a later entry after this one, before this one was rejected.
        self.known_to_end = None;
        let now = self.begin_entry(stamp);
        self.machine.write_rejection(index)?;
        self.staged.rejected.push(index);
        if let Admission::Answered(outcome) = self.admit(proposal, now)? {
            return Ok(outcome);
        }
        let outcome = Err(Failure::new(FailureKind::Rejected, REJECTED));
        self.keep((index, now), proposal, outcome)
    }

    /// Lets time pass up to the stamp of an entry, and returns the entry's time.
    fn begin_entry(&mut self, stamp: Stamp) -> u64 {
        let now = self.staged.row.now.max(stamp.now);
        self.staged.row.now = now;
        self.sessions.begin(now);
        now
    }

    fn admit(&mut self, proposal: &Proposal, now: u64) -> Result<Admission, StoreFault> {
        if let Some(origin) = proposal.origin
            && let answered @ Admission::Answered(_) = self.sessions.admit(&mut self.machine, origin, now)?
        {
            return Ok(answered);
        }
        let Some(key) = &proposal.key else { return Ok(Admission::Fresh) };
        let admission = self.staged.requests.admit(&mut self.machine, key, now)?;
        if let (Some(origin), Admission::Answered(outcome)) = (proposal.origin, &admission) {
            self.sessions.keep(origin, outcome);
        }
        Ok(admission)
    }

    /// Keeps the outcome of the entry at `index`, at the time `now`, for its session and its key. Returns it as both
    /// answer it again.
    fn keep(&mut self, (index, now): (u64, u64), proposal: &Proposal, outcome: Outcome) -> Result<Outcome, Stop> {
        let swept = match (&proposal.key, proposal.commands.as_slice()) {
            (Some(_), _) => SWEPT_PER_ENTRY,
            (None, [Command::Control(ControlCommand::Tick)]) => SWEPT_PER_TICK,
            (None, _) => 0,
        };
        // Here and not before: an entry that runs alone may have ended the transaction and begun another.
        self.staged.requests.sweep(&mut self.machine, now, swept)?;
        let outcome = match &proposal.key {
            None => outcome,
            Some(key) => {
                self.staged.requests.remember(&mut self.machine, key, (index, now), &outcome)?;
                outcome.map(|reply| Reply { first: Some(index), ..reply })
            }
        };
        if let Some(origin) = proposal.origin {
            self.sessions.keep(origin, &outcome);
        }
        Ok(outcome)
    }

    /// Runs a proposal that was not applied before.
    fn fresh(&mut self, index: u64, stamp: Stamp, proposal: &Proposal, doing: &Doing) -> Result<Outcome, Stop> {
        if let Err(failure) = proposal.check_limits().and_then(|()| self.check_dry_run(stamp, proposal)) {
            return Ok(Err(failure));
        }
        if let [command] = proposal.commands.as_slice()
            && let Some(outcome) = self.machine.run_outside(command)
        {
            return Ok(outcome?);
        }
        let running = Running { index, stamp, proposal, ended: None };
        let ended = match doing {
            Doing::Fails(failure) => failure.clone(),
            Doing::Together | Doing::Alone => match (self.attempt(running, doing)?, doing) {
                (Attempt::Done(outcome), _) => return Ok(outcome),
                (Attempt::Ended(failure), Doing::Together) => return Err(Stop::Killed(failure)),
                (Attempt::Ended(failure), _) => {
                    self.machine.roll_back();
                    self.machine.begin()?;
                    failure
                }
            },
        };
        if proposal.mode == Mode::Atomic || ended.command.is_none() || Mutant::PipelineIsAtomic.is_on() {
            return Ok(Err(ended));
        }
        match self.attempt(Running { ended: Some(&ended), ..running }, doing)? {
            Attempt::Done(outcome) => Ok(outcome),
            Attempt::Ended(_) => Err(StoreFault::Io("a transaction ended twice".to_owned()).into()),
        }
    }

    /// Runs a proposal in the open transaction.
    fn attempt(&mut self, running: Running<'_>, doing: &Doing) -> Result<Attempt, Stop> {
        let mut changes = ControlChanges::default();
        // Only together with other entries is a scope dearer than running the entry again.
        let scope = match doing {
            Doing::Together => self.machine.scope_of(running.proposal),
            Doing::Alone | Doing::Fails(_) => Scope::Undoable,
        };
        let done = self.in_scope(scope, |applier| {
            let outcome = Ok(Reply::of(applier.run_sealed(running, &mut changes)?));
            if running.proposal.key.is_some() {
                requests::check_outcome(&outcome)?;
            }
            Ok(outcome)
        });
        let is_ended = !self.machine.is_open();
        match done {
            Err(Trouble::Fault(fault)) => Err(fault.into()),
            Err(Trouble::Failure(failure)) if is_ended => Ok(Attempt::Ended(failure)),
            Ok(_) if is_ended => Err(StoreFault::Io("a command closed the transaction".to_owned()).into()),
            Err(Trouble::Failure(failure)) => Ok(Attempt::Done(Err(failure))),
            Ok(outcome) => {
                changes.closes.iter().for_each(|session| self.sessions.end(session.0));
                if changes.opens_session {
                    self.sessions.open(running.index, running.stamp.now);
                }
                let applied = &mut self.staged.row.applied;
                applied.level = applied.level.max(changes.level);
                changes.users.into_iter().for_each(|users| self.staged.users.set(users));
                changes.archiver.into_iter().for_each(|archiver| self.staged.row.archiver = archiver);
                Ok(Attempt::Done(outcome))
            }
        }
    }

    /// Fails if another entry was applied between the dry run of a proposal and the proposal.
    fn check_dry_run(&self, stamp: Stamp, proposal: &Proposal) -> Result<(), Failure> {
        let Some(dry_run) = &proposal.dry_run else { return Ok(()) };
        // If the commands saw a later clock than this one, time would run backwards.
        let is_late = dry_run.stamps.iter().any(|seen| seen.now > stamp.now);
        if !is_late && self.staged.row.applied.index() == dry_run.index || Mutant::DryRunNotChecked.is_on() {
            return Ok(());
        }
        let text = "another write came between its statements and its commit";
        Err(Failure::new(FailureKind::Aborted, text))
    }

    /// Runs the commands of a proposal and the checks at its end.
    fn run_sealed(&mut self, running: Running<'_>, changes: &mut ControlChanges) -> Ran {
        let Running { index, stamp, proposal, .. } = running;
        self.machine.begin_commands(Some(index), stamp.seed, proposal.budget)?;
        let ran = self.run_checked(running, changes);
        self.machine.end_commands();
        ran
    }

    fn run_checked(&mut self, running: Running<'_>, changes: &mut ControlChanges) -> Ran {
        let Running { stamp, proposal, .. } = running;
        if !proposal.read_checks.is_empty() {
            for check in &proposal.read_checks {
                self.machine.set_stamp(check.stamp_in(stamp));
                self.machine.read_check(check)?;
            }
            self.machine.set_stamp(stamp);
        }
        match proposal.mode {
            Mode::Atomic => {
                let results = self.commands(running, changes)?;
                self.machine.seal()?;
                Ok(results)
            }
            Mode::Pipeline => self.pipeline(running, changes),
        }
    }

    /// Runs commands that succeed or fail together.
    fn commands(&mut self, running: Running<'_>, changes: &mut ControlChanges) -> Ran {
        let Running { proposal, .. } = running;
        let mut returned = 0;
        let mut results = Results::with_capacity(proposal.commands.len());
        let stamps = proposal.dry_run.as_ref().map_or(&[][..], |dry_run| &dry_run.stamps);
        for (number, command) in proposal.commands.iter().enumerate() {
            if let Some(stamp) = stamps.get(number) {
                self.machine.set_stamp(*stamp);
            }
            let context = CommandContext { earlier: &results, returned: &mut returned };
            let result = self.command(running, command, context, changes);
            results.push(result.map_err(|trouble| trouble.with_failure(|failure| failure.at(number)))?);
        }
        Ok(results)
    }

    pub(super) fn command(
        &mut self,
        Running { index, stamp, .. }: Running<'_>,
        command: &Command,
        context: CommandContext<'_>,
        changes: &mut ControlChanges,
    ) -> Result<CommandResult, Trouble> {
        match command {
            Command::Control(ControlCommand::OpenSession) => {
                changes.opens_session = true;
                Ok(ControlReply::Session(SessionId(index)).into())
            }
            Command::Control(ControlCommand::CloseSession(session)) => {
                changes.closes.push(*session);
                Ok(ControlReply::Done.into())
            }
            Command::Control(ControlCommand::Verify) => Ok(ControlReply::Done.into()),
            Command::Control(ControlCommand::Raise(level)) => {
                check_level(*level, self.level)?;
                changes.level = changes.level.max(*level);
                Ok(ControlReply::Done.into())
            }
            Command::Control(ControlCommand::Tick) => {
                let clock = Env::current().filter(|_| Mutant::TickReadsClock.is_on());
                let now = clock.map_or(stamp.now, |clock| clock.unix_nanos());
                self.machine.sweep(now, SWEPT_PER_TICK)?;
                Ok(ControlReply::Done.into())
            }
            Command::Control(ControlCommand::User(command)) => {
                let users = changes.users.get_or_insert_with(|| Users::clone(self.staged.users.present()));
                users.change(command, stamp.now)?;
                Ok(ControlReply::Done.into())
            }
            Command::Control(ControlCommand::Appoint(appointment)) => {
                let present = changes.archiver.unwrap_or(self.staged.row.archiver);
                Ok(match appointment.replace(present, index) {
                    Ok(archiver) => {
                        changes.archiver = Some(archiver);
                        ControlReply::Done
                    }
                    Err(present) => ControlReply::Archiver(present),
                }
                .into())
            }
            command @ (Command::Sql(_)
            | Command::Keys(_)
            | Command::Locks(_)
            | Command::Events(_)
            | Command::Items(_)) => self.machine.run(command, context),
        }
    }
}
