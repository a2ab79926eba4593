//! One entry: its session, its savepoint if it needs one, its commands, and the checks at its end.

use quorate_env::mutant::Mutant;
use quorate_model::{
    ALONE, Command, CommandResult, ControlCommand, ControlReply, Failure, FailureKind, Mode, Outcome, Proposal, Reply,
    Results, SessionId, SqlCommand, SqlReply, Stamp, StoreFault,
};

use quorate_model::limits::FAILURE_TEXTS_BYTES_MAX;

use super::Applier;
use super::batch::{COMMIT, Doing, ROLLBACK, Stop};
use crate::authorizer::Effects;
use crate::classify::{self, Context, Trouble};
use crate::extensions;
use crate::ffi::hooks;
use crate::rejected::Rejected;
use crate::session::Admission;
use crate::{schema_check, usage, vfs};

const SAVEPOINT: &str = "SAVEPOINT entry";
const RELEASE: &str = "RELEASE entry";
const ROLLBACK_TO: &str = "ROLLBACK TO entry";

/// The failure text of a rejected proposal.
const REJECTED: &str = "the nodes could not apply this write in the time and memory that it has, so the cluster does \
                        not run it; their logs say why; do less at once, or allow it more (with_budget)";

/// Makes virtual tables write what they have buffered, so that a failure of that belongs to this entry and not to the
/// next one.
const FLUSH: &str = "SAVEPOINT written";

/// The text of a failure whose own text was left out.
const TEXT_OMITTED: &str = "text omitted";

/// Sets `changes()` to 0, for which SQLite has no other way.
const RESET_CHANGES: &str = "DELETE FROM _quorate_applied WHERE 0";

/// The proposal that is running.
#[derive(Clone, Copy)]
struct Running<'a> {
    index: u64,
    stamp: Stamp,
    proposal: &'a Proposal,
    /// For the second run of a pipeline: the failure of the command that ended the transaction of the first run.
    ended: Option<&'a Failure>,
}

/// Sessions that an entry opens and closes after its commands have succeeded.
#[derive(Debug, Default)]
struct SessionChanges {
    opens: bool,
    closes: Vec<SessionId>,
}

/// The result of an entry's commands.
type Ran = Result<Results, Trouble>;

/// The result of one run of a proposal.
enum Attempt {
    Done(Outcome),
    /// A command ended the transaction; the failure of that command.
    Ended(Failure),
}

impl Applier {
    /// Applies a proposal.
    pub(super) fn proposal(
        &mut self,
        index: u64,
        stamp: Stamp,
        proposal: &Proposal,
        doing: &Doing,
    ) -> Result<Outcome, Stop> {
        let now = self.staged.row.now.max(stamp.now);
        self.staged.row.now = now;
        self.sessions.begin(now);
        let admission = match proposal.origin {
            Some(origin) => self.sessions.admit(&mut self.db, origin, now)?,
            None => Admission::Fresh,
        };
        let (outcome, fresh) = match admission {
            Admission::Answered(outcome) => (outcome, None),
            Admission::Fresh => {
                vfs::clock::set(Some(now));
                usage::forget();
                let begun = self.slow.now();
                let outcome = self.fresh(index, Stamp { now, ..stamp }, proposal, doing);
                if let (false, Some(fault)) = (matches!(outcome, Err(Stop::Fault(_))), usage::swallowed()) {
                    return Err(fault.into());
                }
                let outcome = outcome?;
                self.slow.write(begun, index, proposal);
                (outcome, proposal.origin)
            }
        };
        if let Some(origin) = fresh {
            self.sessions.keep(origin, &outcome);
        }
        Ok(outcome)
    }

    /// Applies a proposal that the cluster decided not to run. A retry of it gets the same outcome.
    pub(super) fn rejection(&mut self, index: u64, stamp: Stamp, proposal: &Proposal) -> Result<Outcome, Stop> {
        // The note was made by running a later entry after this one, before this one was rejected.
        self.known_to_end = None;
        let now = self.staged.row.now.max(stamp.now);
        self.staged.row.now = now;
        self.sessions.begin(now);
        Rejected::write(&mut self.db, index).map_err(|error| classify::own(&error))?;
        self.staged.rejected.push(index);
        let admission = match proposal.origin {
            Some(origin) => self.sessions.admit(&mut self.db, origin, now)?,
            None => Admission::Fresh,
        };
        if let Admission::Answered(outcome) = admission {
            return Ok(outcome);
        }
        let outcome = Err(Failure::new(FailureKind::Rejected, REJECTED));
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
        if proposal.commands == [Command::Sql(SqlCommand::Vacuum)] {
            return Ok(self.vacuum()?);
        }
        let running = Running { index, stamp, proposal, ended: None };
        let ended = match doing {
            Doing::Fails(failure) => failure.clone(),
            Doing::Together | Doing::Alone => match (self.attempt(running, doing)?, doing) {
                (Attempt::Done(outcome), _) => return Ok(outcome),
                (Attempt::Ended(failure), Doing::Together) => return Err(Stop::Killed(failure)),
                (Attempt::Ended(failure), _) => {
                    let effects = std::mem::take(&mut self.staged.effects);
                    self.staged.undone_effects.add(effects);
                    self.begin()?;
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
        let mut changes = SessionChanges::default();
        // At its end only the entry's own effects are checked. A rollback also undoes those of earlier entries.
        let before = std::mem::take(&mut self.staged.effects);
        let mut run = |applier: &mut Self| applier.run_sealed(running, before.schema, &mut changes);
        let done = if matches!(doing, Doing::Together) && self.is_plain(running.proposal) {
            self.without_savepoint(run)
        } else {
            self.in_savepoint(before.schema, |applier| {
                applier.reset_changes()?;
                run(applier)
            })
        };
        self.staged.effects.add(before);
        let is_ended = self.db.connection().is_autocommit();
        match done {
            Err(Trouble::Fault(fault)) => Err(fault.into()),
            Err(Trouble::Failure(failure)) if is_ended => Ok(Attempt::Ended(failure)),
            Ok(_) if is_ended => Err(StoreFault::Io("a statement ended the transaction".to_owned()).into()),
            Err(Trouble::Failure(failure)) => Ok(Attempt::Done(Err(failure))),
            Ok(results) => {
                changes.closes.iter().for_each(|session| self.sessions.end(session.0));
                if changes.opens {
                    self.sessions.open(running.index, running.stamp.now);
                }
                Ok(Attempt::Done(Ok(Reply { results })))
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

    /// Whether a proposal is nothing but one plain statement that is already prepared.
    fn is_plain(&mut self, proposal: &Proposal) -> bool {
        let Proposal { mode: Mode::Atomic, dry_run: None, commands, read_checks, .. } = proposal else { return false };
        let ([Command::Sql(SqlCommand::Statement(statement))], []) = (commands.as_slice(), read_checks.as_slice())
        else {
            return false;
        };
        self.db.get(&statement.sql).is_some_and(|prepared| prepared.note().is_plain)
    }

    /// Runs a plain proposal without a savepoint, which would cost as much as its statement. If a failure leaves
    /// something behind, the transaction is rolled back, so that the batch is applied again.
    fn without_savepoint(&mut self, run: impl FnOnce(&mut Self) -> Ran) -> Ran {
        let done = run(self);
        let conn = self.db.connection();
        if let Err(Trouble::Failure(failure)) = &done
            && !conn.is_autocommit()
            && (!leaves_nothing(failure) || self.determinism.counters().counted(conn))
        {
            self.own(ROLLBACK)?;
        }
        done
    }

    /// Runs a proposal or a command of a pipeline in a savepoint. A failure that does not end the transaction leaves it
    /// as it was before. `schema_changed` says whether the transaction had already changed the schema.
    fn in_savepoint<T>(
        &mut self,
        schema_changed: bool,
        run: impl FnOnce(&mut Self) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        self.own(SAVEPOINT)?;
        match run(self) {
            Err(Trouble::Failure(failure)) if !self.db.connection().is_autocommit() => {
                self.own(ROLLBACK_TO)?;
                self.own(RELEASE)?;
                // After a schema change, every ROLLBACK TO in the transaction makes SQLite discard its loaded schema,
                // so the effects stay.
                let mut undone = self.staged.effects;
                undone.schema |= schema_changed;
                self.refresh_caches(undone)?;
                Err(Trouble::Failure(failure))
            }
            Err(trouble) => Err(trouble),
            Ok(done) => {
                self.own(RELEASE)?;
                Ok(done)
            }
        }
    }

    /// Runs the commands of a proposal and the checks at its end.
    fn run_sealed(&mut self, running: Running<'_>, schema_changed: bool, changes: &mut SessionChanges) -> Ran {
        let Running { index, stamp, proposal, .. } = running;
        self.determinism.begin(self.db.connection(), Some(index), stamp.seed, proposal.budget);
        let ran = self.run_watched(running, schema_changed, changes);
        usage::unwatch();
        ran
    }

    fn run_watched(&mut self, running: Running<'_>, schema_changed: bool, changes: &mut SessionChanges) -> Ran {
        let Running { stamp, proposal, .. } = running;
        if !proposal.read_checks.is_empty() {
            proposal.read_checks.iter().try_for_each(|check| self.read_check(check))?;
            vfs::clock::set(Some(stamp.now));
            self.determinism.seed(stamp.seed);
        }
        match proposal.mode {
            Mode::Atomic => {
                let results = self.commands(running, changes)?;
                self.seal()?;
                Ok(results)
            }
            Mode::Pipeline => self.pipeline(running, schema_changed, changes),
        }
    }

    /// Runs commands that succeed or fail together.
    fn commands(&mut self, running: Running<'_>, changes: &mut SessionChanges) -> Ran {
        let Running { index, proposal, .. } = running;
        let mut returned = 0;
        let mut results = Results::with_capacity(proposal.commands.len());
        let stamps = proposal.dry_run.as_ref().map_or(&[][..], |dry_run| &dry_run.stamps);
        for (number, command) in proposal.commands.iter().enumerate() {
            if let Some(stamp) = stamps.get(number) {
                vfs::clock::set(Some(stamp.now));
                self.determinism.seed(stamp.seed);
            }
            let result = self.command(index, command, &results, &mut returned, changes);
            results.push(result.map_err(|trouble| trouble.with_failure(|failure| failure.at(number)))?);
        }
        Ok(results)
    }

    /// Runs commands each of which succeeds or fails by itself. If one ends the transaction, all of them are undone and
    /// run again up to that one. The commands after it do not run, so a pipeline runs at most twice.
    ///
    /// An exceeded budget always ends the transaction. SQLite ends it by itself only if the statement was interrupted
    /// while it wrote, and at which step that happens differs between nodes.
    fn pipeline(&mut self, running: Running<'_>, schema_changed: bool, changes: &mut SessionChanges) -> Ran {
        let Running { index, proposal, ended, .. } = running;
        let (mut returned, mut texts) = (0, 0_usize);
        let mut results = Results::with_capacity(proposal.commands.len());
        let last = ended.and_then(|failure| failure.command).and_then(|number| usize::try_from(number).ok());
        for (number, command) in proposal.commands.iter().enumerate() {
            if let (Some(last), Some(failure)) = (last, ended)
                && number >= last
            {
                let failure = if number == last { failure.clone() } else { not_run(failure).at(number) };
                results.push(CommandResult::Failed(shorten(failure, &mut texts)));
                continue;
            }
            // At its end only the command's own effects are checked.
            let before = std::mem::take(&mut self.staged.effects);
            let schema_changed = schema_changed || before.schema;
            let ran = self.in_savepoint(schema_changed, |applier| {
                let result = applier.command(index, command, &results, &mut returned, changes)?;
                applier.seal()?;
                Ok(result)
            });
            self.staged.effects.add(before);
            results.push(match ran.map_err(|trouble| trouble.with_failure(|failure| failure.at(number))) {
                Ok(result) => result,
                Err(Trouble::Failure(failure)) if !self.db.connection().is_autocommit() => {
                    if failure.kind == FailureKind::Budget {
                        self.own(ROLLBACK)?;
                        return Err(failure.into());
                    }
                    CommandResult::Failed(shorten(failure, &mut texts))
                }
                Err(trouble) => return Err(trouble),
            });
        }
        Ok(results)
    }

    fn command(
        &mut self,
        index: u64,
        command: &Command,
        earlier: &[CommandResult],
        returned: &mut usize,
        changes: &mut SessionChanges,
    ) -> Result<CommandResult, Trouble> {
        match command {
            Command::Control(ControlCommand::OpenSession) => {
                changes.opens = true;
                Ok(ControlReply::Session(SessionId(index)).into())
            }
            Command::Control(ControlCommand::CloseSession(session)) => {
                changes.closes.push(*session);
                Ok(ControlReply::Done.into())
            }
            Command::Control(ControlCommand::Verify) => Ok(ControlReply::Done.into()),
            Command::Sql(command) => self.sql(command, earlier, returned).map(CommandResult::Sql),
        }
    }

    fn sql(
        &mut self,
        command: &SqlCommand,
        earlier: &[CommandResult],
        returned: &mut usize,
    ) -> Result<SqlReply, Trouble> {
        match command {
            SqlCommand::Statement(statement) => self.statement(statement, earlier, returned).map(SqlReply::Statement),
            SqlCommand::Bulk(bulk) => self.bulk(bulk).map(SqlReply::Statement),
            SqlCommand::Extend(names) => self.extend(names),
            SqlCommand::Vacuum => Err(Failure::new(FailureKind::Refused, ALONE).into()),
        }
    }

    /// Enables extensions. They are registered before their entry is committed: if that fails, the same entry is
    /// applied again before any other.
    fn extend(&mut self, names: &[String]) -> Result<SqlReply, Trouble> {
        let own = |error: rusqlite::Error| classify::own(&error);
        self.extensions.know(names)?;
        for name in names {
            self.db.execute(extensions::ENABLE, rusqlite::params![name]).map_err(own)?;
        }
        self.extensions.register(self.db.connection(), names.iter().map(String::as_str)).map_err(own)?;
        Ok(SqlReply::Done)
    }

    /// Checks what must hold when an entry ends.
    fn seal(&mut self) -> Result<(), Trouble> {
        if hooks::deferred_keys_are_open(self.db.connection()) && !Mutant::DeferredKeysAtBatch.is_on() {
            let text =
                "a deferred foreign key refers to a row that does not exist; write that too, in the same transaction";
            let code = rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY;
            return Err(Failure { sqlite_code: code, ..Failure::new(FailureKind::ForeignKey, text) }.into());
        }
        if self.staged.effects.schema {
            // Check the schema as a connection that is opened later will read it.
            self.forget_schema()?;
            let checked = schema_check::check(self.db.connection(), &self.reserved, &self.schema);
            checked.map_err(|error| match (usage::fault(&error), classify::of_schema_text(&error)) {
                (Some(fault), _) => fault.into(),
                (None, Some(failure)) => self.unreadable(failure),
                (None, None) => classify::classify(&error, Context::default()),
            })??;
        }
        if !self.schema.virtual_tables.is_empty() {
            let failed_writes = vfs::failed_writes();
            if let Err(error) = self.db.execute(FLUSH, []) {
                let context = Context { write_failed: vfs::failed_writes() != failed_writes, refusal: None };
                return Err(classify::classify(&error, context));
            }
        }
        Ok(())
    }

    /// Runs VACUUM, which can't run inside a transaction. It is outside the transaction of its entry, which is safe
    /// because repeating it changes nothing more.
    fn vacuum(&mut self) -> Result<Outcome, StoreFault> {
        self.own(COMMIT)?;
        let failed_writes = vfs::failed_writes();
        let done = self.db.connection().execute_batch("VACUUM");
        self.staged.undone_effects.add(Effects { schema: true, ..Effects::default() });
        self.begin()?;
        match done {
            Ok(()) => Ok(Ok(Reply { results: [SqlReply::Done.into()].into() })),
            Err(error) => {
                if let Some(fault) = usage::fault(&error) {
                    return Err(fault);
                }
                let context = Context { write_failed: vfs::failed_writes() != failed_writes, refusal: None };
                match classify::classify(&error, context) {
                    Trouble::Failure(failure) => Ok(Err(failure.at(0))),
                    Trouble::Fault(fault) => Err(fault),
                }
            }
        }
    }

    /// Sets `changes()` to 0.
    pub(super) fn reset_changes(&mut self) -> Result<(), StoreFault> {
        self.own(RESET_CHANGES)
    }

    /// Runs one of the store's own statements.
    pub(super) fn own(&mut self, sql: &'static str) -> Result<(), StoreFault> {
        self.db.execute(sql, []).map(|_| ()).map_err(|error| classify::own(&error))
    }
}

/// The same failure, without its text once the texts of its pipeline's failures have [`FAILURE_TEXTS_BYTES_MAX`]: an
/// outcome must fit into a message between nodes.
fn shorten(failure: Failure, texts: &mut usize) -> Failure {
    *texts = texts.saturating_add(failure.message.len());
    if *texts <= FAILURE_TEXTS_BYTES_MAX { failure } else { Failure { message: TEXT_OMITTED.to_owned(), ..failure } }
}

/// The failure of a command after the one that ended its pipeline's transaction.
fn not_run(ended: &Failure) -> Failure {
    let number = ended.command.map_or(0, |number| u64::from(number).saturating_add(1));
    let text = format!("not run, because command {number} of the pipeline ended its transaction; send it again");
    Failure::new(FailureKind::NotRun, text)
}

/// Whether a failed statement has undone its own changes, unless they were counted. SQLite gives a statement a journal
/// of its own if a constraint may fail, but none for failures of STRICT, of an aggregate or of the store.
fn leaves_nothing(failure: &Failure) -> bool {
    failure.kind == FailureKind::Constraint && failure.sqlite_code != rusqlite::ffi::SQLITE_CONSTRAINT_DATATYPE
}
