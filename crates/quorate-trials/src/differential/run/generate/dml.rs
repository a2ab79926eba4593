//! Generates statements that write rows.

use quorate::Value;

use super::ddl::call_of;
use super::schema::{Column, Kind, Table};
use super::text::Text;
use super::{Call, Generator};

/// The most rows of a table; if it has more, some are deleted.
const ROWS_MAX: i64 = 120;
/// The same for the table that triggers write to.
const LOG_MAX: i64 = 300;

const ORS: [&str; 6] = ["OR ABORT ", "OR FAIL ", "OR IGNORE ", "OR ROLLBACK ", "OR REPLACE ", ""];

impl Generator {
    /// Returns a random statement that writes rows.
    pub(super) fn write(&self) -> Call {
        let large = self.schema.tables.iter().find(|table| self.is_large(table));
        if let Some(table) = large.filter(|_| self.dice.chance(20)) {
            return self.thin(table);
        }
        let written = match self.dice.below(40) {
            0..3 => self.write_virtual(Kind::Fts),
            3..5 => self.write_virtual(Kind::Rtree),
            5..7 => self.write_view(),
            7 => Some(self.counters()),
            _ => self.write_table(),
        };
        written.unwrap_or_else(|| self.counters())
    }

    fn is_large(&self, table: &Table) -> bool {
        table.rows > if table.name == "log" { LOG_MAX } else { ROWS_MAX }
    }

    /// Deletes the first half of a table.
    fn thin(&self, table: &Table) -> Call {
        let (name, key) = (&table.name, table.key.join(", "));
        let half = table.rows / 2;
        if self.dice.chance(15) && name != "log" {
            return call_of(format!("DROP TABLE {name}"));
        }
        call_of(format!("DELETE FROM {name} WHERE ({key}) IN (SELECT {key} FROM {name} ORDER BY {key} LIMIT {half})"))
    }

    /// Returns a statement that uses SQLite's counters.
    fn counters(&self) -> Call {
        if self.counts { call_of(COUNT.to_owned()) } else { call_of(COUNT_NOTHING.to_owned()) }
    }

    fn write_table(&self) -> Option<Call> {
        let table = self.pick_table()?;
        Some(match self.dice.below(20) {
            0..9 => self.insert(&table),
            9 | 10 => self.insert_select(&table)?,
            11..15 => self.update(&table),
            15 => self.update_from(&table)?,
            16 | 17 => self.delete(&table),
            _ => self.upsert(&table),
        })
    }

    /// Returns an INSERT of some rows into the same columns.
    pub(super) fn insert(&self, table: &Table) -> Call {
        let mut text = Text::new(&self.dice);
        self.values(&mut text, table, self.dice.chance(10));
        self.returning(&mut text, table);
        text.call()
    }

    /// Adds the rows. Returns false if there are only default values.
    fn values(&self, text: &mut Text<'_>, table: &Table, replaces: bool) -> bool {
        let columns = self.some_columns(table);
        let or = if self.dice.chance(35) { self.dice.one(&ORS) } else { "" };
        text.add(if replaces { "REPLACE " } else { "INSERT " }).add(if replaces { "" } else { or });
        text.add(format!("INTO {} ", table.name));
        if columns.is_empty() {
            text.add("DEFAULT VALUES");
            return false;
        }
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        text.add(format!("({}) VALUES ", names.join(", ")));
        let rows = if self.dice.chance(70) { 1 } else { 1 + self.dice.below(4) };
        text.list(0..rows, |text, _| {
            text.add("(").list(&columns, |text, column| self.fitting(text, table, column)).add(")");
        });
        true
    }

    /// Returns columns to write: all that need a value, and some others.
    fn some_columns<'t>(&self, table: &'t Table) -> Vec<&'t Column> {
        let wanted = |column: &&Column| {
            let needed = column.not_null || column.is_key && !table.is_alias(column);
            self.dice.chance(if needed {
                97
            } else if table.is_alias(column) {
                30
            } else {
                80
            })
        };
        table.writable().into_iter().filter(wanted).collect()
    }

    /// Adds a value for a column, mostly one that fits.
    fn fitting(&self, text: &mut Text<'_>, table: &Table, column: &Column) {
        if table.is_alias(column) {
            let value = if self.dice.chance(3) { Value::Null } else { Value::Integer(self.dice.number(200)) };
            text.value(value);
        } else if let Some(parent) = table.parent(column).filter(|_| self.dice.chance(90)) {
            if self.dice.chance(20) {
                text.value(Value::Null);
                return;
            }
            let (key, table, skip) = (&parent.key, &parent.table, self.dice.below(8));
            text.add(format!("(SELECT {key} FROM {table} ORDER BY {key} LIMIT 1 OFFSET {skip})"));
        } else {
            text.value(self.fit(column, table.strict));
        }
    }

    /// Returns a value for a column.
    pub(super) fn fit(&self, column: &Column, strict: bool) -> Value {
        let odd = if strict { 3 } else { 15 };
        if self.dice.chance(odd) {
            return self.dice.value();
        }
        if !column.not_null && !column.is_key && self.dice.chance(8) {
            return Value::Null;
        }
        match column.declared.as_str() {
            "INTEGER" | "INT" => self.dice.integer(),
            "REAL" | "DOUBLE PRECISION" => self.dice.real(),
            "TEXT" | "VARCHAR(10)" => self.dice.text(),
            "BLOB" if strict => self.dice.blob(),
            _ => self.dice.value(),
        }
    }

    fn returning(&self, text: &mut Text<'_>, table: &Table) {
        if !self.dice.chance(25) {
            return;
        }
        text.add(" RETURNING ");
        if self.dice.chance(40) {
            text.add("*");
        } else {
            text.expression(&table.names(), 2).add(" AS r, ").expression(&table.names(), 1);
        }
    }

    fn upsert(&self, table: &Table) -> Call {
        let mut text = Text::new(&self.dice);
        if !self.values(&mut text, table, false) {
            return text.call();
        }
        let targets: Vec<&str> = table.columns.iter().filter(|c| table.is_alias(c)).map(|c| c.name.as_str()).collect();
        let target = targets.first().filter(|_| self.dice.chance(60)).map_or(String::new(), |key| format!("({key}) "));
        let columns = table.writable();
        let free: Vec<&&Column> = columns.iter().filter(|column| !column.is_key).collect();
        match self.dice.pick(&free) {
            Some(column) if self.dice.chance(75) => {
                text.add(format!(" ON CONFLICT {target}DO UPDATE SET {} = ", column.name));
                match self.dice.below(3) {
                    0 => drop(text.add(format!("excluded.{}", column.name))),
                    1 => drop(text.value(self.fit(column, table.strict))),
                    _ => drop(text.expression(&table.names(), 1)),
                }
                if self.dice.chance(30) {
                    text.add(" WHERE ").predicate(&table.names(), 1);
                }
            }
            _ => drop(text.add(format!(" ON CONFLICT {target}DO NOTHING"))),
        }
        self.returning(&mut text, table);
        text.call()
    }

    fn insert_select(&self, table: &Table) -> Option<Call> {
        let from = self.pick_table()?;
        let columns: Vec<&Column> = table.writable().into_iter().filter(|column| !table.is_alias(column)).collect();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let mut text = Text::new(&self.dice);
        if self.dice.chance(40) {
            text.add("WITH s AS (SELECT * FROM ").add(&from.name).add(" WHERE ").predicate(&from.names(), 1).add(") ");
        }
        let or = self.dice.one(&["OR IGNORE ", "OR REPLACE ", ""]);
        text.add(format!("INSERT {or}INTO {} ({}) SELECT ", table.name, names.join(", ")));
        text.list(&columns, |text, column| match self.dice.below(4) {
            0 => drop(text.value(self.fit(column, table.strict))),
            1 => drop(text.expression(&from.names(), 2)),
            _ => drop(text.add(self.dice.pick(&from.names()).map_or("1", String::as_str))),
        });
        text.add(format!(" FROM {} WHERE true ORDER BY {} LIMIT 4", from.name, from.key.join(", ")));
        Some(text.call())
    }

    /// Adds a condition that few rows meet, or a random one.
    fn where_few(&self, text: &mut Text<'_>, table: &Table) {
        text.add(" WHERE ");
        let (name, key) = (&table.name, table.key.join(", "));
        match self.dice.below(4) {
            0 => drop(text.predicate(&table.names(), 2)),
            1 => {
                let skip = self.dice.below(20);
                let few = format!("({key}) IN (SELECT {key} FROM {name} ORDER BY {key} LIMIT 2 OFFSET {skip})");
                text.add(few).add(" AND ").predicate(&table.names(), 1);
            }
            _ => {
                let key = table.key.first().map_or("1", String::as_str);
                text.add(format!("{key} IN (")).value(Value::Integer(self.dice.small()));
                text.add(", ").value(Value::Integer(self.dice.small())).add(")");
            }
        }
    }

    fn update(&self, table: &Table) -> Call {
        let mut text = Text::new(&self.dice);
        let or = if self.dice.chance(30) { self.dice.one(&ORS) } else { "" };
        text.add(format!("UPDATE {or}{} SET ", table.name));
        self.assignments(&mut text, table, &table.names());
        self.where_few(&mut text, table);
        self.returning(&mut text, table);
        text.call()
    }

    fn assignments(&self, text: &mut Text<'_>, table: &Table, names: &[String]) {
        let columns = table.writable();
        let count = 1 + self.dice.below(2);
        text.list(0..count, |text, _| {
            let Some(column) = self.dice.pick(&columns) else { return };
            text.add(format!("{} = ", column.name));
            if table.is_alias(column) || table.parent(column).is_some() || self.dice.chance(60) {
                self.fitting(text, table, column);
            } else {
                text.add("substr(").expression(names, 2).add(", 1, 60)");
            }
        });
    }

    fn update_from(&self, table: &Table) -> Option<Call> {
        let from = self.pick_table()?;
        let mut text = Text::new(&self.dice);
        text.add(format!("UPDATE {} SET ", table.name));
        let column = self.dice.pick(&table.columns).filter(|column| !column.is_generated && !table.is_alias(column))?;
        let taken = &self.dice.pick(&from.columns)?.name;
        let key = from.key.join(", ");
        text.add(format!("{} = one.v FROM (SELECT {taken} AS v FROM {}", column.name, from.name));
        text.add(format!(" ORDER BY {key} LIMIT 1 OFFSET {}) AS one", self.dice.below(10)));
        self.where_few(&mut text, table);
        Some(text.call())
    }

    fn delete(&self, table: &Table) -> Call {
        let mut text = Text::new(&self.dice);
        text.add(format!("DELETE FROM {}", table.name));
        self.where_few(&mut text, table);
        self.returning(&mut text, table);
        text.call()
    }

    fn write_virtual(&self, kind: Kind) -> Option<Call> {
        let tables = self.schema.of(kind);
        let table = &self.dice.pick(&tables)?.name;
        let id = self.dice.number(60);
        let mut text = Text::new(&self.dice);
        match (kind, self.dice.below(10)) {
            (Kind::Fts, 0..5) => {
                text.add(format!("INSERT INTO {table} (rowid, title, body) VALUES ("));
                text.value(if self.dice.chance(60) { Value::Null } else { Value::Integer(id) }).add(", ");
                text.value(self.dice.words().into()).add(", ").value(self.dice.words().into()).add(")");
            }
            (Kind::Fts, 5 | 6) => {
                text.add(format!("UPDATE {table} SET title = ")).value(self.dice.words().into());
                text.add(" WHERE rowid = ").value(Value::Integer(id));
            }
            (Kind::Fts, 7) => {
                let command = self.dice.one(&["optimize", "rebuild", "integrity-check", "no-such-command"]);
                text.add(format!("INSERT INTO {table} ({table}) VALUES ('{command}')"));
            }
            (Kind::Rtree, 0..7) => {
                let or = self.dice.one(&ORS);
                text.add(format!("INSERT {or}INTO {table} (id, x0, x1) VALUES (")).value(Value::Integer(id)).add(", ");
                // One box in ten begins after its end.
                let (begin, length) = (self.dice.number(100), self.dice.number(20) - 2);
                text.value(Value::Integer(begin)).add(", ").value(Value::Integer(begin + length)).add(")");
            }
            (Kind::Rtree, 7) => {
                text.add(format!("UPDATE {table} SET x1 = x1 + ")).value(Value::Integer(self.dice.number(9)));
                text.add(" WHERE id < ").value(Value::Integer(id));
            }
            _ => {
                text.add(format!("DELETE FROM {table} WHERE rowid = ")).value(Value::Integer(id));
            }
        }
        Some(text.call())
    }

    fn write_view(&self) -> Option<Call> {
        let view = &self.dice.pick(&self.schema.views)?.name;
        let mut text = Text::new(&self.dice);
        let value = self.dice.value();
        match self.dice.below(3) {
            0 => text.add(format!("INSERT INTO {view} (c0, c1) VALUES (")).value(value).add(", 5)"),
            1 => text.add(format!("UPDATE {view} SET c0 = ")).value(value).add(" WHERE c1 = 3"),
            _ => text.add(format!("DELETE FROM {view} WHERE c0 = ")).value(value),
        };
        Some(text.call())
    }
}

/// Selects a row of what SQLite has counted in this entry.
const COUNT: &str = "INSERT INTO log (what, value) VALUES ('counted', changes() || ' ' || last_insert_rowid())";
const COUNT_NOTHING: &str = "INSERT INTO log (what, value) VALUES ('counted', NULL)";
