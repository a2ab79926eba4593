//! Commands on lists. An index counts from 0, a negative one from the end: -1 is the last item.

use bytes::Bytes;

/// One end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where the first item is.
    Left,
    /// Where the last item is.
    Right,
}

/// A command on lists. A list without items does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListCommand {
    /// Pushes values, one after the other, and returns the length (LPUSH, RPUSH, LPUSHX, RPUSHX).
    Push {
        /// The key.
        key: Bytes,
        /// The values, at least one.
        values: Vec<Bytes>,
        /// Where.
        end: End,
        /// Whether only to a list that exists.
        existing: bool,
    },
    /// Removes items and returns them, the outermost first (LPOP, RPOP).
    Pop {
        /// The key.
        key: Bytes,
        /// How many, at most [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX).
        count: u64,
        /// Where.
        end: End,
    },
    /// Removes items of the first of these lists that exists, and returns its key with them, the outermost first
    /// (LMPOP, BLPOP, ...).
    PopFirst {
        /// The keys.
        keys: Vec<Bytes>,
        /// How many, at most [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX).
        count: u64,
        /// Where.
        end: End,
    },
    /// Moves an item to a list, perhaps the same (LMOVE, RPOPLPUSH), and returns it.
    Move {
        /// The key of the list that has it.
        from: Bytes,
        /// The key of the list that gets it.
        to: Bytes,
        /// Where it is taken.
        from_end: End,
        /// Where it is added.
        to_end: End,
    },
    /// Returns an item (LINDEX).
    Index {
        /// The key.
        key: Bytes,
        /// Which.
        index: i64,
    },
    /// Returns the items from one index to another, both inside (LRANGE). Fails if they are more than
    /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX).
    Range {
        /// The key.
        key: Bytes,
        /// The first index.
        start: i64,
        /// The last index.
        stop: i64,
    },
    /// Returns the indexes of items that equal a value, in the order in which they are found (LPOS). Reads up to
    /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX) items.
    Find {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// Where the search starts.
        from: End,
        /// How many of them to leave out first.
        skip: u64,
        /// The most indexes.
        limit: u64,
        /// The most items to look at.
        within: u64,
    },
    /// Sets an item (LSET).
    Set {
        /// The key.
        key: Bytes,
        /// Which.
        index: i64,
        /// The value.
        value: Bytes,
    },
    /// Keeps only the items from one index to another, both inside (LTRIM). Either the kept or the removed ones may be
    /// at most [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX).
    Trim {
        /// The key.
        key: Bytes,
        /// The first index.
        start: i64,
        /// The last index.
        stop: i64,
    },
    /// Inserts a value beside the first item that equals another value, and returns the length (LINSERT). Reads up to
    /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX) items, and moves those of the shorter side, at most
    /// [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX).
    Insert {
        /// The key.
        key: Bytes,
        /// Whether before the item; else after it.
        before: bool,
        /// The value that the item has.
        pivot: Bytes,
        /// The value to insert.
        value: Bytes,
    },
    /// Removes items that equal a value, and returns how many (LREM). Reads up to
    /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX) items, and moves those after the first one that is removed, or
    /// before the last, at most [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX).
    Remove {
        /// The key.
        key: Bytes,
        /// The most items: the first ones, or, if negative, the last ones; 0 for all.
        count: i64,
        /// The value.
        value: Bytes,
    },
}
