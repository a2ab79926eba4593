//! The commands of the SQL store, and what surrounds those of an entry.

use quorate_apply::{CommandContext, Engine, Scope, Stores, Trouble, no_store};
use quorate_env::mutant::Mutant;
use quorate_model::keys::{KeyChange, SpaceCommand};
use quorate_model::{
    ALONE, Command, CommandResult, Failure, FailureKind, Mode, Outcome, Proposal, ReadCheck, Reply, SqlCommand,
    SqlReply, Stamp, StoreFault, Topic,
};

use super::SqlMachine;
use crate::authorizer::Effects;
use crate::classify::{self, Context};
use crate::ffi::hooks;
use crate::{extensions, schema_check, usage, vfs};

/// Makes virtual tables write what they have buffered, so that a failure of that belongs to this entry and not to the
/// next one.
const FLUSH: &str = "SAVEPOINT written";

/// Sets `changes()` to 0, for which SQLite has no other way.
const RESET_CHANGES: &str = "DELETE FROM _quorate_applied WHERE 0";

impl Stores for SqlMachine {
    /// A plain statement undoes itself, and a command of keys or locks that fails has written nothing. A savepoint
    /// would cost as much as the command. The commands of a pipeline have scopes of their own.
    fn scope_of(&mut self, proposal: &Proposal) -> Scope {
        let Proposal { mode, dry_run: None, commands, read_checks, key, .. } = proposal else {
            return Scope::Undoable;
        };
        let is_bare = match (mode, commands.as_slice()) {
            (Mode::Atomic, [Command::Sql(SqlCommand::Statement(statement))]) => {
                self.db.get(&statement.sql).is_some_and(|prepared| prepared.note().is_plain)
            }
            // That the result is too large for a request with a key shows only after the command.
            (Mode::Atomic, [command @ Command::Keys(_)]) => key.is_none() || self.scope_of_step(command) == Scope::Bare,
            (Mode::Atomic, [Command::Locks(_) | Command::Events(_)]) => true,
            // What flushes virtual tables after a command ends with the scope of the entry.
            (Mode::Pipeline, commands) if key.is_none() && self.schema.virtual_tables.is_empty() => commands
                .iter()
                .all(|command| matches!(command, Command::Keys(_) | Command::Locks(_) | Command::Events(_))),
            _ => false,
        };
        if is_bare && read_checks.is_empty() { Scope::Bare } else { Scope::Undoable }
    }

    /// A command of keys or locks checks first and then writes. Only that its reply is too large, after those before
    /// it, shows later; so one of keys with a large reply needs a savepoint, if it writes. No command of locks that
    /// writes fails because of its reply.
    fn scope_of_step(&mut self, command: &Command) -> Scope {
        match command {
            Command::Keys(SpaceCommand { command, .. }) if command.only_reads() || command.replies_briefly() => {
                Scope::Bare
            }
            Command::Locks(_) => Scope::Bare,
            _ => Scope::Undoable,
        }
    }

    fn enter(&mut self, now: u64, level: u32) -> Result<(), StoreFault> {
        vfs::clock::set(Some(now));
        usage::forget();
        self.begun = self.slow.now();
        self.set_notify(level)
    }

    fn hidden_fault(&mut self) -> Option<StoreFault> {
        usage::swallowed()
    }

    fn leave(&mut self, index: u64, proposal: &Proposal) {
        // An entry that was refused has begun no commands; the sweep after it needs the index too.
        self.index = index;
        self.slow.write(self.begun, index, proposal);
    }

    fn begin_commands(&mut self, entry: Option<u64>, seed: u64, budget: u64) -> Result<(), StoreFault> {
        // A plain statement does not read the counters of earlier ones.
        if !self.scopes.is_bare() {
            self.own(RESET_CHANGES)?;
        }
        self.index = entry.unwrap_or_default();
        self.events.notices.begin();
        self.determinism.begin(self.db.connection(), entry, seed, budget);
        Ok(())
    }

    fn end_commands(&mut self) {
        usage::unwatch();
    }

    fn budget_left(&self) -> u64 {
        self.determinism.budget.left()
    }

    fn resume_budget(&mut self, steps: u64) {
        self.determinism.budget.begin(None, steps);
    }

    fn set_stamp(&mut self, stamp: Stamp) {
        vfs::clock::set(Some(stamp.now));
        self.determinism.seed(stamp.seed);
    }

    fn clear_stamp(&mut self) {
        vfs::clock::set(None);
    }

    fn read_check(&mut self, check: &ReadCheck) -> Result<(), Trouble> {
        self.check_read(check)
    }

    fn run(&mut self, command: &Command, context: CommandContext<'_>) -> Result<CommandResult, Trouble> {
        match command {
            Command::Sql(command) => self.sql(command, context).map(CommandResult::Sql),
            Command::Keys(command) => self.keys(command, context).map(CommandResult::Keys),
            Command::Locks(command) => self.locks(command, context).map(CommandResult::Locks),
            Command::Events(command) => self.notify(command).map(CommandResult::Events),
            Command::Control(_) | Command::Items(_) => Err(no_store()),
        }
    }

    fn run_outside(&mut self, command: &Command) -> Option<Result<Outcome, StoreFault>> {
        (*command == Command::Sql(SqlCommand::Vacuum)).then(|| self.vacuum())
    }

    fn seal(&mut self) -> Result<(), Trouble> {
        if hooks::deferred_keys_are_open(self.db.connection()) && !Mutant::DeferredKeysAtBatch.is_on() {
            let text =
                "a deferred foreign key refers to a row that does not exist; write that too, in the same transaction";
            let code = rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY;
            return Err(Failure { sqlite_code: code, ..Failure::new(FailureKind::ForeignKey, text) }.into());
        }
        if self.scopes.innermost.schema {
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

    /// Nothing in the SQL store has a time.
    fn sweep(&mut self, now: u64, max: usize) -> Result<(), StoreFault> {
        self.sweep_keys(now, max)?;
        self.sweep_locks(now, max)
    }

    fn next_due(&mut self) -> Result<Option<u64>, StoreFault> {
        Ok(self.keys_due()?.into_iter().chain(self.locks_due()?).min())
    }

    fn take_touched(&mut self) -> Vec<Topic> {
        let mut touched = self.keys.take_touched();
        touched.append(&mut self.locks.touched);
        if std::mem::take(&mut self.events.touched) {
            touched.push(Topic::EVENTS);
        }
        touched
    }

    fn take_changes(&mut self) -> Vec<KeyChange> {
        std::mem::take(&mut self.keys.changes)
    }

    fn only_reads(&mut self, command: &Command) -> bool {
        match command {
            Command::Sql(SqlCommand::Statement(statement)) => self
                .db
                .get(&statement.sql)
                .is_some_and(|prepared| prepared.statement().readonly() && !prepared.note().effects.notifies),
            Command::Keys(SpaceCommand { command, .. }) => command.only_reads(),
            Command::Sql(_) | Command::Control(_) | Command::Locks(_) | Command::Events(_) | Command::Items(_) => false,
        }
    }
}

impl SqlMachine {
    fn sql(&mut self, command: &SqlCommand, context: CommandContext<'_>) -> Result<SqlReply, Trouble> {
        match command {
            SqlCommand::Statement(statement) => self.statement(statement, context).map(SqlReply::Statement),
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

    /// Runs VACUUM, which can't run inside a transaction. It is outside the transaction of its entry, which is safe
    /// because repeating it changes nothing more.
    fn vacuum(&mut self) -> Result<Outcome, StoreFault> {
        self.commit()?;
        let failed_writes = vfs::failed_writes();
        let done = self.db.connection().execute_batch("VACUUM");
        self.undone_effects.add(Effects { schema: true, ..Effects::default() });
        self.begin()?;
        match done {
            Ok(()) => Ok(Ok(Reply::of([SqlReply::Done.into()]))),
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
}
