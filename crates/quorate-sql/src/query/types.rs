//! Conversions of values to types of other crates, each behind a feature with the name of its crate. Each type accepts
//! at least the values into which `quorate_model` converts it.

use bytes::Bytes;

use super::from_row::single;
use super::{FromRow, RowError, RowRef};

#[cfg(any(feature = "chrono", feature = "jiff", feature = "time"))]
mod calendar;
#[cfg(any(feature = "chrono", feature = "jiff", feature = "time"))]
mod dates;
#[cfg(any(feature = "rust_decimal", feature = "serde_json", feature = "uuid"))]
mod others;

single!(Bytes);
