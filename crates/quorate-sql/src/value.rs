//! Values on their way into SQLite and out of it: by storage class, never by declared type.

use quorate_model::{RawValue, Value};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

/// A value that SQLite copies.
pub(crate) struct Bound<'a>(pub(crate) &'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(borrowed(self.0)))
    }
}

/// A value as SQLite takes it.
pub(crate) fn borrowed(value: &Value) -> ValueRef<'_> {
    match value {
        Value::Null => ValueRef::Null,
        Value::Integer(value) => ValueRef::Integer(*value),
        Value::Real(value) => ValueRef::Real(*value),
        Value::Text(text) => ValueRef::Text(text.as_bytes()),
        Value::Blob(bytes) => ValueRef::Blob(bytes),
    }
}

/// A value of packed rows, which SQLite copies.
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

/// A copy of what SQLite returns. Text that is not UTF-8, which SQL can make of blobs, gets replacement characters.
pub(crate) fn owned(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}
