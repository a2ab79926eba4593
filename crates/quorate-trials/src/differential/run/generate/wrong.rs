//! Generates statements that fail, whatever the rows are.

use quorate::Value;
use quorate::sql::Param;

use super::ddl::call_of;
use super::{Call, Generator};

impl Generator {
    /// Returns a statement that fails only when its entry is applied: something that it names is missing, or is of
    /// another kind.
    pub(super) fn missing(&self) -> Option<Call> {
        let table = self.pick_table()?;
        let name = &table.name;
        let sql = match self.dice.below(9) {
            0 => "INSERT INTO nowhere VALUES (1)".to_owned(),
            1 => format!("INSERT INTO {name} (no_column) VALUES (1)"),
            2 => format!("UPDATE {name} SET no_column = 1"),
            3 => format!("CREATE TABLE {name} (a)"),
            4 => "DROP TABLE nowhere".to_owned(),
            5 => format!("INSERT INTO {name} SELECT no_function(1)"),
            6 => format!("CREATE INDEX log_index ON {name} (no_column)"),
            7 => format!("DELETE FROM {name} WHERE no_table.c0 = 1"),
            _ => format!("ALTER TABLE {name} ADD COLUMN bad INTEGER PRIMARY KEY"),
        };
        Some(call_of(sql))
    }

    /// Returns an INSERT of a row that a STRICT table refuses, or that lacks a required value.
    pub(super) fn misfit(&self) -> Option<Call> {
        let tables = self.schema.ordinary();
        let tables: Vec<_> = tables.into_iter().filter(|table| table.strict).collect();
        let table = self.dice.pick(&tables)?;
        let column = self.dice.pick(&table.columns).filter(|column| !column.is_generated && !table.is_alias(column))?;
        let value = if column.not_null { Value::Null } else { Value::Text("no number".into()) };
        let sql = format!("INSERT INTO {} ({}) VALUES (?)", table.name, column.name);
        Some(Call { sql: sql.into(), params: vec![Param::Value(value)], names: Vec::new() })
    }

    /// Returns a statement that fails under any schema.
    pub(super) fn hopeless(&self) -> Call {
        call_of(self.dice.one(&HOPELESS).to_owned())
    }
}

const HOPELESS: [&str; 8] = [
    "this is not sql",
    "INSERT INTO log (what VALUES (1)",
    "SELECT FROM log",
    "UPDATE log SET",
    "DELETE log",
    "INSERT INTO log (what) VALUES (#)",
    "CREATE TABLE",
    "SELECT 'open",
];

/// Returns whether a statement fails under any schema: it is refused at once, before the other statements of its entry
/// run.
pub fn is_hopeless(sql: &str) -> bool {
    HOPELESS.contains(&sql)
}
