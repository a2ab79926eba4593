//! The columns that rows go to: those of the existing table, or those of a table to create.

use quorate::config::nearest;
use quorate::{Sql, sql::RowPacker, types::ValueRef};

use crate::error::{Context as _, Error, Result};
use crate::number::{self, Shape};
use crate::options::OnConflict;

/// Decimal digits that distinguish every float from all others.
const ROUND_TRIP_DIGITS: usize = 17;

/// A column of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its declared type; empty if it has none.
    pub declared: String,
    /// Its place in the primary key, from 1; 0 if it is not part of the key.
    pub key: i64,
}

impl Column {
    /// A column outside the primary key.
    pub fn new(name: impl Into<String>, declared: impl Into<String>) -> Self {
        Self { name: name.into(), declared: declared.into(), key: 0 }
    }
}

/// How values are converted for a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Unchanged: the column keeps every value as it is.
    Keep,
    /// Numbers are sent as texts, since the column converts them to texts.
    Text,
    /// Texts that are integers are sent as integers, since the column converts them.
    Number {
        /// Whether it holds floats only.
        real: bool,
        /// Whether a text that the column would change is refused. It is where the import chose the column's type.
        guarded: bool,
    },
}

impl Rule {
    /// The rule for a column of a declared type, by its SQLite affinity. `guessed` says that the import chose the type.
    pub fn of(declared: &str, guessed: bool) -> Self {
        let declared = declared.to_ascii_uppercase();
        let has = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
        if has(&["INT"]) {
            Self::Number { real: false, guarded: guessed }
        } else if has(&["CHAR", "CLOB", "TEXT"]) {
            Self::Text
        } else if has(&["BLOB"]) || declared.is_empty() || declared == "ANY" {
            Self::Keep
        } else {
            Self::Number { real: has(&["REAL", "FLOA", "DOUB"]), guarded: guessed }
        }
    }

    /// Adds a text to a row, or returns why it can't.
    #[inline]
    pub fn push_text(self, text: &str, row: &mut RowPacker) -> Result<(), String> {
        if let Self::Number { real, guarded } = self {
            match number::integer(text) {
                Some(integer) if !guarded || !real => {
                    row.push(ValueRef::Integer(integer));
                    return Ok(());
                }
                _ if guarded => self.guard(text, real)?,
                _ => {}
            }
        }
        row.push(ValueRef::Text(text));
        Ok(())
    }

    /// Adds a JSON number to a row, or returns why it can't.
    pub fn push_number(self, text: &str, row: &mut RowPacker) -> Result<(), String> {
        match (self, number::integer(text)) {
            (Self::Text, _) => row.push(ValueRef::Text(text)),
            (_, Some(integer)) => row.push(ValueRef::Integer(integer)),
            _ => match real(text) {
                Some(real) => row.push(ValueRef::Real(real)),
                None => return self.push_text(text, row),
            },
        }
        Ok(())
    }

    fn guard(self, text: &str, real: bool) -> Result<(), String> {
        let shape = Shape::of(text);
        if shape == Shape::Odd || real && shape.is_lost_as_real() {
            return Err(format!("{text:?} would lose digits or zeros as a number; make the column TEXT first"));
        }
        Ok(())
    }
}

/// The float of a JSON number, if it keeps all of the number's digits.
pub fn real(text: &str) -> Option<f64> {
    let real = text.parse::<f64>().ok()?;
    (real.is_finite() && digit_count(text) <= ROUND_TRIP_DIGITS).then_some(real)
}

fn digit_count(text: &str) -> usize {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    mantissa.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count()
}

/// The columns of a table of the cluster; `None` if it does not exist.
pub async fn of_table(sql: &Sql, table: &str) -> Result<Option<Vec<Column>>> {
    // Generated columns (2 and 3) take no values, and hidden ones (1) are arguments of virtual tables.
    let query = "SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid";
    let rows: Vec<(String, String, i64)> =
        sql.query_as(query, (table,)).await.context(|| format!("cannot read the columns of the table {table}"))?;
    let columns: Vec<Column> = rows.into_iter().map(|(name, declared, key)| Column { name, declared, key }).collect();
    Ok(Some(columns).filter(|columns| !columns.is_empty()))
}

/// The columns with these names, in the order of the names.
pub fn matching(table: &str, columns: &[Column], names: &[String]) -> Result<Vec<Column>> {
    names.iter().map(|name| find(table, columns, name).cloned()).collect()
}

/// The column of this name.
pub fn find<'a>(table: &str, columns: &'a [Column], name: &str) -> Result<&'a Column> {
    if let Some(column) = columns.iter().find(|column| column.name.eq_ignore_ascii_case(name)) {
        return Ok(column);
    }
    let nearest = nearest(name, columns.iter().map(|column| column.name.as_str()));
    let nearest = nearest.map_or(String::new(), |nearest| format!("; the nearest is {nearest:?}"));
    Err(Error::Options(format!("the table {table} has no column {name:?}{nearest}; --columns says where fields go")))
}

/// Fails if two names are the same to SQLite, or one is empty.
pub fn check_names(names: &[String]) -> Result<()> {
    for (number, name) in names.iter().enumerate() {
        if name.is_empty() {
            let text = format!("field {} has no name in the header; name all with --columns", number.saturating_add(1));
            return Err(Error::Options(text));
        }
        if names.iter().take(number).any(|earlier| earlier.eq_ignore_ascii_case(name)) {
            return Err(Error::Options(format!("two columns are named {name:?}; name all with --columns")));
        }
    }
    Ok(())
}

/// The statement that creates a table.
pub fn create(table: &str, columns: &[Column]) -> String {
    let mut key: Vec<&Column> = columns.iter().filter(|column| column.key > 0).collect();
    key.sort_by_key(|column| column.key);
    // `INTEGER PRIMARY KEY` is the rowid only where it is written in the column's definition.
    let alone = key.len() == 1;
    let column = |column: &Column| {
        let kind = if column.declared.is_empty() { String::new() } else { format!(" {}", column.declared) };
        let key = if alone && column.key > 0 { " PRIMARY KEY" } else { "" };
        format!("    {}{kind}{key}", quoted(&column.name))
    };
    let mut parts: Vec<String> = columns.iter().map(column).collect();
    if key.len() > 1 {
        let names: Vec<String> = key.iter().map(|column| quoted(&column.name)).collect();
        parts.push(format!("    PRIMARY KEY ({})", names.join(", ")));
    }
    format!("CREATE TABLE {} (\n{}\n)", quoted(table), parts.join(",\n"))
}

/// The statement that inserts a row.
pub fn insert(table: &str, columns: &[Column], on_conflict: OnConflict) -> String {
    let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
    let places = vec!["?"; columns.len()].join(", ");
    format!("INSERT{} INTO {} ({}) VALUES ({places})", on_conflict.sql(), quoted(table), names.join(", "))
}

/// A name as a quoted SQL identifier.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn an_unknown_column_names_the_nearest() {
        let columns = ["dep_time", "arr_time", "carrier"].map(|name| Column::new(name, ""));
        let error = find("flights", &columns, "deptime").unwrap_err().to_string();
        assert!(error.contains("no column \"deptime\"; the nearest is \"dep_time\""), "{error}");
        assert_eq!(find("flights", &columns, "CARRIER").unwrap().name, "carrier");
    }

    #[test]
    fn a_key_of_one_column_stands_in_its_definition() {
        let keyed = |keys: [i64; 2]| {
            ["a b", "c"]
                .into_iter()
                .zip(keys)
                .map(|(name, key)| Column { key, ..Column::new(name, "INTEGER") })
                .collect::<Vec<_>>()
        };
        assert_eq!(
            create("t", &keyed([1, 0])),
            "CREATE TABLE \"t\" (\n    \"a b\" INTEGER PRIMARY KEY,\n    \"c\" INTEGER\n)"
        );
        assert!(create("t", &keyed([2, 1])).ends_with("PRIMARY KEY (\"c\", \"a b\")\n)"));
    }
}
