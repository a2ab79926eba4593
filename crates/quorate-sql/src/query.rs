//! What a query returns, and how its rows become values of Rust.
//!
//! [`Rows`] keeps all values in one piece of memory; a [`RowRef`] is a view of one row. Values are read by their
//! storage class, never by a column's declared type: [`FromValue`] says what a type accepts, and [`FromRow`] makes
//! tuples and single values from whole rows. Nothing is converted silently: an integer that does not fit, or a text
//! where a number is asked for, is a [`RowError`] that names the column.

use std::fmt;
use std::sync::Arc;

use quorate_model::{StatementResult, Value};

#[cfg(feature = "serde")]
mod deserialize;
mod from_row;
mod from_value;
mod types;

pub use from_row::{FromRow, FromRowOwned};
pub use from_value::{FromValue, Mismatch};

/// The rows of a result. Cheap to read, and one piece of memory however many rows there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    columns: Arc<[String]>,
    values: Vec<Value>,
    len: usize,
}

impl Rows {
    /// Rows of `values.len() / columns.len()`; what is left over is cut off.
    pub fn new(columns: Arc<[String]>, mut values: Vec<Value>) -> Self {
        let len = values.len().checked_div(columns.len()).unwrap_or(0);
        values.truncate(len * columns.len());
        Self { columns, values, len }
    }

    /// The names of the columns.
    pub fn columns(&self) -> &Arc<[String]> {
        &self.columns
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The row with this number, from 0.
    pub fn get(&self, row: usize) -> Option<RowRef<'_>> {
        let width = self.columns.len();
        let start = row.checked_mul(width)?;
        let values = self.values.get(start..start.checked_add(width)?)?;
        (row < self.len).then_some(RowRef { columns: &self.columns, values })
    }

    /// All rows, in their order.
    pub fn iter(&self) -> RowsIter<'_> {
        // Rows without columns do not exist, so a width of 0 never has values to be cut up.
        RowsIter { columns: &self.columns, values: self.values.chunks_exact(self.columns.len().max(1)) }
    }

    /// All rows as `T`.
    pub fn all<'a, T: FromRow<'a>>(&'a self) -> Result<Vec<T>, RowError> {
        self.iter().map(T::from_row).collect()
    }

    /// The first row as `T`, or `None` where there is none.
    pub fn first<'a, T: FromRow<'a>>(&'a self) -> Result<Option<T>, RowError> {
        self.get(0).map(T::from_row).transpose()
    }

    /// The only row as `T`; an error where there is none, or more than one.
    pub fn one<'a, T: FromRow<'a>>(&'a self) -> Result<T, RowError> {
        match (self.get(0), self.len) {
            (Some(row), 1) => T::from_row(row),
            _ => Err(RowError::RowCount { found: self.len }),
        }
    }

    /// The only row as `T`, or `None` where there is none; an error where there is more than one.
    pub fn optional<'a, T: FromRow<'a>>(&'a self) -> Result<Option<T>, RowError> {
        if self.len > 1 { Err(RowError::RowCount { found: self.len }) } else { self.first() }
    }

    /// The values, row after row.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The values, row after row.
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }
}

impl<'a> IntoIterator for &'a Rows {
    type Item = RowRef<'a>;
    type IntoIter = RowsIter<'a>;

    fn into_iter(self) -> RowsIter<'a> {
        self.iter()
    }
}

/// What a write returned (`RETURNING`), to be read like the rows of a query.
impl From<StatementResult> for Rows {
    fn from(result: StatementResult) -> Self {
        let columns: Arc<[String]> = result.columns.into();
        let width = columns.len();
        Self::new(columns, result.rows.into_iter().filter(|row| row.len() == width).flatten().collect())
    }
}

/// The rows of a [`Rows`], one after the other.
#[derive(Clone, Debug)]
pub struct RowsIter<'a> {
    columns: &'a [String],
    values: std::slice::ChunksExact<'a, Value>,
}

impl<'a> Iterator for RowsIter<'a> {
    type Item = RowRef<'a>;

    fn next(&mut self) -> Option<RowRef<'a>> {
        let values = self.values.next()?;
        Some(RowRef { columns: self.columns, values })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.values.size_hint()
    }
}

impl ExactSizeIterator for RowsIter<'_> {}

/// A view of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowRef<'a> {
    columns: &'a [String],
    values: &'a [Value],
}

impl<'a> RowRef<'a> {
    /// The names of the columns.
    pub fn columns(self) -> &'a [String] {
        self.columns
    }

    /// The values.
    pub fn values(self) -> &'a [Value] {
        self.values
    }

    /// The value of the column with this number, from 0.
    pub fn get<T: FromValue<'a>>(self, column: usize) -> Result<T, RowError> {
        let name = self.columns.get(column).map_or("", String::as_str);
        let value = self.values.get(column).ok_or_else(|| self.no_column(&format!("number {column}")))?;
        T::from_value(value).map_err(|mismatch| RowError::Value { column: name.to_owned(), mismatch })
    }

    /// The value of the first column of this name, as the statement spells it.
    pub fn get_by_name<T: FromValue<'a>>(self, column: &str) -> Result<T, RowError> {
        let number = self.columns.iter().position(|name| name == column).ok_or_else(|| self.no_column(column))?;
        self.get(number)
    }

    /// The same; `None` where there is no such column, or its value is NULL.
    pub fn find<T: FromValue<'a>>(self, column: &str) -> Result<Option<T>, RowError> {
        let number = self.columns.iter().position(|name| name == column);
        number.map_or(Ok(None), |number| self.get(number))
    }

    /// What a value of a column is converted to.
    pub fn convert<T, U: TryFrom<T, Error: fmt::Display>>(self, column: &str, value: T) -> Result<U, RowError> {
        let failed = |error: U::Error| RowError::Conversion { column: column.to_owned(), error: error.to_string() };
        U::try_from(value).map_err(failed)
    }

    /// Fails unless there are so many columns.
    pub fn expect_columns(self, expected: usize) -> Result<(), RowError> {
        let found = self.columns.len();
        if found == expected { Ok(()) } else { Err(RowError::ColumnCount { expected, found }) }
    }

    fn no_column(self, column: &str) -> RowError {
        RowError::NoColumn { column: column.to_owned(), columns: self.columns.join(", ") }
    }
}

/// Why a row is not what the program expects.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// A value of another class, or one that does not fit.
    #[error("column {column:?}: {mismatch}")]
    Value {
        /// The column's name.
        column: String,
        /// What was expected, and what was found.
        mismatch: Mismatch,
    },
    /// A value that another type can't be made from.
    #[error("column {column:?}: {error}")]
    Conversion {
        /// The column's name.
        column: String,
        /// What the conversion says.
        error: String,
    },
    /// The result has no such column.
    #[error("no column {column}: the result has {columns}")]
    NoColumn {
        /// What was asked for.
        column: String,
        /// What there is.
        columns: String,
    },
    /// What `serde` asks for is not what the result has.
    #[error("{error}: the result has {columns}")]
    Shape {
        /// What `serde` says.
        error: String,
        /// What there is.
        columns: String,
    },
    /// The result has another number of columns than the type that it is read as.
    #[error("{}, the result has {found}; select as many", columns_expected(*.expected))]
    ColumnCount {
        /// Columns of the type.
        expected: usize,
        /// Columns of the result.
        found: usize,
    },
    /// Not exactly one row.
    #[error("one row was expected, the result has {found}; {}", rows_allowed(*.found))]
    RowCount {
        /// How many rows there are.
        found: usize,
    },
}

impl RowError {
    /// Never: the program expects something else than the statement returns.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// How so many rows are read.
fn rows_allowed(count: usize) -> &'static str {
    if count == 0 { "query_optional allows for none" } else { "query_as takes them all" }
}

/// How many columns were expected.
fn columns_expected(count: usize) -> String {
    if count == 1 { "1 column was expected".to_owned() } else { format!("{count} columns were expected") }
}

/// As a shell would show it: names, then a line for each row, tabs between the values.
impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.columns.join("\t"))?;
        for row in self {
            for (number, value) in row.values().iter().enumerate() {
                write!(f, "{}{value}", if number == 0 { "\n" } else { "\t" })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
