//! Conversions of values to types of other crates, each behind a feature with the name of its crate. Each type accepts
//! at least the values into which `quorate_model` converts it.

use bytes::Bytes;

use super::from_row::single;
use super::{FromRow, RowError, RowRef};

#[cfg(any(feature = "chrono", feature = "jiff", feature = "time"))]
mod calendar;
#[cfg(feature = "chrono")]
mod of_chrono;
#[cfg(feature = "jiff")]
mod of_jiff;
#[cfg(feature = "rust_decimal")]
mod of_rust_decimal;
#[cfg(feature = "serde_json")]
mod of_serde_json;
#[cfg(feature = "time")]
mod of_time;
#[cfg(feature = "uuid")]
mod of_uuid;

single!(Bytes);
