//! Commands on strings.

use bytes::Bytes;

use super::{Condition, Expiry};

/// A command on a string. A missing key is an empty string to those that change a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringCommand {
    /// Sets a key to a string, whatever it holds (SET, SETNX, SETEX, GETSET, ...).
    Set {
        /// The key.
        key: Bytes,
        /// The string.
        value: Bytes,
        /// What has to hold. [`Condition::Value`] fails on a key of another kind.
        condition: Condition,
        /// When the key expires.
        expiry: Expiry,
        /// Whether the string before it is returned, also if the command does not apply; then a key of another kind
        /// fails.
        get: bool,
    },
    /// Sets keys to strings, whatever they hold, if a condition holds for all of them (MSET, MSETNX, MSETEX). They are
    /// judged in the order of their bytes; the last string of a key counts.
    SetAll {
        /// The keys with their strings.
        strings: Vec<(Bytes, Bytes)>,
        /// What has to hold for each key before any of them is set. [`Condition::Value`] fails on a key of another
        /// kind.
        condition: Condition,
        /// When the keys expire.
        expiry: Expiry,
    },
    /// Returns a string (GET).
    Get {
        /// The key.
        key: Bytes,
    },
    /// Returns a string, and sets the expiry of its key, or removes it (GETEX). A time that has come removes the key.
    GetExpire {
        /// The key.
        key: Bytes,
        /// When it expires, in nanoseconds since 1970; none for never.
        at: Option<u64>,
        /// Whether the time counts from the stamp of the entry instead of 1970.
        relative: bool,
    },
    /// Removes a key and returns its string (GETDEL).
    Take {
        /// The key.
        key: Bytes,
    },
    /// Returns the bytes from one index to another, both inside; a negative one counts from the end (GETRANGE).
    GetRange {
        /// The key.
        key: Bytes,
        /// The first index.
        start: i64,
        /// The last index.
        end: i64,
    },
    /// Returns the number of bytes; 0 if the key is missing (STRLEN).
    Length {
        /// The key.
        key: Bytes,
    },
    /// Adds bytes at the end, and returns the length (APPEND). Costs the whole string.
    Append {
        /// The key.
        key: Bytes,
        /// The bytes.
        value: Bytes,
    },
    /// Replaces the bytes from an offset on, fills up with zeros before it, and returns the length (SETRANGE). No bytes
    /// change nothing. Costs the whole string.
    SetRange {
        /// The key.
        key: Bytes,
        /// Where the bytes start.
        offset: u64,
        /// The bytes.
        value: Bytes,
    },
    /// Adds to an integer, and returns the sum (INCR, DECRBY, ...). A missing key is 0.
    Add {
        /// The key.
        key: Bytes,
        /// What is added.
        by: i64,
    },
    /// Adds to a decimal number, and returns the sum (INCRBYFLOAT). A missing key is 0.
    AddFloat {
        /// The key.
        key: Bytes,
        /// What is added, as it was written: a decimal number.
        by: Bytes,
    },
}
