//! One entry: its session, its savepoint if it needs one, its commands, and what must hold at its end.

use quorate_env::mutant::Mutant;
use quorate_model::{
    Command, CommandResult, Failure, FailureKind, Outcome, Proposal, Reply, Results, SessionId, Stamp, StoreFault,
    VACUUM_ALONE,
};

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

/// Why a rejected proposal was not run.
const REJECTED: &str = "the nodes could not apply this write in the time and memory that it has, so the cluster does \
                        not run it; their logs say why; do less at once, or allow it more (with_budget)";

/// Makes virtual tables write what they gathered, so that their trouble is this entry's and not the next one's.
const FLUSH: &str = "SAVEPOINT written";

/// Makes `changes()` 0, for which SQLite has no other way.
const RESET_CHANGES: &str = "DELETE FROM _quorate_applied WHERE 0";

/// Sessions that commands of an entry open and end; done when all of them have succeeded.
#[derive(Debug, Default)]
struct SessionChanges {
    opens: bool,
    ends: Vec<SessionId>,
}

/// What running an entry's commands came to.
type Ran = Result<Results, Trouble>;

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
                let outcome = match doing {
                    Doing::Fails(failure) => Ok(Err(failure.clone())),
                    Doing::Together => self.fresh(index, Stamp { now, ..stamp }, proposal, false),
                    Doing::Alone => self.fresh(index, Stamp { now, ..stamp }, proposal, true),
                };
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

    /// Applies a proposal that the cluster decided not to run: a retry of it gets the same outcome.
    pub(super) fn rejection(&mut self, index: u64, stamp: Stamp, proposal: &Proposal) -> Result<Outcome, Stop> {
        // It was found behind this entry, when this one had not been rejected yet.
        self.doomed = None;
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

    /// Does what a proposal asks for the first time.
    fn fresh(&mut self, index: u64, stamp: Stamp, proposal: &Proposal, alone: bool) -> Result<Outcome, Stop> {
        if let Err(failure) = proposal.check_limits() {
            return Ok(Err(failure));
        }
        if let Err(failure) = self.follows_rehearsal(stamp, proposal) {
            return Ok(Err(failure));
        }
        if proposal.commands == [Command::Vacuum] {
            return Ok(self.vacuum()?);
        }
        let mut changes = SessionChanges::default();
        // Of an entry only its own effects are checked at its end; a rollback undoes those before it too.
        let before = std::mem::take(&mut self.staged.effects);
        let rests = !proposal.premises.is_empty() || proposal.rehearsal.is_some();
        let is_bare = !alone && !rests && self.is_plain(proposal);
        let run = |applier: &mut Self| applier.run_sealed(index, stamp, proposal, &mut changes);
        let done = if is_bare { self.plainly(run) } else { self.in_savepoint(before.schema, run) };
        self.staged.effects.add(before);
        if self.db.connection().is_autocommit() {
            let failure = match done {
                Err(Trouble::Fault(fault)) => return Err(fault.into()),
                Err(Trouble::Failure(failure)) => failure,
                Ok(_) => return Err(StoreFault::Io("a statement ended the transaction".to_owned()).into()),
            };
            if !alone {
                return Err(Stop::Killed(failure));
            }
            let effects = std::mem::take(&mut self.staged.effects);
            self.staged.unsettled.add(effects);
            self.begin()?;
            return Ok(Err(failure));
        }
        match done {
            Ok(results) => {
                changes.ends.iter().for_each(|session| self.sessions.end(session.0));
                if changes.opens {
                    self.sessions.open(index, stamp.now);
                }
                Ok(Ok(Reply { results }))
            }
            Err(Trouble::Failure(failure)) => Ok(Err(failure)),
            Err(Trouble::Fault(fault)) => Err(fault.into()),
        }
    }

    /// Fails if another entry came between a rehearsal and its proposal.
    fn follows_rehearsal(&self, stamp: Stamp, proposal: &Proposal) -> Result<(), Failure> {
        let Some(rehearsal) = &proposal.rehearsal else { return Ok(()) };
        // What it saw was later than this: time would run back.
        let is_late = rehearsal.stamps.iter().any(|seen| seen.now > stamp.now);
        if !is_late && self.staged.row.applied.index() == rehearsal.index || Mutant::RehearsalNotChecked.is_on() {
            return Ok(());
        }
        let text = "another write came between its statements and its commit";
        Err(Failure::new(FailureKind::Aborted, text))
    }

    /// Whether a proposal is one statement that is kept prepared, and plain.
    fn is_plain(&mut self, proposal: &Proposal) -> bool {
        let [Command::Statement(statement)] = proposal.commands.as_slice() else { return false };
        self.db.get(&statement.sql).is_some_and(|prepared| prepared.note().is_plain)
    }

    /// Runs a plain proposal without a savepoint, which would cost as much as its statement. A failure that leaves
    /// something behind ends the transaction, so that the batch is done again.
    fn plainly(&mut self, run: impl FnOnce(&mut Self) -> Ran) -> Ran {
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

    /// Runs a proposal; a failure leaves the transaction as it was before, if it leaves it. `schema_changed` says
    /// whether the transaction had changed the schema before.
    fn in_savepoint(&mut self, schema_changed: bool, run: impl FnOnce(&mut Self) -> Ran) -> Ran {
        self.own(SAVEPOINT)?;
        self.reset_changes()?;
        match run(self) {
            Err(Trouble::Failure(failure)) if !self.db.connection().is_autocommit() => {
                self.own(ROLLBACK_TO)?;
                self.own(RELEASE)?;
                // Once the schema has changed in a transaction, SQLite forgets it at every ROLLBACK TO, so the effects
                // stay.
                let mut undone = self.staged.effects;
                undone.schema |= schema_changed;
                self.settle(undone)?;
                Err(Trouble::Failure(failure))
            }
            Err(trouble) => Err(trouble),
            Ok(results) => {
                self.own(RELEASE)?;
                Ok(results)
            }
        }
    }

    /// Runs the commands of a proposal and checks what must hold at its end.
    fn run_sealed(&mut self, index: u64, stamp: Stamp, proposal: &Proposal, changes: &mut SessionChanges) -> Ran {
        self.determinism.begin(self.db.connection(), Some(index), stamp.seed, proposal.budget);
        let ran = self.run_watched(index, stamp, proposal, changes);
        usage::unwatch();
        ran
    }

    fn run_watched(&mut self, index: u64, stamp: Stamp, proposal: &Proposal, changes: &mut SessionChanges) -> Ran {
        if !proposal.premises.is_empty() {
            proposal.premises.iter().try_for_each(|premise| self.premise(premise))?;
            vfs::clock::set(Some(stamp.now));
            self.determinism.seed(stamp.seed);
        }
        let results = self.commands(index, proposal, changes)?;
        self.seal()?;
        Ok(results)
    }

    fn commands(&mut self, index: u64, proposal: &Proposal, changes: &mut SessionChanges) -> Ran {
        let mut returned = 0;
        let mut results = Results::with_capacity(proposal.commands.len());
        let stamps = proposal.rehearsal.as_ref().map_or(&[][..], |rehearsal| &rehearsal.stamps);
        for (number, command) in proposal.commands.iter().enumerate() {
            if let Some(stamp) = stamps.get(number) {
                vfs::clock::set(Some(stamp.now));
                self.determinism.seed(stamp.seed);
            }
            let named = |trouble: Trouble| trouble.with_failure(|failure| failure.at(number));
            results.push(match command {
                Command::Statement(statement) => {
                    CommandResult::Statement(self.statement(statement, &results, &mut returned).map_err(named)?)
                }
                Command::Bulk(bulk) => CommandResult::Statement(self.bulk(bulk).map_err(named)?),
                Command::OpenSession => {
                    changes.opens = true;
                    CommandResult::Session(SessionId(index))
                }
                Command::CloseSession(session) => {
                    changes.ends.push(*session);
                    CommandResult::Done
                }
                Command::Verify => CommandResult::Done,
                Command::Extend(names) => self.extend(names)?,
                Command::Vacuum => {
                    let failure = Failure::new(FailureKind::Refused, VACUUM_ALONE);
                    return Err(failure.at(number).into());
                }
            });
        }
        Ok(results)
    }

    /// Enables extensions. They are registered before their entry is committed: if that fails the same entry comes
    /// again before any other.
    fn extend(&mut self, names: &[String]) -> Result<CommandResult, Trouble> {
        let own = |error: rusqlite::Error| classify::own(&error);
        self.extensions.know(names)?;
        for name in names {
            self.db.execute(extensions::ENABLE, rusqlite::params![name]).map_err(own)?;
        }
        self.extensions.register(self.db.connection(), names.iter().map(String::as_str)).map_err(own)?;
        Ok(CommandResult::Done)
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
            // As a connection that is opened later will read it.
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

    /// Runs VACUUM, which needs to be outside of all transactions. Doing it twice changes nothing more, so it matters
    /// not that it is not in the transaction of its entry.
    fn vacuum(&mut self) -> Result<Outcome, StoreFault> {
        self.own(COMMIT)?;
        let failed_writes = vfs::failed_writes();
        let done = self.db.connection().execute_batch("VACUUM");
        self.staged.unsettled.add(Effects { schema: true, ..Effects::default() });
        self.begin()?;
        match done {
            Ok(()) => Ok(Ok(Reply { results: [CommandResult::Done].into() })),
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

    /// Makes `changes()` 0.
    pub(super) fn reset_changes(&mut self) -> Result<(), StoreFault> {
        self.own(RESET_CHANGES)
    }

    /// Runs one of the store's own statements.
    pub(super) fn own(&mut self, sql: &'static str) -> Result<(), StoreFault> {
        self.db.execute(sql, []).map(|_| ()).map_err(|error| classify::own(&error))
    }
}

/// Whether a failed statement has undone what it did, unless it was counted: SQLite gives a statement a journal of its
/// own where a constraint may fail, but none for what STRICT, an aggregate or the store fails with.
fn leaves_nothing(failure: &Failure) -> bool {
    failure.kind == FailureKind::Constraint && failure.sqlite_code != rusqlite::ffi::SQLITE_CONSTRAINT_DATATYPE
}
