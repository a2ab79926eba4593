//! The limits and costs of commands.
//!
//! Costs are in steps, the unit of an entry's budget: a step is about what a step of SQLite's bytecode costs.

pub use quorate_model::keys::limits::*;

/// The most rows that one call of `sweep` removes.
pub const SWEPT_ROWS_MAX: usize = 1_000;

/// The steps of a command with the row of its key.
pub(crate) const COMMAND_STEPS: u64 = 100;

/// The steps of a row that is looked up or changed.
pub(crate) const ROW_STEPS: u64 = 100;

/// The steps of a row that is read as the next one of a range.
pub(crate) const NEXT_ROW_STEPS: u64 = 10;

/// The steps of a rank, or of a member found by its rank.
pub(crate) const RANK_STEPS: u64 = 2_000;

/// The bytes of a value that one step copies.
pub(crate) const BYTES_PER_STEP: u64 = 64;
