//! What `.keys` and `.locks` show, as values of SQL.
//!
//! Invariant: bytes that are a text are shown as a text, all others as a blob, so the two differ in every mode in which
//! they do for SQL.

use std::time::Duration;

use quorate::Value;

use crate::format::visible;

/// Returns bytes as a text, if they are one.
pub(crate) fn value(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::Text(text.to_owned()),
        Err(_) => Value::Blob(bytes.to_vec().into()),
    }
}

/// Returns bytes for a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    visible::one_line(&visible::value(&value(bytes), "NULL"))
}

/// Returns a time in seconds, cut to milliseconds.
pub(crate) fn seconds(time: Duration) -> Value {
    Value::Real(Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).as_secs_f64())
}
