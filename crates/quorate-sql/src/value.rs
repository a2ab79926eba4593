//! Converts values to and from SQLite: by storage class, never by declared type.

use quorate_model::{Failure, FailureKind, RawValue, StoreFault, Value};
use rusqlite::Row;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

use crate::readers::ReadError;
use crate::usage::{self, NoMemory};

/// A parameter value; SQLite copies it.
pub(crate) struct Bound<'a>(pub(crate) &'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(borrowed(self.0)))
    }
}

/// Returns a value in the form that SQLite takes.
pub(crate) fn borrowed(value: &Value) -> ValueRef<'_> {
    match value {
        Value::Null => ValueRef::Null,
        Value::Integer(value) => ValueRef::Integer(*value),
        Value::Real(value) => ValueRef::Real(*value),
        Value::Text(text) => ValueRef::Text(text.as_bytes()),
        Value::Blob(bytes) => ValueRef::Blob(bytes),
    }
}

/// A parameter value from packed rows; SQLite copies it.
pub(crate) struct BoundRaw<'a>(pub(crate) RawValue<'a>);

impl ToSql for BoundRaw<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            RawValue::Null => ValueRef::Null,
            RawValue::Integer(value) => ValueRef::Integer(value),
            RawValue::Real(value) => ValueRef::Real(value),
            RawValue::Text(text) => ValueRef::Text(text),
            RawValue::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Why a value could not be copied.
#[derive(Debug)]
pub(crate) enum NoCopy {
    /// The value is a text that is not UTF-8, which SQL can produce from blobs. It can't be represented outside of
    /// SQLite, and any other text in its place would be wrong.
    NotUtf8(Failure),
    /// The statement has reached its limit of memory, or the process has no memory left.
    NoMemory(StoreFault),
}

impl From<NoMemory> for NoCopy {
    fn from(none: NoMemory) -> Self {
        Self::NoMemory(none.into())
    }
}

impl From<NoCopy> for ReadError {
    fn from(error: NoCopy) -> Self {
        match error {
            NoCopy::NotUtf8(failure) => failure.into(),
            NoCopy::NoMemory(fault) => fault.into(),
        }
    }
}

/// Returns a copy of a value, which is in this column of this row.
pub(crate) fn owned(value: ValueRef<'_>, row: &Row<'_>, column: usize) -> Result<Value, NoCopy> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(text) => match String::from_utf8(usage::copy(text)?) {
            Ok(text) => Value::Text(text),
            Err(_) => return Err(NoCopy::NotUtf8(not_utf8(row, column))),
        },
        ValueRef::Blob(bytes) => Value::Blob(usage::copy(bytes)?.into()),
    })
}

#[cold]
fn not_utf8(row: &Row<'_>, column: usize) -> Failure {
    let statement: &rusqlite::Statement<'_> = row.as_ref();
    let name = statement.column_name(column).unwrap_or_default();
    let text = format!("the column {name:?} holds a text that is not UTF-8; read its bytes as CAST(... AS BLOB)");
    Failure::new(FailureKind::Sql, text)
}
