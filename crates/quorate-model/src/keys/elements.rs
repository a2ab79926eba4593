//! Commands on hashes and sets. Both have elements, found by a field, which is the member of a set. Each element may
//! expire by itself; a collection without elements does not exist.

use bytes::Bytes;

use super::{Condition, Expiry, ExpiryCondition, Kind};

/// A hash or a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// A hash.
    Hash,
    /// A set.
    Set,
}

impl From<Collection> for Kind {
    fn from(of: Collection) -> Self {
        match of {
            Collection::Hash => Self::Hash,
            Collection::Set => Self::Set,
        }
    }
}

/// A command on the elements of a hash or a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementCommand {
    /// Removes elements, and returns how many there were (HDEL, SREM).
    Remove {
        /// What the key holds.
        of: Collection,
        /// The key.
        key: Bytes,
        /// The fields.
        fields: Vec<Bytes>,
    },
    /// Returns for each field whether there is an element (HEXISTS, SISMEMBER, SMISMEMBER).
    Contains {
        /// What the key holds.
        of: Collection,
        /// The key.
        key: Bytes,
        /// The fields.
        fields: Vec<Bytes>,
    },
    /// Returns a page of the elements in the order of their fields (HGETALL, HSCAN, SMEMBERS, ...). Looks at
    /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX) rows at most. To go on, the next one starts where the page says.
    Scan {
        /// What the key holds.
        of: Collection,
        /// The key.
        key: Bytes,
        /// The lowest field; no bytes for the first one.
        from: Bytes,
        /// The most elements of the page, at least 1.
        limit: u64,
    },
    /// Sets the expiry of elements, or removes it (HEXPIRE, HPERSIST, ...). A time that has come removes an element.
    /// Returns for each field what became of it.
    Expire {
        /// What the key holds.
        of: Collection,
        /// The key.
        key: Bytes,
        /// The fields.
        fields: Vec<Bytes>,
        /// When they expire, in nanoseconds since 1970; none for never.
        at: Option<u64>,
        /// What has to hold for each element.
        condition: ExpiryCondition,
        /// Whether the time counts from the stamp of the entry instead of 1970.
        relative: bool,
    },
    /// Returns for each field the version of its element and when that expires (HTTL, HEXPIRETIME, ...).
    Describe {
        /// What the key holds.
        of: Collection,
        /// The key.
        key: Bytes,
        /// The fields.
        fields: Vec<Bytes>,
    },
    /// Draws elements (HRANDFIELD, SRANDMEMBER). Of more than [`FAIR_DRAW_MAX`](super::limits::FAIR_DRAW_MAX) elements
    /// not all have the same chance, and fewer are drawn if very many have expired and were not swept yet. Reads
    /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX) rows at most, twice.
    Draw {
        /// What the key holds.
        of: Collection,
        /// The key.
        key: Bytes,
        /// How many.
        count: u64,
        /// Whether an element may be drawn more than once. If so, the count is at most
        /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX); if not, no more are drawn than the collection has.
        repeats: bool,
        /// What the draw depends on; the proposer draws it at random.
        seed: u64,
    },
}

/// A command on a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashCommand {
    /// Sets fields, and returns how many are new (HSET, HSETNX, HSETEX, ...). The last value of a field counts.
    Set {
        /// The key.
        key: Bytes,
        /// The fields with their values, at least one.
        fields: Vec<(Bytes, Bytes)>,
        /// What has to hold for each field before any of them is set.
        condition: Condition,
        /// When the fields expire.
        expiry: Expiry,
    },
    /// Returns the values of fields (HGET, HMGET).
    Get {
        /// The key.
        key: Bytes,
        /// The fields.
        fields: Vec<Bytes>,
    },
    /// Returns the values of fields, and sets their expiry, or removes it (HGETEX). A time that has come removes a
    /// field.
    GetExpire {
        /// The key.
        key: Bytes,
        /// The fields.
        fields: Vec<Bytes>,
        /// When they expire, in nanoseconds since 1970; none for never.
        at: Option<u64>,
        /// Whether the time counts from the stamp of the entry instead of 1970.
        relative: bool,
    },
    /// Removes fields and returns their values (HGETDEL). A field that is named twice is missing the second time.
    Take {
        /// The key.
        key: Bytes,
        /// The fields.
        fields: Vec<Bytes>,
    },
    /// Adds to an integer, and returns the sum (HINCRBY). A missing field is 0; another one keeps its expiry.
    Add {
        /// The key.
        key: Bytes,
        /// The field.
        field: Bytes,
        /// What is added.
        by: i64,
    },
    /// Adds to a decimal number, and returns the sum (HINCRBYFLOAT). A missing field is 0; another one keeps its
    /// expiry.
    AddFloat {
        /// The key.
        key: Bytes,
        /// The field.
        field: Bytes,
        /// What is added, as it was written: a decimal number.
        by: Bytes,
    },
}

/// How sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// What is in any of them.
    Union,
    /// What is in all of them.
    Intersection,
    /// What is in the first, and in none of the others.
    Difference,
}

/// A command on sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetCommand {
    /// Adds members, and returns how many are new (SADD).
    Add {
        /// The key.
        key: Bytes,
        /// The members, at least one.
        members: Vec<Bytes>,
        /// When the members expire. [`Expiry::Never`] leaves those that are there as they are, as `Keep` does.
        expiry: Expiry,
    },
    /// Draws members, removes and returns them (SPOP). Draws as [`ElementCommand::Draw`] does.
    Pop {
        /// The key.
        key: Bytes,
        /// How many.
        count: u64,
        /// What the draw depends on; the proposer draws it at random.
        seed: u64,
    },
    /// Moves a member to another set, where it does not expire (SMOVE).
    Move {
        /// The key of the set that has it.
        from: Bytes,
        /// The key of the set that gets it.
        to: Bytes,
        /// The member.
        member: Bytes,
    },
    /// Combines sets, and returns the members in the order of their bytes, or stores them in a key and returns how many
    /// they are (SINTER, SUNION, SDIFF, SINTERCARD, ...STORE). The sets may have
    /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX) members together, of which an intersection reads only those of
    /// the smallest set, and a difference those of the first one; the result that is stored may have
    /// [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX).
    Combine {
        /// How.
        operation: SetOperation,
        /// The keys of the sets; a missing one is an empty set.
        keys: Vec<Bytes>,
        /// Where the result is stored, whatever the key holds; an empty result removes the key.
        store: Option<Bytes>,
    },
}
