//! The replies to commands.

use bytes::Bytes;

use super::{Kind, Version};

/// The reply to a command.
#[derive(Clone, Debug, PartialEq)]
pub enum KeysReply {
    /// It succeeded, and returns nothing.
    Done,
    /// It did not apply: the key, or what it asks for, is missing.
    Missing,
    /// It did not apply: a condition was not met.
    NotApplied,
    /// A number of keys, elements or bytes.
    Count(u64),
    /// The sum of integers.
    Integer(i64),
    /// Integers in a string; none where it did not fit.
    Integers(Vec<Option<i64>>),
    /// A value.
    Value(Bytes),
    /// Values, in the order of what was asked for.
    Values(Vec<Option<Bytes>>),
    /// Whether a string was set, and the one before, if that was asked for.
    Set {
        /// Whether it was set.
        applied: bool,
        /// The string before; none if the key was missing, too.
        previous: Option<Bytes>,
    },
    /// What there is to know of a key.
    Key(KeyInfo),
    /// What a key takes.
    Size(KeySize),
    /// A page of keys.
    Keys(Page<KeyEntry>),
    /// Whether each field is there.
    Flags(Vec<bool>),
    /// Fields with their values. Those of a set are empty.
    Elements(Page<(Bytes, Bytes)>),
    /// What became of the expiries of fields.
    Expired(Vec<Change>),
    /// The versions and expiries of the elements that are there.
    Described(Vec<Option<(Version, Option<u64>)>>),
    /// Members of a set, or items of a list.
    Members(Vec<Bytes>),
    /// Items of the list under this key.
    MembersOf(Bytes, Vec<Bytes>),
    /// The indexes of items of a list.
    Indexes(Vec<u64>),
    /// Scores, in the order of the members that were asked for.
    Scores(Vec<Option<f64>>),
    /// A score.
    Score(f64),
    /// How many members are before one, and its score.
    Rank(u64, f64),
    /// Members with their scores.
    Scored(Vec<(Bytes, f64)>),
    /// Members of the sorted set under this key, with their scores.
    ScoredOf(Bytes, Vec<(Bytes, f64)>),
    /// A page of members with their scores.
    ScoredPage(Page<(Bytes, f64)>),
}

/// A page of something in an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What is on it.
    pub rows: Vec<T>,
    /// Where the next page starts, if there may be one: `from`, or, downwards, `to` of its span.
    pub next: Option<Bytes>,
}

/// What there is to know of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// What it holds.
    pub kind: Kind,
    /// The version of its last change. That something of it expired is no change.
    pub version: Version,
    /// When it expires.
    pub expires_at: Option<u64>,
}

/// What a key takes. Elements that have expired count until they are swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySize {
    /// What it holds.
    pub kind: Kind,
    /// The number of elements, members or items; 0 for a string.
    pub count: u64,
    /// The bytes of the key and of what it holds, estimated by the first rows of a collection.
    pub bytes: u64,
}

/// A key on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: Bytes,
    /// What there is to know of it.
    pub info: KeyInfo,
    /// Its string, if that was asked for.
    pub value: Option<Bytes>,
}

/// What became of the expiry of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is missing.
    Missing,
    /// The condition was not met, or there was no expiry to remove.
    NotApplied,
    /// It has the new expiry.
    Done,
    /// It was removed, because the time has come.
    Removed,
}
