//! One statement: prepared or found prepared, bound, run within the budget, and its result read by storage class.

use quorate_apply::{CommandContext, Trouble};
use quorate_model::limits::RETURNED_BYTES_MAX;
use quorate_model::{Failure, FailureKind, Param, Row, Statement, StatementResult, StoreFault, Value};

use super::{Note, SqlMachine};
use crate::authorizer::{Effects, Mode};
use crate::classify::{Context, classify, of_schema_text, own};
use crate::determinism::budget::Spent;
use crate::ffi::database::Prepared;
use crate::schema_check::{check_columns, check_text, is_plain};
use crate::usage::NoMemory;
use crate::validate::near::check_bound;
use crate::validate::text::check_single;
use crate::value::{Bound, NoCopy, owned};
use crate::{usage, vfs};

/// What each value of a result counts in addition to its bytes.
const VALUE_OVERHEAD: usize = 8;

/// A statement that did not succeed: SQLite's error, a failure of ours, or a fault of the node.
pub(super) enum Ended {
    Sqlite(rusqlite::Error),
    Failed(Failure),
    Fault(StoreFault),
}

impl From<Spent> for Ended {
    fn from(spent: Spent) -> Self {
        match spent {
            Spent::Steps => Self::Failed(out_of_budget()),
            Spent::Time => Self::Fault(StoreFault::Slow("a statement was stopped".to_owned())),
        }
    }
}

impl From<rusqlite::Error> for Ended {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<NoCopy> for Ended {
    fn from(error: NoCopy) -> Self {
        match error {
            NoCopy::NotUtf8(failure) => Self::Failed(failure),
            NoCopy::NoMemory(fault) => Self::Fault(fault),
        }
    }
}

impl From<NoMemory> for Ended {
    fn from(none: NoMemory) -> Self {
        Self::Fault(none.into())
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl SqlMachine {
    /// Runs a statement of an entry.
    pub(super) fn statement(
        &mut self,
        statement: &Statement<Param>,
        context: CommandContext<'_>,
    ) -> Result<StatementResult, Trouble> {
        self.guarded(|machine, effects| machine.try_statement(statement, context, effects))
    }

    /// Runs an SQL command, separates its failures from faults of the node, and updates the caches for its effects.
    pub(super) fn guarded<T>(
        &mut self,
        run: impl FnOnce(&mut Self, &mut Effects) -> Result<T, Ended>,
    ) -> Result<T, Trouble> {
        let failed_writes = vfs::failed_writes();
        let mut effects = Effects::default();
        let done = run(self, &mut effects);
        self.gate.enter(Mode::Own);
        let done = self.settle_events(done);
        let done = done.map_err(|ended| match ended {
            Ended::Failed(failure) => failure.into(),
            Ended::Fault(fault) => fault.into(),
            Ended::Sqlite(error) => {
                if let Some(failure) = of_schema_text(&error).filter(|_| effects.schema) {
                    return self.unreadable(failure);
                }
                if let Some(fault) = usage::fault(&error) {
                    return fault.into();
                }
                let write_failed = vfs::failed_writes() != failed_writes;
                let refusal = self.gate.take_refusal().or_else(|| vacuum_refused(&error));
                classify(&error, Context { write_failed, refusal })
            }
        });
        self.scopes.innermost.add(effects);
        if !self.db.connection().is_autocommit() && !matches!(done, Err(Trouble::Fault(_))) {
            self.refresh_caches(effects)?;
        }
        // SQLite also rolls back for a fault of the node. Anything that the statement did after that was committed
        // separately.
        if done.is_ok() && self.db.connection().is_autocommit() {
            return Err(StoreFault::Damaged("SQLite has rolled back the transaction of an entry".to_owned()).into());
        }
        done
    }

    fn try_statement(
        &mut self,
        statement: &Statement<Param>,
        CommandContext { earlier, returned }: CommandContext<'_>,
        effects: &mut Effects,
    ) -> Result<StatementResult, Ended> {
        self.prepare(&statement.sql)?;
        let mut prepared = self.db.get(&statement.sql).ok_or_else(no_statement)?;
        *effects = prepared.note().effects;
        bind(&mut prepared, statement, |param| param.value(earlier))?;
        self.gate.enter(Mode::Running { schema: effects.schema });
        self.run_prepared(&statement.sql, *effects, returned)
    }

    /// Makes sure that a statement is prepared and kept.
    pub(super) fn prepare(&mut self, sql: &str) -> Result<(), Ended> {
        if self.db.holds(sql) {
            return Ok(());
        }
        check_single(sql)?;
        self.schema.connect(self.db.connection()).map_err(|error| Ended::Fault(own(&error)))?;
        self.gate.enter(Mode::Command);
        let (gate, schema) = (&self.gate, &self.schema);
        self.db.prepare(sql, |prepared| {
            if prepared.is_explain() != 0 {
                let text = "EXPLAIN describes only this node; run it as a query";
                return Err(Ended::Failed(Failure::new(FailureKind::Refused, text)));
            }
            let effects = gate.effects();
            check_text(sql, effects)?;
            Ok(Note { effects, is_plain: effects.only_write_rows() && schema.is_plain && is_plain(sql) })
        })
    }

    fn run_prepared(&mut self, sql: &str, effects: Effects, returned: &mut usize) -> Result<StatementResult, Ended> {
        self.determinism.counters().watch();
        let mut prepared = self.db.get(sql).ok_or_else(no_statement)?;
        prepared.forget_steps();
        self.determinism.budget.start(effects.nested || !self.schema.virtual_tables.is_empty());
        let rows = usage::contain(|| read_rows(&mut prepared, returned));
        let spent = self.determinism.budget.finish(prepared.steps());
        let columns = if rows.is_ok() { prepared.columns() } else { Vec::new() };
        prepared.clear_bindings();
        spent?;
        let rows = rows?;
        if columns.len() > crate::schema_check::EQUAL_COLUMNS_MAX {
            check_columns(columns.iter().map(String::as_str))?;
        }
        let counters = self.determinism.counters();
        if counters.exhausted() {
            return Err(rowid_exhausted().into());
        }
        let conn = self.db.connection();
        let changes = if effects.counts() { conn.changes() } else { 0 };
        let inserted = effects.inserts && changes > 0 && counters.inserted();
        let last_insert_rowid = if inserted { conn.last_insert_rowid() } else { 0 };
        Ok(StatementResult { changes, last_insert_rowid, columns, rows })
    }
}

pub(super) fn no_statement() -> Failure {
    Failure::new(FailureKind::Sql, "the text holds no statement; give it one")
}

fn out_of_budget() -> Failure {
    let text = "the entry needs more steps than its budget has; do less at once, or ask for more (with_budget)";
    Failure { sqlite_code: rusqlite::ffi::SQLITE_INTERRUPT, ..Failure::new(FailureKind::Budget, text) }
}

pub(super) fn rowid_exhausted() -> Failure {
    let text = "a row has the largest rowid, after which SQLite would choose rowids at random; use a smaller one";
    Failure::new(FailureKind::RowidExhausted, text)
}

/// SQLite calls no authorizer for VACUUM, but refuses it itself inside a transaction.
fn vacuum_refused(error: &rusqlite::Error) -> Option<String> {
    let text = "VACUUM is a command of its own; VACUUM INTO writes a file on one node: take a backup instead";
    matches!(error, rusqlite::Error::SqliteFailure(_, Some(message)) if message.starts_with("cannot VACUUM"))
        .then(|| text.to_owned())
}

/// Binds the parameters by number or by name. Each must get exactly one value.
pub(super) fn bind<'a, P>(
    prepared: &mut Prepared<'_, Note>,
    statement: &'a Statement<P>,
    value_of: impl Fn(&'a P) -> Result<&'a Value, Failure>,
) -> Result<(), Ended> {
    let (expected, given) = (prepared.parameter_count(), statement.params.len());
    if expected != given {
        let text = format!("the statement has {expected} parameters, {given} were given");
        return Err(Failure::new(FailureKind::Sql, text).into());
    }
    let mut bound = vec![false; if statement.names.is_empty() { 0 } else { expected }];
    for (place, param) in statement.params.iter().enumerate() {
        let number = match statement.names.get(place) {
            None => place + 1,
            Some(name) => prepared
                .parameter_number(name)
                .ok_or_else(|| Failure::new(FailureKind::Sql, format!("the statement has no parameter {name}")))?,
        };
        if let Some(bound) = bound.get_mut(number.wrapping_sub(1))
            && std::mem::replace(bound, true)
        {
            return Err(Failure::new(FailureKind::Sql, format!("parameter {number} was given twice")).into());
        }
        let value = Bound(value_of(param)?);
        check_bound(&value)?;
        prepared.bind(number, value)?;
    }
    Ok(())
}

fn read_rows(prepared: &mut Prepared<'_, Note>, returned: &mut usize) -> Result<Vec<Row>, Ended> {
    let width = prepared.column_count();
    let mut result = Vec::new();
    let mut rows = prepared.rows();
    while let Some(row) = rows.next()? {
        let mut values = Vec::with_capacity(width);
        for column in 0..width {
            let value = owned(row.get_ref(column)?, row, column)?;
            *returned = returned.saturating_add(value.size()).saturating_add(VALUE_OVERHEAD);
            values.push(value);
        }
        if *returned > RETURNED_BYTES_MAX {
            let text =
                format!("the entry returns more than {RETURNED_BYTES_MAX} bytes; return less, or query afterwards");
            return Err(Failure::new(FailureKind::TooBig, text).into());
        }
        result.push(values);
    }
    Ok(result)
}
