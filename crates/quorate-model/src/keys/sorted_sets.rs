//! Commands on sorted sets: members in the order of their scores, and those of equal scores in that of their bytes.
//! Each member may expire by itself; one whose score changes keeps its expiry.

use std::ops::Bound;

use bytes::Bytes;

use super::{ExpiryCondition, SetOperation};

/// A command on a sorted set. Scores are doubles, but not NaN; -0 is 0.
#[derive(Clone, Debug, PartialEq)]
pub enum SortedSetCommand {
    /// Adds members or changes their scores, and returns how many are new, or changed (ZADD). The options are judged
    /// for each member.
    Add {
        /// The key.
        key: Bytes,
        /// The scores and members, at least one.
        members: Vec<(f64, Bytes)>,
        /// For which members it applies.
        options: AddOptions,
        /// Whether members whose score changed count, too (CH).
        count_changed: bool,
    },
    /// Adds to the score of a member, and returns the sum, unless the options say no (ZINCRBY, ZADD INCR). A missing
    /// member has 0.
    Increment {
        /// The key.
        key: Bytes,
        /// The member.
        member: Bytes,
        /// What is added.
        by: f64,
        /// Whether it applies.
        options: AddOptions,
    },
    /// Removes members, and returns how many there were (ZREM).
    Remove {
        /// The key.
        key: Bytes,
        /// The members.
        members: Vec<Bytes>,
    },
    /// Returns the scores of members (ZSCORE, ZMSCORE).
    Scores {
        /// The key.
        key: Bytes,
        /// The members.
        members: Vec<Bytes>,
    },
    /// Returns how many members are before one, and its score (ZRANK, ZREVRANK). Reads some hundred rows of blocks and
    /// members, and one more for each 32,768 members of the set.
    Rank {
        /// The key.
        key: Bytes,
        /// The member.
        member: Bytes,
        /// Whether to count from the end.
        reverse: bool,
    },
    /// Returns members of a range with their scores (ZRANGE, ZRANGEBYSCORE, ...). A range by rank, or one with an
    /// offset, costs a rank. Fails if they are more than [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX).
    Range {
        /// The key.
        key: Bytes,
        /// Which members.
        range: Range,
        /// Whether to return them from the last to the first. Ranks count from the end then; other ranges are the same.
        reverse: bool,
        /// How many to leave out first.
        offset: u64,
        /// The most members.
        limit: u64,
    },
    /// Returns how many members are in a range (ZCOUNT, ZLEXCOUNT). Costs two ranks.
    CountRange {
        /// The key.
        key: Bytes,
        /// Which members.
        range: Range,
    },
    /// Removes the members of a range, and returns how many there were (ZREMRANGEBY...). The whole set may have any
    /// number, else these may be [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX).
    RemoveRange {
        /// The key.
        key: Bytes,
        /// Which members.
        range: Range,
    },
    /// Removes the first members, or the last ones, and returns them with their scores (ZPOPMIN, ZPOPMAX).
    Pop {
        /// The key.
        key: Bytes,
        /// How many, at most [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX).
        count: u64,
        /// Whether the last ones, the last first.
        reverse: bool,
    },
    /// Removes members of the first of these sets that exists, and returns its key with them and their scores (ZMPOP,
    /// BZPOPMIN, ...).
    PopFirst {
        /// The keys.
        keys: Vec<Bytes>,
        /// How many, at most [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX).
        count: u64,
        /// Whether the last ones, the last first.
        reverse: bool,
    },
    /// Returns a page of the members with their scores, in the order of their bytes (ZSCAN). Looks at
    /// [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX) rows at most. To go on, the next one starts where the page says:
    /// no member comes twice, and none is left out that was there all the time, whatever its score.
    Scan {
        /// The key.
        key: Bytes,
        /// The lowest member; no bytes for the first one.
        from: Bytes,
        /// The most members of the page, at least 1.
        limit: u64,
    },
    /// Draws members with their scores (ZRANDMEMBER). All have the same chance. Each costs a rank, or all together a
    /// reading of the whole set, whichever is less.
    Draw {
        /// The key.
        key: Bytes,
        /// How many, at most [`READ_ROWS_MAX`](super::limits::READ_ROWS_MAX).
        count: u64,
        /// Whether a member may be drawn more than once; else there are no more than the set has.
        repeats: bool,
        /// What the draw depends on; the proposer draws it at random.
        seed: u64,
    },
    /// Stores members of a range in a key, whatever that holds, and returns how many they are, at most
    /// [`CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX) (ZRANGESTORE). No members remove the key.
    StoreRange {
        /// The key.
        key: Bytes,
        /// Where they are stored.
        to: Bytes,
        /// Which members.
        range: Range,
        /// Whether offset and limit count from the last member. Ranks count from the end then.
        reverse: bool,
        /// How many to leave out first.
        offset: u64,
        /// The most members.
        limit: u64,
    },
    /// Combines sorted sets, and sets, whose members have the score 1. Returns the members with their scores in their
    /// order, or stores them in a key and returns how many they are (ZUNION, ZINTER, ZDIFF, ZINTERCARD, ...STORE). The
    /// limits are those of [`SetCommand::Combine`](super::SetCommand::Combine).
    Combine {
        /// How.
        operation: SetOperation,
        /// The keys of the sets, each with what its scores are multiplied by; a missing one is an empty set.
        sources: Vec<(Bytes, f64)>,
        /// What becomes of the scores of a member that more than one set has. A difference has those of the first one.
        aggregate: Aggregate,
        /// Where the result is stored, whatever the key holds; an empty result removes the key.
        store: Option<Bytes>,
    },
    /// Sets the expiry of members, or removes it (Q.ZEXPIRE, Q.ZPERSIST, ...), since [`MEMBER_EXPIRY_LEVEL`]. A time
    /// that has come removes a member. Returns for each member what became of it.
    ///
    /// [`MEMBER_EXPIRY_LEVEL`]: super::MEMBER_EXPIRY_LEVEL
    Expire {
        /// The key.
        key: Bytes,
        /// The members.
        members: Vec<Bytes>,
        /// When they expire, in nanoseconds since 1970; none for never.
        at: Option<u64>,
        /// What has to hold for each member.
        condition: ExpiryCondition,
        /// Whether the time counts from the stamp of the entry instead of 1970.
        relative: bool,
    },
    /// Returns for each member when it expires (Q.ZTTL, ...), and the version of the key, because a member has none of
    /// its own; since [`MEMBER_EXPIRY_LEVEL`].
    ///
    /// [`MEMBER_EXPIRY_LEVEL`]: super::MEMBER_EXPIRY_LEVEL
    Describe {
        /// The key.
        key: Bytes,
        /// The members.
        members: Vec<Bytes>,
    },
}

/// What becomes of several scores. What is not a number, such as the sum of both infinities, is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregate {
    /// Their sum (SUM).
    #[default]
    Sum,
    /// The lowest (MIN).
    Lowest,
    /// The highest (MAX).
    Highest,
}

/// For which members a score is set. No options for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Which members.
    pub which: Which,
    /// How the score of an existing one must change.
    pub compare: Compare,
}

/// Which members a command is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// All.
    #[default]
    Any,
    /// Missing ones (NX).
    Missing,
    /// Existing ones (XX).
    Exists,
}

/// How a score must change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compare {
    /// As it likes.
    #[default]
    Any,
    /// It must rise (GT).
    Greater,
    /// It must fall (LT).
    Less,
}

/// A range of a sorted set.
#[derive(Clone, Debug, PartialEq)]
pub enum Range {
    /// From one rank to another, both inside; a negative one counts from the end.
    Rank(i64, i64),
    /// From one score to another. NaN bounds nothing: the range is empty.
    Score(Bound<f64>, Bound<f64>),
    /// From one member to another, among those that have the lowest score of the set.
    Member(Bound<Bytes>, Bound<Bytes>),
}
