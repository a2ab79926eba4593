//! Commands on sorted sets: adding, removing, scores and ranks.

use bytes::Bytes;
use quorate_model::keys::{AddOptions, Compare, KeyEvent, KeysReply, Kind, SortedSetCommand, Which};

use crate::KeysError;
use crate::combine::stored;
use crate::expiring::Member;
use crate::keys::{Keys, Open, check_fields};
use crate::ranges::{check_places, to_reply};
use crate::tables::{Place, Score, Tables};

/// The rows that a member and its blocks take, at most on average.
const ROWS_PER_MEMBER: usize = 10;

impl<T: Tables> Keys<'_, T> {
    pub(crate) fn run_sorted_set(&mut self, command: &SortedSetCommand) -> Result<KeysReply, T::Error> {
        match command {
            SortedSetCommand::Add { key, members, options, count_changed } => {
                self.add_scores(key, members, *options, *count_changed)
            }
            SortedSetCommand::Increment { key, member, by, options } => self.increment(key, member, *by, *options),
            SortedSetCommand::Remove { key, members } => self.remove_scores(key, members),
            SortedSetCommand::Scores { key, members } => self.scores(key, members),
            SortedSetCommand::Rank { key, member, reverse } => self.rank_of(key, member, *reverse),
            SortedSetCommand::Range { key, range, reverse, offset, limit } => {
                Ok(KeysReply::Scored(to_reply(self.range(key, range, *reverse, *offset, *limit)?)))
            }
            SortedSetCommand::CountRange { key, range } => self.count_range(key, range),
            SortedSetCommand::RemoveRange { key, range } => self.remove_range(key, range),
            SortedSetCommand::Pop { key, count, reverse } => {
                let open = self.typed(key, Kind::SortedSet)?;
                let members = open.map(|open| self.pop_scores(open, *count, *reverse)).transpose()?;
                Ok(KeysReply::Scored(members.unwrap_or_default()))
            }
            SortedSetCommand::PopFirst { keys, count, reverse } => {
                let Some(open) = self.first_of(keys, Kind::SortedSet)? else { return Ok(KeysReply::Missing) };
                let key = open.key.clone();
                Ok(KeysReply::ScoredOf(key, self.pop_scores(open, *count, *reverse)?))
            }
            SortedSetCommand::Scan { key, from, limit } => self.scan_scores(key, from, *limit),
            SortedSetCommand::Draw { key, count, repeats, seed } => self.draw_scores(key, *count, *repeats, *seed),
            SortedSetCommand::StoreRange { key, to, range, reverse, offset, limit } => {
                let members = self.range(key, range, *reverse, *offset, *limit)?;
                self.store_scores(to, &members, KeyEvent::RangeStore)
            }
            SortedSetCommand::Expire { key, members, at, condition, relative } => {
                let at = self.context.time(*at, *relative)?;
                self.charge_members(members.len())?;
                self.expire_fields(key, Kind::SortedSet, members, at, *condition)
            }
            SortedSetCommand::Describe { key, members } => self.describe_members(key, members),
            SortedSetCommand::Combine { operation, sources, aggregate, store } => {
                let members = self.combine_scores(*operation, sources, *aggregate)?;
                match store {
                    Some(to) => self.store_scores(to, &members, stored(*operation)),
                    None => {
                        check_places(&members)?;
                        Ok(KeysReply::Scored(to_reply(members)))
                    }
                }
            }
        }
    }

    fn add_scores(
        &mut self,
        key: &Bytes,
        members: &[(f64, Bytes)],
        options: AddOptions,
        count_changed: bool,
    ) -> Result<KeysReply, T::Error> {
        self.charge_members(members.len())?;
        check_fields(members.iter().map(|(_, member)| member))?;
        let scored = |(score, member): &(f64, Bytes)| Some((Score::new(*score)?, member.clone()));
        let scored: Option<Vec<_>> = members.iter().map(scored).collect();
        let scored = scored.ok_or(KeysError::NotScore)?;
        let found = self.typed(key, Kind::SortedSet)?;
        if scored.is_empty() || (found.is_none() && options.which == Which::Exists) {
            return Ok(KeysReply::Count(0));
        }
        found.as_ref().map_or(Ok(()), |open| self.charge_expiries(&open.row, members.len()))?;
        let mut open = self.found_or_new(found, key, Kind::SortedSet)?;
        let (mut added, mut changed) = (0, 0);
        for (score, member) in scored {
            let old = self.member(&open.row, &member)?;
            let known = self.known(old);
            if applies(options, known, score) && known != Some(score) {
                self.put_score(&mut open, &member, old, score)?;
                added += u64::from(known.is_none());
                changed += 1;
            }
        }
        if changed > 0 {
            self.save(open, &[KeyEvent::ScoreAdd])?;
        }
        Ok(KeysReply::Count(if count_changed { changed } else { added }))
    }

    fn increment(&mut self, key: &Bytes, member: &Bytes, by: f64, options: AddOptions) -> Result<KeysReply, T::Error> {
        self.charge_members(1)?;
        check_fields([member])?;
        let found = self.typed(key, Kind::SortedSet)?;
        found.as_ref().map_or(Ok(()), |open| self.charge_expiries(&open.row, 1))?;
        let old = found.as_ref().map(|open| self.member(&open.row, member)).transpose()?.flatten();
        let known = self.known(old);
        let sum = Score::new(known.map_or(0.0, Score::get) + by).ok_or(KeysError::NotScore)?;
        if !applies(options, known, sum) {
            return Ok(KeysReply::NotApplied);
        }
        if known != Some(sum) {
            let mut open = self.found_or_new(found, key, Kind::SortedSet)?;
            self.put_score(&mut open, member, old, sum)?;
            self.save(open, &[KeyEvent::ScoreIncrement])?;
        }
        Ok(KeysReply::Score(sum.get()))
    }

    fn remove_scores(&mut self, key: &Bytes, members: &[Bytes]) -> Result<KeysReply, T::Error> {
        self.charge_members(members.len())?;
        let Some(mut open) = self.typed(key, Kind::SortedSet)? else { return Ok(KeysReply::Count(0)) };
        self.charge_expiries(&open.row, members.len())?;
        let mut removed = 0;
        for member in members {
            if let Some(found) = self.live_member(&open.row, member)? {
                self.drop_member(&mut open, member, found)?;
                removed += 1;
            }
        }
        if removed > 0 {
            self.save(open, &[KeyEvent::ScoreRemove])?;
        }
        Ok(KeysReply::Count(removed))
    }

    fn scores(&mut self, key: &Bytes, members: &[Bytes]) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(members.len(), 0)?;
        let open = self.typed(key, Kind::SortedSet)?;
        open.as_ref().map_or(Ok(()), |open| self.charge_expiries(&open.row, members.len()))?;
        let mut scores = Vec::with_capacity(members.len());
        for member in members {
            let score = open.as_ref().map(|open| self.live_score(&open.row, member)).transpose()?.flatten();
            scores.push(score.map(Score::get));
        }
        Ok(KeysReply::Scores(scores))
    }

    fn rank_of(&mut self, key: &Bytes, member: &Bytes, reverse: bool) -> Result<KeysReply, T::Error> {
        let Some(set) = self.ordered(key)? else { return Ok(KeysReply::Missing) };
        self.charge_rank(&set.open.row)?;
        let Some(score) = self.tables.score(set.open.id(), member)? else { return Ok(KeysReply::Missing) };
        let place = (score, member.clone());
        if set.is_hidden(&place) {
            return Ok(KeysReply::Missing);
        }
        let rank = self.rank_in(&set, Some(&place))?;
        Ok(KeysReply::Rank(if reverse { set.count() - 1 - rank } else { rank }, score.get()))
    }

    /// Returns the score of a member, unless it has expired.
    fn known(&self, member: Option<Member>) -> Option<Score> {
        member.filter(|member| self.context.is_alive(member.expires_at)).map(|member| member.score)
    }

    /// Takes the steps for members that are added or removed.
    pub(crate) fn charge_members(&mut self, members: usize) -> Result<(), T::Error> {
        Ok(self.context.charge_rows(members.saturating_mul(ROWS_PER_MEMBER), 0)?)
    }

    /// Adds a member, or changes its score, and leaves its expiry. One that has expired starts anew.
    pub(crate) fn put_score(
        &mut self,
        open: &mut Open,
        member: &Bytes,
        old: Option<Member>,
        score: Score,
    ) -> Result<(), T::Error> {
        if let Some(old) = old {
            self.count_removed(open, &(old.score, member.clone()))?;
            if !self.context.is_alive(old.expires_at) {
                self.put_expiry(open, member, old.expires_at, None)?;
            }
        }
        open.row.count += u64::from(old.is_none());
        self.tables.put_member(open.id(), member, score)?;
        self.count_added(open, &(score, member.clone()))
    }

    /// Removes the member at a place.
    pub(crate) fn drop_place(&mut self, open: &mut Open, (score, member): &Place) -> Result<(), T::Error> {
        let found = self.with_expiry(&open.row, member, *score)?;
        self.drop_member(open, member, found)
    }

    /// Removes a member.
    pub(crate) fn drop_member(&mut self, open: &mut Open, member: &Bytes, found: Member) -> Result<(), T::Error> {
        open.row.count -= 1;
        self.put_expiry(open, member, found.expires_at, None)?;
        self.tables.remove_member(open.id(), member)?;
        self.count_removed(open, &(found.score, member.clone()))
    }
}

/// Returns whether a member, with the old score if it exists, gets a new one.
fn applies(options: AddOptions, old: Option<Score>, new: Score) -> bool {
    let is_wanted = match options.which {
        Which::Any => true,
        Which::Missing => old.is_none(),
        Which::Exists => old.is_some(),
    };
    let compares = old.is_none_or(|old| match options.compare {
        Compare::Any => true,
        Compare::Greater => new > old,
        Compare::Less => new < old,
    });
    is_wanted && compares
}
