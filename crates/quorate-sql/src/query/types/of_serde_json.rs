//! JSON: `serde_json::Value`, and any type that `serde` can read from JSON.

use quorate_model::Value;
use serde::de::DeserializeOwned;

use super::single;
use crate::query::{FromRow, FromValue, Mismatch, RowError, RowRef};

const EXPECTED: &str = "JSON as TEXT";

/// Reads a TEXT that contains JSON.
impl FromValue<'_> for serde_json::Value {
    fn from_value(value: &Value) -> Result<Self, Mismatch> {
        let text = <&str>::from_value(value).map_err(|_| Mismatch::class(EXPECTED, value))?;
        serde_json::from_str(text).map_err(|_| Mismatch::value(EXPECTED, value))
    }
}

single!(serde_json::Value);

impl RowRef<'_> {
    /// Reads the JSON in the TEXT of the first column with this name; returns `None` if there is no such column, or its
    /// value is NULL.
    pub fn find_json<T: DeserializeOwned>(self, column: &str) -> Result<Option<T>, RowError> {
        self.find::<&str>(column)?.map(|text| json(column, text)).transpose()
    }

    /// Reads the JSON in the TEXT of the first column with this name. NULL is read as `null`.
    pub fn get_json<T: DeserializeOwned>(self, column: &str) -> Result<T, RowError> {
        json(column, self.get_by_name::<Option<&str>>(column)?.unwrap_or("null"))
    }
}

fn json<T: DeserializeOwned>(column: &str, text: &str) -> Result<T, RowError> {
    let failed = |error: serde_json::Error| RowError::Conversion { column: column.to_owned(), error: error.into() };
    serde_json::from_str(text).map_err(failed)
}
