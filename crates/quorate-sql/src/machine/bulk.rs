//! A bulk statement: prepared once, run for each row of parameters.
//!
//! Invariant: rows, counters and failures are the same as if the statement had run once per row in the same entry. The
//! result is the sum of those results.

use quorate_apply::Trouble;
use quorate_model::{Bulk, Failure, FailureKind, StatementResult};

use super::statement::{Ended, no_statement, rowid_exhausted};
use super::{Note, SqlMachine};
use crate::authorizer::{Effects, Mode};
use crate::determinism::counters::Counters;
use crate::ffi::database::Prepared;
use crate::validate::near::check_bound;
use crate::value::BoundRaw;

impl SqlMachine {
    /// Runs a bulk statement of an entry. A failure names the row at which it occurred.
    pub(super) fn bulk(&mut self, bulk: &Bulk) -> Result<StatementResult, Trouble> {
        let mut row = None;
        let done = self.guarded(|machine, effects| machine.try_bulk(bulk, effects, &mut row));
        done.map_err(|trouble| trouble.with_failure(|failure| Failure { row, ..failure }))
    }

    fn try_bulk(
        &mut self,
        bulk: &Bulk,
        effects: &mut Effects,
        row: &mut Option<u32>,
    ) -> Result<StatementResult, Ended> {
        self.prepare(&bulk.sql)?;
        let mut prepared = self.db.get(&bulk.sql).ok_or_else(no_statement)?;
        check(&prepared, bulk)?;
        *effects = prepared.note().effects;
        self.gate.enter(Mode::Running { schema: false });
        prepared.forget_steps();
        self.determinism.budget.start(effects.nested || !self.schema.virtual_tables.is_empty());
        let done = run(&mut prepared, bulk, self.determinism.counters(), row);
        let spent = self.determinism.budget.finish(prepared.steps());
        prepared.clear_bindings();
        if let Err(spent) = spent {
            // Which row it stopped at may depend on the internal statements of SQLite, so it is not reported.
            *row = None;
            return Err(spent.into());
        }
        let (changes, inserted) = done?;
        let inserted = inserted && effects.inserts;
        let last_insert_rowid = if inserted { self.db.connection().last_insert_rowid() } else { 0 };
        Ok(StatementResult { changes, last_insert_rowid, columns: Vec::new(), rows: Vec::new() })
    }
}

/// Fails if the statement can't run as a bulk statement.
fn check(prepared: &Prepared<'_, Note>, bulk: &Bulk) -> Result<(), Failure> {
    if !prepared.note().effects.counts() || prepared.column_count() > 0 {
        let text =
            "only a statement that writes rows, and returns none, can be run for many rows of parameters; use a batch";
        return Err(Failure::new(FailureKind::Refused, text));
    }
    let (expected, given) = (prepared.parameter_count(), bulk.rows.width());
    if expected != given {
        let text = format!("the statement has {expected} parameters, the rows have {given} values");
        return Err(Failure::new(FailureKind::Sql, text));
    }
    Ok(())
}

/// Runs the statement for each row. Returns how many rows it changed, and whether it inserted any. `row` is the number
/// of the current row.
fn run(
    prepared: &mut Prepared<'_, Note>,
    bulk: &Bulk,
    counters: &Counters,
    row: &mut Option<u32>,
) -> Result<(u64, bool), Ended> {
    let (mut changes, mut inserted) = (0_u64, false);
    let mut values = bulk.rows.raw_values();
    for number in 0..bulk.rows.len() {
        *row = u32::try_from(number).ok();
        counters.watch();
        for (place, value) in (1..).zip(values.by_ref().take(bulk.rows.width())) {
            let value = BoundRaw(value);
            check_bound(&value)?;
            prepared.bind(place, value)?;
        }
        let changed = prepared.execute()?;
        if counters.exhausted() {
            return Err(rowid_exhausted().into());
        }
        changes = changes.saturating_add(changed);
        inserted |= changed > 0 && counters.inserted();
    }
    *row = None;
    Ok((changes, inserted))
}
