//! Read checks of a proposal: reads that must return the same answers as they did in its transaction.
//!
//! A query runs under the clock and the randomness of the original read, a command on keys under those of the entry.
//! Their steps count for the entry's budget. If an answer differs now, or a read fails, the caller has to run the
//! transaction again.

use quorate_apply::{CommandContext, Trouble, no_store};
use quorate_env::mutant::Mutant;
use quorate_model::keys::SpaceCommand;
use quorate_model::{Failure, FailureKind, Read, ReadCheck, Statement};

use super::statement::{Ended, bind, no_statement};
use super::{Note, SqlMachine};
use crate::authorizer::{Effects, Mode};
use crate::ffi::database::Prepared;
use crate::rows_hash::{self, RowsHash};
use crate::usage;

/// The refusal of a read that writes.
const WRITES: &str = "a read check may not write";

/// The number of characters of a query that the text of a conflict shows.
const SHOWN_CHARS: usize = 80;

impl SqlMachine {
    /// Runs a read again and compares its answer.
    pub(super) fn check_read(&mut self, check: &ReadCheck) -> Result<(), Trouble> {
        let answer = match &check.read {
            Read::Sql(query) => self.guarded(|machine, effects| machine.rows_hash(query, effects)),
            Read::Keys(command) => self.reply_hash(command),
            Read::Locks(_) | Read::Events(_) => return Err(no_store()),
        };
        match answer {
            Ok(answer) if answer == check.answer || Mutant::ReadChecksIgnored.is_on() => Ok(()),
            Ok(_) => Err(conflict(&check.read, "now returns other rows").into()),
            // Reporting these as a conflict would make the caller retry and fail in the same way: a query that is
            // refused here may have been allowed where it was read, and only the caller can ask for a larger budget.
            Err(Trouble::Failure(failure)) if !matches!(failure.kind, FailureKind::Refused | FailureKind::Budget) => {
                Err(conflict(&check.read, &failure.message).into())
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn reply_hash(&mut self, command: &SpaceCommand) -> Result<u128, Trouble> {
        if !command.command.only_reads() {
            return Err(Failure::new(FailureKind::Refused, WRITES).into());
        }
        let context = CommandContext { earlier: &[], returned: &mut 0 };
        self.keys(command, context).map(|reply| rows_hash::of_reply(&reply))
    }

    fn rows_hash(&mut self, query: &Statement, effects: &mut Effects) -> Result<u128, Ended> {
        self.prepare(&query.sql)?;
        let mut prepared = self.db.get(&query.sql).ok_or_else(no_statement)?;
        *effects = prepared.note().effects;
        if !prepared.statement().readonly() || effects.notifies {
            return Err(Failure::new(FailureKind::Refused, WRITES).into());
        }
        bind(&mut prepared, query, Ok)?;
        self.gate.enter(Mode::Running { schema: false });
        prepared.forget_steps();
        self.determinism.budget.start(effects.nested || !self.schema.virtual_tables.is_empty());
        let hash = usage::contain(|| hash(&mut prepared));
        let spent = self.determinism.budget.finish(prepared.steps());
        prepared.clear_bindings();
        spent?;
        hash
    }
}

fn hash(prepared: &mut Prepared<'_, Note>) -> Result<u128, Ended> {
    let width = prepared.column_count();
    let (mut hash, mut rows) = (RowsHash::new(), prepared.rows());
    while let Some(row) = rows.next()? {
        hash.begin_row();
        for column in 0..width {
            hash.value(row.get_ref(column)?);
        }
    }
    Ok(hash.finish())
}

fn conflict(read: &Read, why: &str) -> Failure {
    let text = match read {
        Read::Sql(query) => {
            let sql: String = query.sql.chars().take(SHOWN_CHARS).collect();
            format!("what the transaction had read was changed by another write: {sql:?} {why}; run it again")
        }
        Read::Keys(_) => "a key that the transaction depends on was changed by another write; run it again".to_owned(),
        Read::Locks(_) => "a lock that the transaction depends on is another one now; run it again".to_owned(),
        Read::Events(_) => "the events that the transaction depends on are others now; run it again".to_owned(),
    };
    Failure::new(FailureKind::Conflict, text)
}
