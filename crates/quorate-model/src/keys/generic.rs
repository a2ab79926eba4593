//! Commands on keys, whatever they hold.

use bytes::Bytes;

use super::{Condition, ExpiryCondition, Kind, Order, Space, Span, Version};

/// A command on keys, whatever they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyCommand {
    /// Removes keys (DEL, UNLINK), those that meet the condition, and returns how many these were. Costs the same
    /// whatever a key holds. [`Condition::Value`] holds for strings only.
    Delete {
        /// The keys.
        keys: Vec<Bytes>,
        /// What has to hold for each key.
        condition: Condition,
    },
    /// Returns how many of the keys exist; one counts as often as it is named (EXISTS, TOUCH).
    Exists {
        /// The keys.
        keys: Vec<Bytes>,
    },
    /// Returns what a key holds, its version and its expiry (TYPE, TTL, EXPIRETIME, ...).
    Describe {
        /// The key.
        key: Bytes,
    },
    /// Fails with [`FailureKind::Conflict`](crate::FailureKind::Conflict) unless the key has this version. A
    /// command without a version expects that the key is missing (WATCH).
    Expect {
        /// The key.
        key: Bytes,
        /// Its version.
        version: Option<Version>,
    },
    /// Returns the number of elements, members or items; 0 if the key is missing (HLEN, SCARD, ZCARD, LLEN). Reads a
    /// row for each element that has expired and was not swept yet.
    Count {
        /// The key.
        key: Bytes,
        /// What it holds; not a string.
        kind: Kind,
    },
    /// Sets the expiry of a key, or removes it (EXPIRE, PERSIST, ...). A time that has come removes the key.
    Expire {
        /// The key.
        key: Bytes,
        /// When it expires, in nanoseconds since 1970; none for never.
        at: Option<u64>,
        /// What has to hold.
        condition: ExpiryCondition,
        /// Whether the time counts from the stamp of the entry instead of 1970.
        relative: bool,
    },
    /// Gives a key another name (RENAME, RENAMENX).
    Rename {
        /// The key.
        key: Bytes,
        /// The space of its new name.
        to_space: Space,
        /// Its new name.
        to: Bytes,
        /// Whether a key of that name is removed; else the command does not apply if there is one.
        replace: bool,
    },
    /// Copies a key with its expiry (COPY). A collection may have
    /// [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX) elements.
    Copy {
        /// The key.
        key: Bytes,
        /// The space of the copy.
        to_space: Space,
        /// The name of the copy.
        to: Bytes,
        /// Whether a key of that name is removed; else the command does not apply if there is one.
        replace: bool,
    },
    /// Returns how many keys the space has (DBSIZE). Those that have expired and were not swept yet count, too. Reads
    /// one row.
    CountAll,
    /// Removes all keys of the space (FLUSHDB; FLUSHALL, for each space). Changes one row, however many keys there are;
    /// theirs are left to the sweep.
    Flush,
    /// Draws a key (RANDOMKEY). Of more than [`FAIR_DRAW_MAX`](super::limits::FAIR_DRAW_MAX) keys not all have the same
    /// chance, and none is drawn if very many have expired and were not swept yet. Reads
    /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX) rows at most, twice.
    Draw {
        /// What the draw depends on; the proposer draws it at random.
        seed: u64,
    },
    /// Estimates what a key takes (MEMORY USAGE, OBJECT ENCODING). Reads
    /// [`SAMPLED_ROWS_MAX`](super::limits::SAMPLED_ROWS_MAX) rows of a collection at most.
    Measure {
        /// The key.
        key: Bytes,
    },
    /// Returns a page of keys in the order of their bytes (SCAN, KEYS, RANGE). Looks at
    /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX) rows at most. To go on, the next one starts where the page says:
    /// no key comes twice, and none is left out that was there all the time.
    Scan {
        /// Which keys.
        span: Span,
        /// In which order.
        order: Order,
        /// The most keys of the page, at least 1.
        limit: u64,
        /// Only keys that hold this.
        kind: Option<Kind>,
        /// Whether the values of strings are returned too.
        values: bool,
    },
}
