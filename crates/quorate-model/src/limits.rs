//! How large things may be. Each limit is checked before a proposal is made, with an error that names it, and again
//! where bytes come in.

use crate::{Failure, FailureKind};

/// Bytes of the text of one statement.
pub const SQL_BYTES_MAX: usize = 1 << 20;

/// Bytes of one text or blob value, and of one row: SQLite's own length limit on every connection.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// Parameters of one statement: SQLite's default.
pub const PARAMETERS_MAX: usize = 32_766;

/// Rows of parameters of one bulk statement.
pub const BULK_ROWS_MAX: usize = 1 << 20;

/// Arguments of one call of a function.
pub const FUNCTION_ARGUMENTS_MAX: usize = 127;

/// Entries of the stack of SQLite's parser: parts of a statement that are nested take one to six each.
pub const PARSER_DEPTH_MAX: i32 = 1000;

/// Generated columns of one table: each may refer to another, and SQLite recurses for them.
pub const GENERATED_COLUMNS_MAX: usize = 500;

/// Commands of one proposal.
pub const COMMANDS_MAX: usize = 65_536;

/// Reads that one proposal may check again.
pub const READ_CHECKS_MAX: usize = 16_384;

/// Bytes of an encoded proposal.
pub const PROPOSAL_BYTES_MAX: usize = 32 << 20;

/// Bytes of the rows that all commands of one proposal return; what returns more fails with
/// [`FailureKind::TooBig`](crate::FailureKind::TooBig).
pub const RETURNED_BYTES_MAX: usize = 16 << 20;

/// Steps of SQLite's virtual machine that one proposal may take where it does not say otherwise: some 0.2 s of work on
/// a fast core, and a second on one that makes 25 million a second.
pub const BUDGET_DEFAULT: u64 = 25_000_000;

/// Comparisons of characters of one call of `LIKE`, `GLOB`, `trim` and its kin; what needs more fails.
pub const COMPARISONS_MAX: u64 = 1 << 25;

/// Pairs of members that one call of `json_patch` may compare.
pub const PATCH_PAIRS_MAX: usize = 1 << 24;

/// The largest budget that a proposal may ask for.
pub const BUDGET_MAX: u64 = 50_000_000_000;

/// Functions and collations that a program may bring along.
pub const EXTENSIONS_MAX: usize = 256;

/// Bytes of the name under which one of them is announced.
pub const EXTENSION_NAME_BYTES_MAX: usize = 128;

/// Sequences above its floor that a session may have open.
pub const SESSION_WINDOW: u64 = 4_096;

/// Bytes of an outcome that a session keeps whole; of a larger one it keeps only that it was applied.
pub const KEPT_OUTCOME_BYTES_MAX: usize = 64 << 10;

/// The highest format level that this build understands.
pub const FORMAT_LEVEL: u32 = 1;

/// What to do where a value is too large.
pub(crate) const IN_PIECES: &str = "store it in pieces";

/// Checks the length of a statement's text.
pub(crate) fn check_text(sql: &str) -> Result<(), Failure> {
    limit("bytes of a statement", sql.len(), SQL_BYTES_MAX, "pass its values as parameters")
}

/// Fails if there are more of something than `max`; `todo` says what the caller can do.
pub(crate) fn limit(what: &str, found: usize, max: usize, todo: &str) -> Result<(), Failure> {
    if found <= max {
        return Ok(());
    }
    Err(Failure::new(FailureKind::TooBig, format!("{found} {what}: the limit is {max}; {todo}")))
}
