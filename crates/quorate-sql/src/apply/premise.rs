//! The premises of a proposal: queries that must give the rows that its transaction has read.
//!
//! Each sees the clock and the randomness that it saw before, and its work counts for the entry's budget. Why it gives
//! other rows by now, or fails, does not matter: the transaction has to be run anew.

use quorate_env::mutant::Mutant;
use quorate_model::{Failure, FailureKind, Premise};

use super::statement::{Ended, bind, no_statement};
use super::{Applier, Note};
use crate::authorizer::{Effects, Mode};
use crate::classify::Trouble;
use crate::ffi::database::Prepared;
use crate::rows_hash::RowsHash;
use crate::{usage, vfs};

/// Characters of a query that a conflict names.
const SHOWN_CHARS: usize = 80;

impl Applier {
    /// Checks a premise. Leaves its clock and its randomness behind.
    pub(super) fn premise(&mut self, premise: &Premise) -> Result<(), Trouble> {
        vfs::clock::set(Some(premise.stamp.now));
        self.determinism.seed(premise.stamp.seed);
        let rows = self.guarded(|applier, effects| applier.rows_hash(premise, effects));
        match rows {
            Ok(rows) if rows == premise.rows || Mutant::PremisesNotChecked.is_on() => Ok(()),
            Ok(_) => Err(conflict(premise, "gives other rows by now").into()),
            // What it may not do it might have done where it was read; and a larger budget is the caller's affair.
            Err(Trouble::Failure(failure)) if !matches!(failure.kind, FailureKind::Refused | FailureKind::Budget) => {
                Err(conflict(premise, &failure.message).into())
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn rows_hash(&mut self, premise: &Premise, effects: &mut Effects) -> Result<u128, Ended> {
        let sql = &premise.query.sql;
        self.prepare(sql)?;
        let mut prepared = self.db.get(sql).ok_or_else(no_statement)?;
        *effects = prepared.note().effects;
        if !prepared.statement().readonly() {
            return Err(Failure::new(FailureKind::Refused, "what a transaction rests on may only read").into());
        }
        bind(&mut prepared, &premise.query, Ok)?;
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

fn conflict(premise: &Premise, why: &str) -> Failure {
    let sql: String = premise.query.sql.chars().take(SHOWN_CHARS).collect();
    let text = format!("what the transaction had read was changed by another write: {sql:?} {why}; run it again");
    Failure::new(FailureKind::Conflict, text)
}
