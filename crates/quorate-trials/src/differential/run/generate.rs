//! Generates units of work from the seed and the schema that plain SQLite has. So equal seeds make equal runs.

use quorate::sql::{Column, Param};
use quorate::{Step, Value};
use quorate_env::Rng;

use super::unit::{Call, Level, Unit};
pub use crate::harness::dice::Dice;

mod ddl;
mod dml;
mod reads;
pub mod schema;
mod text;
pub mod values;
mod wrong;

pub use ddl::call_of;
pub use reads::SCHEMA;
use schema::Schema;
pub use wrong::is_hopeless;

/// The most statements of a unit, except a bulk statement.
const STATEMENTS_MAX: u64 = 7;
/// The most rows of a bulk statement.
const BULK_ROWS_MAX: u64 = 12;

/// A table that exists from the beginning and is never dropped. Triggers write to it.
pub fn first() -> Call {
    call_of("CREATE TABLE log (n INTEGER PRIMARY KEY, what TEXT, value)".to_owned())
}

/// Generates units.
pub struct Generator {
    dice: Dice,
    schema: Schema,
    /// How many names were given.
    made: u64,
    /// Whether statements may use SQLite's counters: not if an earlier statement may have failed, because plain SQLite
    /// does not roll the counters back.
    counts: bool,
}

impl Generator {
    pub fn new(rng: Rng) -> Self {
        Self { dice: Dice(rng), schema: Schema::default(), made: 0, counts: true }
    }

    /// Updates the known schema.
    pub fn learn(&mut self, schema: Schema) {
        self.schema = schema;
    }

    /// Returns the next unit.
    pub fn next(&mut self) -> Unit {
        if self.schema.tables.len() < 3 {
            return Unit::Execute(call_of(self.create_table()));
        }
        self.counts = true;
        match self.dice.below(100) {
            0..14 => Unit::Execute(self.single()),
            14..20 => Unit::Returning(self.writes()),
            20..30 => self.many(),
            30..52 => Unit::Batch(self.batch()),
            52..64 => self.closure(),
            64..78 => self.interactive(),
            99 if self.dice.chance(20) => Unit::Vacuum,
            _ => Unit::Query { call: self.read(), node: self.dice.index(3), level: self.level() },
        }
    }

    fn level(&self) -> Level {
        self.dice.one(&[Level::AtLeast, Level::Linearizable, Level::Bounded, Level::OwnWrites, Level::Snapshot])
    }

    /// Returns a statement that is an entry of its own.
    fn single(&mut self) -> Call {
        match self.dice.below(100) {
            0..22 => self.change(),
            22..26 => self.hopeless(),
            _ => self.writes(),
        }
    }

    /// Returns a statement that writes rows, or fails.
    fn writes(&self) -> Call {
        let wrong = match self.dice.below(100) {
            0..2 => self.missing(),
            2..5 => self.misfit(),
            _ => None,
        };
        wrong.unwrap_or_else(|| self.write())
    }

    fn some(&self) -> u64 {
        1 + self.dice.below(STATEMENTS_MAX)
    }

    fn many(&self) -> Unit {
        let Some(table) = self.pick_table() else { return Unit::Execute(self.write()) };
        let columns: Vec<_> = table.writable().into_iter().filter(|column| !table.is_alias(column)).collect();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let verb = self.dice.one(&["INSERT", "INSERT OR IGNORE", "REPLACE", "INSERT OR FAIL", "INSERT OR ROLLBACK"]);
        let places = vec!["?"; names.len()].join(", ");
        let sql = format!("{verb} INTO {} ({}) VALUES ({places})", table.name, names.join(", "));
        let row = |_| columns.iter().map(|column| self.fit(column, table.strict)).collect();
        if let Some(column) = self.dice.pick(&columns).filter(|_| self.dice.chance(25)) {
            let key = table.key.first().map_or("1", String::as_str);
            let sql = format!("UPDATE {} SET {} = ? WHERE {key} = ?", table.name, column.name);
            let row = |_| vec![self.fit(column, table.strict), Value::Integer(self.dice.small())];
            return Unit::Many(sql, (0..self.some()).map(row).collect());
        }
        Unit::Many(sql, (0..=self.dice.below(BULK_ROWS_MAX)).map(row).collect())
    }

    /// Returns statements of one entry. Some use what the first returned, and some use a table that the first creates.
    fn batch(&mut self) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        if self.dice.chance(12) {
            calls.push(self.change());
            if self.dice.chance(50) {
                calls.extend(self.with_new_table());
            }
        }
        calls.extend((0..self.some()).map(|_| self.writes()));
        if self.dice.chance(3) {
            let place = self.dice.index(calls.len());
            calls.insert(place, self.hopeless());
        }
        if self.dice.chance(30) {
            self.refer(&mut calls);
        }
        calls
    }

    /// Returns statements that create a table, write its rows, alter it, and may drop it.
    fn with_new_table(&mut self) -> Vec<Call> {
        self.made += 1;
        let name = format!("t{}", self.made);
        let mut calls = vec![
            call_of(format!("CREATE TABLE {name} (id INTEGER PRIMARY KEY, c0 UNIQUE, c1 DEFAULT 'x')")),
            call_of(format!("INSERT INTO {name} (c0) VALUES (1), (2), ('three') RETURNING id")),
            call_of(format!("ALTER TABLE {name} RENAME COLUMN c1 TO d1")),
            call_of(format!("UPDATE {name} SET d1 = c0 || d1 WHERE id > 1")),
        ];
        if self.dice.chance(50) {
            calls.push(call_of(format!("DROP TABLE {name}")));
        }
        calls
    }

    /// Makes the first statement one that returns a row, and lets some of the others use its values.
    fn refer(&self, calls: &mut Vec<Call>) {
        let rows = self.dice.one(&["VALUES ('first', 5)", "VALUES ('first', NULL)", "SELECT what, n FROM log LIMIT 2"]);
        let first = format!("INSERT INTO log (what, value) {rows} RETURNING n AS id, what, value");
        calls.insert(0, call_of(first));
        let columns = [Column::from(0), Column::from("what"), Column::from("value"), Column::from(9)];
        for call in calls.iter_mut().skip(1) {
            for param in &mut call.params {
                if self.dice.chance(30) {
                    // The last name is no column of the row.
                    let column = self.dice.index(if self.dice.chance(3) { 4 } else { 3 });
                    *param = Step(0).column(columns[column].clone());
                }
            }
        }
    }

    /// Returns reads, then writes, some of which use values that the reads returned.
    fn closure(&self) -> Unit {
        let reads = (0..=self.dice.below(3)).map(|_| self.read()).collect();
        let writes: Vec<Call> = (0..self.dice.below(5)).map(|_| self.writes()).collect();
        Unit::Closure { reads, writes, passes: self.dice.chance(60) }
    }

    /// One of a few names, so that some are set twice and some are missing.
    fn savepoint(&self) -> Call {
        let verb = self.dice.one(&["SAVEPOINT", "SAVEPOINT", "ROLLBACK TO", "RELEASE"]);
        call_of(format!("{verb} {}", self.dice.one(&["s1", "S1", "s2"])))
    }

    fn interactive(&mut self) -> Unit {
        self.counts = false;
        let mut calls = Vec::new();
        for _ in 0..self.some() {
            calls.push(match self.dice.below(100) {
                0..30 => self.read(),
                30..33 => self.hopeless(),
                33..39 => self.change(),
                39..52 => self.savepoint(),
                _ => self.writes(),
            });
        }
        Unit::Interactive { calls, commits: self.dice.chance(85) }
    }
}

/// Returns the values of parameters that are not references.
pub fn plain_value(param: &Param) -> Option<&Value> {
    if let Param::Value(value) = param { Some(value) } else { None }
}
