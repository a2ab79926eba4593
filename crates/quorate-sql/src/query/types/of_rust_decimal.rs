//! `rust_decimal::Decimal`.

use quorate_model::Value;
use rust_decimal::Decimal;

use super::single;
use crate::query::{FromRow, FromValue, Mismatch, RowError, RowRef};

const EXPECTED: &str = "a decimal number as TEXT, or an INTEGER";

/// Reads a TEXT with a decimal number, or an INTEGER. A REAL is refused, because it is not exact.
impl FromValue<'_> for Decimal {
    fn from_value(value: &Value) -> Result<Self, Mismatch> {
        match value {
            Value::Integer(whole) => Ok((*whole).into()),
            Value::Text(text) => Self::from_str_exact(text).map_err(|_| Mismatch::value(EXPECTED, value)),
            other => Err(Mismatch::class(EXPECTED, other)),
        }
    }
}

single!(Decimal);
