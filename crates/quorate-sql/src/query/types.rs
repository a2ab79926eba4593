//! Which values types of other crates accept, each behind the feature of its crate's name: at least those that
//! `quorate_model` makes of them.

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
