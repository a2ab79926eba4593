//! The family of the store for tests: items, each a value under a key, that may expire.
//!
//! The store is small, but has what stores have: commands that do not apply, guards, items whose time has come, and
//! topics. It shows that what is around stores (apply, groups, ticks, waits) works for any of them. No node that is
//! shipped has it: there, its commands are refused.

use bytes::Bytes;

/// A command of this family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemsCommand {
    /// Adds an item, unless there is one under the key. It expires `ttl` nanoseconds after the entry's stamp; 0 for
    /// never.
    Add {
        /// Its key.
        key: Bytes,
        /// Its value.
        value: Bytes,
        /// For how long it exists.
        ttl: u64,
    },
    /// Removes an item and returns its value.
    Take(Bytes),
    /// Fails with [`FailureKind::Conflict`](crate::FailureKind) unless the item under the key has this value.
    Expect {
        /// Its key.
        key: Bytes,
        /// Its value.
        value: Bytes,
    },
    /// Fails and closes the transaction, as a statement with `ON CONFLICT ROLLBACK` does.
    Abort,
}

/// The result of a command of this family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemsReply {
    /// The command succeeded and returns nothing.
    Done,
    /// It did not apply: there is an item under the key.
    Exists,
    /// It did not apply: there is no item under the key.
    Missing,
    /// The value of the item that was removed.
    Taken(Bytes),
}
