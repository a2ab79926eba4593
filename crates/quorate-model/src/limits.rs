//! Size limits. Each limit is checked before a proposal is made, with an error that names it, and again when bytes
//! arrive.

use crate::{Failure, FailureKind};

/// The most bytes in the text of one statement.
pub const SQL_BYTES_MAX: usize = 1 << 20;

/// The most bytes of one text or blob, and of one row: SQLite's own length limit on every connection.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// The most parameters of one statement: SQLite's default.
pub const PARAMETERS_MAX: usize = 32_766;

/// The most rows of parameters of one bulk statement.
pub const BULK_ROWS_MAX: usize = 1 << 20;

/// The most arguments of one call of a function.
pub const FUNCTION_ARGUMENTS_MAX: usize = 127;

/// The most entries on the stack of SQLite's parser: each level of nesting takes one to six.
pub const PARSER_DEPTH_MAX: i32 = 1000;

/// The most generated columns of one table: each may refer to another, and SQLite recurses for them.
pub const GENERATED_COLUMNS_MAX: usize = 500;

/// The most commands of one proposal.
pub const COMMANDS_MAX: usize = 65_536;

/// The most reads that one proposal may check again.
pub const READ_CHECKS_MAX: usize = 16_384;

/// The most bytes of an encoded proposal.
pub const PROPOSAL_BYTES_MAX: usize = 32 << 20;

/// Bytes of the rows that all commands of one proposal return. A command that returns more fails with
/// [`FailureKind::TooBig`]. In a pipeline the rows of a command that fails count too.
pub const RETURNED_BYTES_MAX: usize = 16 << 20;

/// The most bytes of the texts of all failures of one pipeline. The failures after that have no text of their own.
pub const FAILURE_TEXTS_BYTES_MAX: usize = 64 << 10;

/// The steps of SQLite's virtual machine that one proposal may take by default: about 0.2 s of work on a fast core, and
/// one second on a core that executes 25 million steps per second.
pub const BUDGET_DEFAULT: u64 = 25_000_000;

/// The most comparisons of characters in one call of `LIKE`, `GLOB`, `trim` or a similar function; a call that needs
/// more fails.
pub const COMPARISONS_MAX: u64 = 1 << 25;

/// The most pairs of members that one call of `json_patch` may compare.
pub const PATCH_PAIRS_MAX: usize = 1 << 24;

/// The largest budget that a proposal may ask for.
pub const BUDGET_MAX: u64 = 50_000_000_000;

/// The most functions and collations that a program may register.
pub const EXTENSIONS_MAX: usize = 256;

/// The most bytes of the name under which one of them is announced.
pub const EXTENSION_NAME_BYTES_MAX: usize = 128;

/// The most sequences above its floor that a session may have open.
pub const SESSION_WINDOW: u64 = 4_096;

/// The most bytes of an outcome that a session keeps whole; of a larger one it records only that it was applied.
pub const KEPT_OUTCOME_BYTES_MAX: usize = 64 << 10;

/// The most bytes of the key of a request.
pub const REQUEST_KEY_BYTES_MAX: usize = 256;

/// The most keys of requests that are remembered at a time.
pub const REQUEST_KEYS_MAX: u64 = 1 << 22;

/// The most bytes that the remembered keys of requests may take together, with their outcomes: each counts its key, the
/// canonical bytes of its outcome, and [`REQUEST_BYTES`].
pub const REQUEST_KEYS_BYTES_MAX: u64 = 512 << 20;

/// The bytes that each remembered key of a request counts besides itself and its outcome.
pub const REQUEST_BYTES: u64 = 64;

/// The most canonical bytes of the outcome of a request with a key. A request with a larger one fails, because the
/// outcome could not be remembered. A session keeps it whole too, with the index of its entry.
pub const REQUEST_OUTCOME_BYTES_MAX: usize = KEPT_OUTCOME_BYTES_MAX - 16;

/// The most users of a cluster.
pub const USERS_MAX: usize = 1_000;

/// The most bytes of a user's name.
pub const USER_NAME_BYTES_MAX: usize = 64;

/// The most tokens of one user.
pub const USER_TOKENS_MAX: usize = 16;

/// The most bytes of the hash of a password, with its parameters.
pub const VERIFIER_BYTES_MAX: usize = 256;

/// The format level that every version understands.
pub const BASE_LEVEL: u32 = 1;

/// The format level of this version: it understands all levels up to this one. A cluster uses a level from the entry on
/// that raises it, once all members understand it ([`ControlCommand::Raise`](crate::ControlCommand::Raise)).
///
/// Since level 2 there are ticks, and the store for tests; since level 3 there are users and keys of requests; since
/// level 4 an archiver can be appointed; since level 5 there are keys; since level 6 there are locks and events, what
/// proposals do may depend on keys, and expiries may count from the stamp of an entry; since level 7 members of sorted
/// sets may expire. A build with the feature `lower-level` is one level behind, to test clusters of mixed versions.
pub const FORMAT_LEVEL: u32 = if cfg!(feature = "lower-level") { 6 } else { 7 };

/// The advice for a value that is too large.
pub(crate) const IN_PIECES: &str = "store it in pieces";

/// Checks the length of a statement's text.
pub(crate) fn check_text(sql: &str) -> Result<(), Failure> {
    limit("bytes of a statement", sql.len(), SQL_BYTES_MAX, "pass its values as parameters")
}

/// Fails if `found` is above `max`; `todo` says what the caller can do.
pub(crate) fn limit(what: &str, found: usize, max: usize, todo: &str) -> Result<(), Failure> {
    if found <= max {
        return Ok(());
    }
    Err(Failure::new(FailureKind::TooBig, format!("{found} {what}: the limit is {max}; {todo}")))
}
