//! `uuid::Uuid`.

use quorate_model::Value;
use uuid::Uuid;

use super::single;
use crate::query::{FromRow, FromValue, Mismatch, RowError, RowRef};

const EXPECTED: &str = "a UUID as a BLOB of 16 bytes or as TEXT";

/// Reads a BLOB of 16 bytes, or a TEXT in one of the usual forms.
impl FromValue<'_> for Uuid {
    fn from_value(value: &Value) -> Result<Self, Mismatch> {
        let read = match value {
            Value::Blob(bytes) => Self::from_slice(bytes).ok(),
            Value::Text(text) => Self::try_parse(text).ok(),
            other => return Err(Mismatch::class(EXPECTED, other)),
        };
        read.ok_or_else(|| Mismatch::value(EXPECTED, value))
    }
}

single!(Uuid);
