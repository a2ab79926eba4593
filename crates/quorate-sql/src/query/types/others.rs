//! Types of `rust_decimal`, `serde_json` and `uuid`.

#[cfg(feature = "rust_decimal")]
mod of_rust_decimal {
    use quorate_model::Value;
    use rust_decimal::Decimal;

    use crate::query::types::single;
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
}

#[cfg(feature = "serde_json")]
mod of_serde_json {
    use quorate_model::Value;
    use serde::de::DeserializeOwned;

    use crate::query::types::single;
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
        /// Reads the JSON in the TEXT of the first column with this name; returns `None` if there is no such column, or
        /// its value is NULL.
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
}

#[cfg(feature = "uuid")]
mod of_uuid {
    use quorate_model::Value;
    use uuid::Uuid;

    use crate::query::types::single;
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
}
