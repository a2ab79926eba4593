//! What the tests share.
#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing, reason = "each test uses its part of it")]

pub mod generate;
pub mod invariants;
