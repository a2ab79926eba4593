//! The limits of commands on keys.

use super::Space;

/// The number of spaces: they are 0 to 7.
pub const SPACES: Space = 8;

/// The most keys, fields, members or values that a command names.
pub const ARGUMENTS_MAX: usize = 100_000;

/// The most bytes of a key.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The most bytes of a field of a hash, or a member of a set or a sorted set.
pub const FIELD_BYTES_MAX: usize = 64 << 10;

/// The most bytes of a value: of a string, of a field, or of an item of a list. With the longest key or field it makes
/// a row, and SQLite refuses one that is longer than [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX).
pub const VALUE_BYTES_MAX: usize = crate::limits::VALUE_BYTES_MAX - (128 << 10);

/// The latest time of an expiry, in nanoseconds since 1970: what an engine can store.
pub const TIME_MAX: u64 = i64::MAX as u64;

/// The most rows that a command changes whose work depends on the size of a collection.
pub const CHANGED_ROWS_MAX: u64 = 10_000;

/// The most rows that a command looks at. One that returns a page ends it there. So no reply has more rows than this,
/// or than there were arguments.
pub const READ_ROWS_MAX: u64 = 100_000;

/// The most bytes of a reply. A page ends with the row that reaches it; another reply is an error.
pub const REPLY_BYTES_MAX: usize = 16 << 20;

/// The most bytes of the encoded reply to a command that [replies briefly](super::KeysCommand::replies_briefly): a
/// count, or a number of some hundred digits.
pub const BRIEF_REPLY_BYTES: usize = 1 << 10;

/// A set with at most this many members, a hash with so many fields, or a space with so many keys, gives each the same
/// chance to be drawn.
pub const FAIR_DRAW_MAX: u64 = 1_000;

/// The rows of a collection that an estimate of its size reads.
pub const SAMPLED_ROWS_MAX: u64 = 8;
