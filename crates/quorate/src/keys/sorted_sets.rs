//! Sorted sets.

use std::ops::{Bound, RangeBounds};

use bytes::Bytes;
use quorate_model::keys::{
    AddOptions, Aggregate, Change, ExpiryCondition, Kind, Range, SetOperation, SortedSetCommand, Version,
};

use super::call::as_call;
use super::into_bytes::all;
use super::{IntoBytes, Keys, KeysCall, Pop, When};

/// The key of a sorted set, and members of it with their scores.
pub type Popped = (Bytes, Vec<(Bytes, f64)>);

/// The version of the key of a member, and when the member expires, in nanoseconds since 1970.
pub type Expiring = (Version, Option<u64>);

/// The sorted set of a key: members in the order of their scores, and those of equal scores in that of their bytes. A
/// score is a number, but not NaN. Each member may expire. A sorted set without members does not exist.
#[derive(Clone, Debug)]
pub struct SortedSet {
    keys: Keys,
    key: Bytes,
}

impl SortedSet {
    pub(super) fn new(keys: Keys, key: Bytes) -> Self {
        Self { keys, key }
    }

    /// Adds members or changes their scores, and returns how many are new.
    pub fn add<B: IntoBytes>(&self, members: impl IntoIterator<Item = (f64, B)>) -> KeysCall<u64> {
        self.add_if(members, AddOptions::default())
    }

    /// Does so for members for which the options hold.
    pub fn add_if<B: IntoBytes>(
        &self,
        members: impl IntoIterator<Item = (f64, B)>,
        options: AddOptions,
    ) -> KeysCall<u64> {
        let members = members.into_iter().map(|(score, member)| (score, member.into_bytes())).collect();
        self.keys.run(SortedSetCommand::Add { key: self.key.clone(), members, options, count_changed: false })
    }

    /// Adds to the score of a member, and returns the sum. A missing member has 0.
    pub fn increment(&self, member: impl IntoBytes, by: f64) -> KeysCall<f64> {
        let (key, member, options) = (self.key.clone(), member.into_bytes(), AddOptions::default());
        self.keys.run(SortedSetCommand::Increment { key, member, by, options })
    }

    /// Removes members, and returns how many there were.
    pub fn remove<B: IntoBytes>(&self, members: impl IntoIterator<Item = B>) -> KeysCall<u64> {
        self.keys.run(SortedSetCommand::Remove { key: self.key.clone(), members: all(members) })
    }

    /// Returns the score of a member.
    pub fn score(&self, member: impl IntoBytes) -> KeysCall<Option<f64>> {
        self.keys.run(SortedSetCommand::Scores { key: self.key.clone(), members: all([member]) })
    }

    /// Returns the scores of members.
    pub fn scores<B: IntoBytes>(&self, members: impl IntoIterator<Item = B>) -> KeysCall<Vec<Option<f64>>> {
        self.keys.run(SortedSetCommand::Scores { key: self.key.clone(), members: all(members) })
    }

    /// Lets members expire, each by itself. Returns for each what became of it. A member whose score changes keeps its
    /// expiry.
    pub fn expire<B: IntoBytes>(
        &self,
        members: impl IntoIterator<Item = B>,
        when: impl Into<When>,
    ) -> KeysCall<Vec<Change>> {
        let (at, relative) = when.into().nanos();
        self.set_expiry(all(members), Some(at), relative)
    }

    /// Lets members no longer expire. Returns for each what became of it.
    pub fn persist<B: IntoBytes>(&self, members: impl IntoIterator<Item = B>) -> KeysCall<Vec<Change>> {
        self.set_expiry(all(members), None, false)
    }

    /// Returns for each member the version of the key, because members have none of their own, and when it expires.
    pub fn describe<B: IntoBytes>(&self, members: impl IntoIterator<Item = B>) -> KeysCall<Vec<Option<Expiring>>> {
        self.keys.run(SortedSetCommand::Describe { key: self.key.clone(), members: all(members) })
    }

    fn set_expiry(&self, members: Vec<Bytes>, at: Option<u64>, relative: bool) -> KeysCall<Vec<Change>> {
        let (key, condition) = (self.key.clone(), ExpiryCondition::Always);
        self.keys.run(SortedSetCommand::Expire { key, members, at, condition, relative })
    }

    /// Returns how many members are before one, and its score.
    pub fn rank(&self, member: impl IntoBytes) -> KeysCall<Option<(u64, f64)>> {
        self.keys.run(SortedSetCommand::Rank { key: self.key.clone(), member: member.into_bytes(), reverse: false })
    }

    /// Returns how many members are after one, and its score.
    pub fn reverse_rank(&self, member: impl IntoBytes) -> KeysCall<Option<(u64, f64)>> {
        self.keys.run(SortedSetCommand::Rank { key: self.key.clone(), member: member.into_bytes(), reverse: true })
    }

    /// Returns the number of members.
    pub fn len(&self) -> KeysCall<u64> {
        self.keys.count(&self.key, Kind::SortedSet)
    }

    /// The members from one rank to another, both inside; a negative one counts from the end.
    pub fn by_rank(&self, start: i64, stop: i64) -> InRange {
        self.range(Range::Rank(start, stop))
    }

    /// The members with these scores.
    pub fn by_score(&self, scores: impl RangeBounds<f64>) -> InRange {
        self.range(Range::Score(scores.start_bound().cloned(), scores.end_bound().cloned()))
    }

    /// The members from one to another, among those that have the lowest score: in a set whose scores are all equal,
    /// these are in the order of their bytes.
    pub fn by_member(&self, from: Bound<Bytes>, to: Bound<Bytes>) -> InRange {
        self.range(Range::Member(from, to))
    }

    /// The members of a range.
    pub fn range(&self, range: Range) -> InRange {
        InRange { keys: self.keys.clone(), key: self.key.clone(), range, reverse: false, offset: 0, limit: u64::MAX }
    }

    /// Draws different members at random, with their scores.
    pub fn draw(&self, count: u64) -> KeysCall<Vec<(Bytes, f64)>> {
        let (key, seed) = (self.key.clone(), self.keys.seed());
        self.keys.run(SortedSetCommand::Draw { key, count, repeats: false, seed })
    }

    /// Removes the first members, and returns them with their scores.
    pub fn pop_first(&self, count: u64) -> Pop<Vec<(Bytes, f64)>> {
        let key = self.key.clone();
        Pop::new(&self.keys, vec![key.clone()], SortedSetCommand::Pop { key, count, reverse: false })
    }

    /// Removes the last members, the last one first, and returns them with their scores.
    pub fn pop_last(&self, count: u64) -> Pop<Vec<(Bytes, f64)>> {
        let key = self.key.clone();
        Pop::new(&self.keys, vec![key.clone()], SortedSetCommand::Pop { key, count, reverse: true })
    }
}

/// The members of a range of a sorted set. Awaited, it returns them with their scores.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing until it is awaited, or is a step of a batch"]
pub struct InRange {
    keys: Keys,
    key: Bytes,
    range: Range,
    reverse: bool,
    offset: u64,
    limit: u64,
}

impl InRange {
    /// Returns them from the last to the first. Ranks count from the end then; other ranges are the same.
    pub fn reverse(self) -> Self {
        Self { reverse: true, ..self }
    }

    /// Leaves the first ones out.
    pub fn skip(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// Returns at most so many.
    pub fn limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// Returns how many there are, whatever is skipped.
    pub fn count(self) -> KeysCall<u64> {
        self.keys.run(SortedSetCommand::CountRange { key: self.key, range: self.range })
    }

    /// Removes all of them, whatever is skipped, and returns how many there were. Other than the whole set, these may
    /// be [`limits::CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX).
    pub fn remove(self) -> KeysCall<u64> {
        self.keys.run(SortedSetCommand::RemoveRange { key: self.key, range: self.range })
    }

    /// Stores them in a key, whatever that holds, and returns how many they are, at most
    /// [`limits::CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX) (ZRANGESTORE). No members remove the key.
    pub fn store(self, to: impl IntoBytes) -> KeysCall<u64> {
        let Self { keys, key, range, reverse, offset, limit } = self;
        keys.run(SortedSetCommand::StoreRange { key, to: to.into_bytes(), range, reverse, offset, limit })
    }

    fn call(self) -> KeysCall<Vec<(Bytes, f64)>> {
        let Self { keys, key, range, reverse, offset, limit } = self;
        keys.run(SortedSetCommand::Range { key, range, reverse, offset, limit })
    }
}

as_call!(InRange => Vec<(Bytes, f64)>);

/// Sorted sets of several keys.
impl Keys {
    /// Combines sorted sets, and sets, whose members have the score 1, and returns the members with their scores in
    /// their order (ZUNION, ZINTER, ZDIFF). Each comes with what its scores are multiplied by. A missing key is an
    /// empty set.
    ///
    /// ```
    /// # async fn f(keys: quorate::Keys) -> Result<(), quorate::Error> {
    /// use quorate::keys::{Aggregate, SetOperation};
    ///
    /// let weeks = [("week:47", 0.5), ("week:48", 1.0)];
    /// let trend = keys.combine_scores(SetOperation::Union, weeks, Aggregate::Sum).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn combine_scores<B: IntoBytes>(
        &self,
        operation: SetOperation,
        sources: impl IntoIterator<Item = (B, f64)>,
        aggregate: Aggregate,
    ) -> KeysCall<Vec<(Bytes, f64)>> {
        self.run(SortedSetCommand::Combine { operation, sources: weighted(sources), aggregate, store: None })
    }

    /// Combines them, stores the result in a key, whatever that holds, and returns how many members it has.
    pub fn combine_scores_into<B: IntoBytes>(
        &self,
        operation: SetOperation,
        sources: impl IntoIterator<Item = (B, f64)>,
        aggregate: Aggregate,
        store: impl IntoBytes,
    ) -> KeysCall<u64> {
        let store = Some(store.into_bytes());
        self.run(SortedSetCommand::Combine { operation, sources: weighted(sources), aggregate, store })
    }

    /// Removes members of the first of these sorted sets that exists, the first ones or the last ones, and returns its
    /// key with them and their scores (ZMPOP).
    pub fn pop_from_sorted_sets<B: IntoBytes>(
        &self,
        keys: impl IntoIterator<Item = B>,
        count: u64,
        reverse: bool,
    ) -> Pop<Option<Popped>> {
        let keys = all(keys);
        Pop::new(self, keys.clone(), SortedSetCommand::PopFirst { keys, count, reverse })
    }
}

fn weighted<B: IntoBytes>(sources: impl IntoIterator<Item = (B, f64)>) -> Vec<(Bytes, f64)> {
    sources.into_iter().map(|(key, weight)| (key.into_bytes(), weight)).collect()
}
