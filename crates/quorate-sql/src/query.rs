//! The rows of a result, and their conversion to Rust types.
//!
//! [`Rows`] keeps all values in one allocation; a [`RowRef`] is a view of one row. Values are read by their storage
//! class, never by a column's declared type: [`FromValue`] defines what a type accepts, and [`FromRow`] makes tuples
//! and single values from whole rows. Nothing is converted silently: an integer that does not fit, or a text where a
//! number is expected, is a [`RowError`] that names the column.

use std::fmt;
use std::sync::Arc;

use quorate_env::Cause;
use quorate_model::{StatementResult, Value};

#[cfg(feature = "serde")]
mod deserialize;
mod from_row;
mod from_value;
mod types;

pub use from_row::{FromRow, FromRowOwned};
pub use from_value::{FromValue, Mismatch};

/// The rows of a result. They are cheap to read, and in one allocation however many there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    columns: Arc<[String]>,
    /// Empty if they are not known.
    decltypes: Arc<[Option<String>]>,
    values: Vec<Value>,
    len: usize,
}

impl Rows {
    /// Splits values into `values.len() / columns.len()` rows; values of an incomplete last row are dropped.
    pub fn new(columns: Arc<[String]>, mut values: Vec<Value>) -> Self {
        let len = values.len().checked_div(columns.len()).unwrap_or(0);
        values.truncate(len * columns.len());
        Self { columns, decltypes: Arc::default(), values, len }
    }

    /// Returns the same rows with the declared types of their columns.
    #[must_use]
    pub fn with_decltypes(self, decltypes: Arc<[Option<String>]>) -> Self {
        Self { decltypes, ..self }
    }

    /// Returns rows of these values with the columns of this result.
    #[must_use]
    pub fn with_values(&self, values: Vec<Value>) -> Self {
        Self::new(Arc::clone(&self.columns), values).with_decltypes(Arc::clone(&self.decltypes))
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> &Arc<[String]> {
        &self.columns
    }

    /// Returns the type with which the table declares a column, if the column is one of a table and this is the result
    /// of a query. Values may be of any type: SQLite's declared types are affinities.
    pub fn decltype(&self, column: usize) -> Option<&str> {
        self.decltypes.get(column)?.as_deref()
    }

    /// Returns the declared types of all columns; nothing if they are not known.
    pub fn decltypes(&self) -> &Arc<[Option<String>]> {
        &self.decltypes
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the row with this number, from 0.
    pub fn get(&self, row: usize) -> Option<RowRef<'_>> {
        let width = self.columns.len();
        let start = row.checked_mul(width)?;
        let values = self.values.get(start..start.checked_add(width)?)?;
        (row < self.len).then_some(RowRef { columns: &self.columns, values })
    }

    /// Returns an iterator over the rows, in their order.
    pub fn iter(&self) -> RowsIter<'_> {
        // Without columns there are no values, so the width of 1 has no effect then.
        RowsIter { columns: &self.columns, values: self.values.chunks_exact(self.columns.len().max(1)) }
    }

    /// Returns all rows as `T`.
    pub fn all<'a, T: FromRow<'a>>(&'a self) -> Result<Vec<T>, RowError> {
        self.iter().map(T::from_row).collect()
    }

    /// Returns the first row as `T`, or `None` if there is none.
    pub fn first<'a, T: FromRow<'a>>(&'a self) -> Result<Option<T>, RowError> {
        self.get(0).map(T::from_row).transpose()
    }

    /// Returns the only row as `T`; fails if there is none, or more than one.
    pub fn one<'a, T: FromRow<'a>>(&'a self) -> Result<T, RowError> {
        match (self.get(0), self.len) {
            (Some(row), 1) => T::from_row(row),
            _ => Err(RowError::RowCount { found: self.len }),
        }
    }

    /// Returns the only row as `T`, or `None` if there is none; fails if there is more than one.
    pub fn optional<'a, T: FromRow<'a>>(&'a self) -> Result<Option<T>, RowError> {
        if self.len > 1 { Err(RowError::RowCount { found: self.len }) } else { self.first() }
    }

    /// Returns the values, row after row.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the values, row after row.
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

/// Converts the rows that a write returned (`RETURNING`), so that they can be read like those of a query.
impl From<StatementResult> for Rows {
    fn from(result: StatementResult) -> Self {
        let columns: Arc<[String]> = result.columns.into();
        let width = columns.len();
        Self::new(columns, result.rows.into_iter().filter(|row| row.len() == width).flatten().collect())
    }
}

/// An iterator over the rows of a [`Rows`].
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
    /// Returns the names of the columns.
    pub fn columns(self) -> &'a [String] {
        self.columns
    }

    /// Returns the values.
    pub fn values(self) -> &'a [Value] {
        self.values
    }

    /// Returns the value of the column with this number, from 0.
    pub fn get<T: FromValue<'a>>(self, column: usize) -> Result<T, RowError> {
        let name = self.columns.get(column).map_or("", String::as_str);
        let value = self.values.get(column).ok_or_else(|| self.no_column(&format!("number {column}")))?;
        T::from_value(value).map_err(|mismatch| RowError::Value { column: name.to_owned(), mismatch })
    }

    /// Returns the value of the first column with this name, spelled as in the statement.
    pub fn get_by_name<T: FromValue<'a>>(self, column: &str) -> Result<T, RowError> {
        let number = self.columns.iter().position(|name| name == column).ok_or_else(|| self.no_column(column))?;
        self.get(number)
    }

    /// As [`RowRef::get_by_name`], but returns `None` if there is no such column, or its value is NULL.
    pub fn find<T: FromValue<'a>>(self, column: &str) -> Result<Option<T>, RowError> {
        let number = self.columns.iter().position(|name| name == column);
        number.map_or(Ok(None), |number| self.get(number))
    }

    /// Converts a value of a column; an error names the column.
    pub fn convert<T, U>(self, column: &str, value: T) -> Result<U, RowError>
    where
        U: TryFrom<T, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let failed = |error: U::Error| RowError::Conversion { column: column.to_owned(), error: Cause::from(error) };
        U::try_from(value).map_err(failed)
    }

    /// Fails unless the row has this number of columns.
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
        #[source]
        mismatch: Mismatch,
    },
    /// A value that could not be converted to another type.
    #[error("column {column:?}: {error}")]
    Conversion {
        /// The column's name.
        column: String,
        /// The error of the conversion.
        #[source]
        error: Cause,
    },
    /// The result has no such column.
    #[error("no column {column}: the result has {columns}")]
    NoColumn {
        /// The requested column.
        column: String,
        /// The columns of the result.
        columns: String,
    },
    /// The result does not have the shape that `serde` expects.
    #[error("{error}: the result has {columns}")]
    Shape {
        /// The error of `serde`.
        error: String,
        /// The columns of the result.
        columns: String,
    },
    /// The result and the type as which it is read have different numbers of columns.
    #[error("{}, the result has {found}; select as many", columns_expected(*.expected))]
    ColumnCount {
        /// The number of columns of the type.
        expected: usize,
        /// The number of columns of the result.
        found: usize,
    },
    /// The result does not have exactly one row.
    #[error("one row was expected, the result has {found}; {}", rows_allowed(*.found))]
    RowCount {
        /// The number of rows.
        found: usize,
    },
}

impl RowError {
    /// Returns `false`: the statement returns something else than the program expects.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Returns advice on how to read a result with this number of rows.
fn rows_allowed(count: usize) -> &'static str {
    if count == 0 { "query_optional allows for none" } else { "query_as takes them all" }
}

/// Returns a text with the number of columns that were expected.
fn columns_expected(count: usize) -> String {
    if count == 1 { "1 column was expected".to_owned() } else { format!("{count} columns were expected") }
}

/// Displays the names of the columns, then a line for each row, with tabs between the values.
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
