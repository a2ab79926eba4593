//! Combinations of sorted sets, and of sets, whose members have the score 1; and sorted sets that are stored whole.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_model::keys::{Aggregate, KeyEvent, KeysReply, Kind, Order, SetOperation};

use crate::KeysError;
use crate::blocks::from;
use crate::keys::{Keys, Open, check_keys, check_rows};
use crate::limits::{CHANGED_ROWS_MAX, READ_ROWS_MAX};
use crate::ranges::check_places;
use crate::tables::{FIRST_PLACE, Place, Score, Tables};

/// A set of either kind, and what its scores are multiplied by.
struct Source {
    open: Open,
    weight: f64,
}

impl Source {
    fn weighted(&self, score: Score) -> Score {
        score_or_zero(self.weight * score.get())
    }
}

impl<T: Tables> Keys<'_, T> {
    /// Returns the members of a combination in their order.
    pub(crate) fn combine_scores(
        &mut self,
        operation: SetOperation,
        sources: &[(Bytes, f64)],
        aggregate: Aggregate,
    ) -> Result<Vec<Place>, T::Error> {
        self.context.charge_rows(sources.len(), 0)?;
        let mut sets = Vec::with_capacity(sources.len());
        for (key, weight) in sources {
            sets.push(self.source(key, *weight)?);
        }
        let mut places = match operation {
            SetOperation::Union => self.any_scores(&sets.into_iter().flatten().collect::<Vec<_>>(), aggregate)?,
            SetOperation::Intersection => {
                let sets: Option<Vec<_>> = sets.into_iter().collect();
                sets.map(|sets| self.all_scores(&sets, aggregate)).transpose()?.unwrap_or_default()
            }
            SetOperation::Difference => {
                let mut sets = sets.into_iter();
                let Some(first) = sets.next().flatten() else { return Ok(Vec::new()) };
                self.first_scores(&first, &sets.flatten().collect::<Vec<_>>())?
            }
        };
        places.sort_unstable();
        Ok(places)
    }

    /// Stores a sorted set in a key, whatever that holds.
    pub(crate) fn store_scores(
        &mut self,
        to: &Bytes,
        places: &[Place],
        event: KeyEvent,
    ) -> Result<KeysReply, T::Error> {
        check_keys(std::slice::from_ref(to))?;
        check_rows(places.len() as u64, CHANGED_ROWS_MAX)?;
        self.charge_members(places.len())?;
        if places.is_empty() {
            self.find(to)?.map_or(Ok(()), |open| self.remove(&open, &[KeyEvent::Delete]))?;
            return Ok(KeysReply::Count(0));
        }
        let mut open = self.create(self.space, to, Kind::SortedSet)?;
        for (score, member) in places {
            self.put_score(&mut open, member, None, *score)?;
        }
        self.save(open, &[event])?;
        Ok(KeysReply::Count(places.len() as u64))
    }

    fn source(&mut self, key: &Bytes, weight: f64) -> Result<Option<Source>, T::Error> {
        let Some(open) = self.find(key)? else { return Ok(None) };
        match open.row.kind {
            Kind::Set | Kind::SortedSet => Ok(Some(Source { open, weight })),
            Kind::String | Kind::Hash | Kind::List => Err(KeysError::WrongType.into()),
        }
    }

    /// Returns the members of any set.
    fn any_scores(&mut self, sets: &[Source], aggregate: Aggregate) -> Result<Vec<Place>, T::Error> {
        let rows = sets.iter().fold(0, |rows: u64, set| rows.saturating_add(set.open.row.count));
        check_rows(rows, READ_ROWS_MAX)?;
        let mut members = BTreeMap::new();
        for set in sets {
            for (score, member) in self.scores_of(&set.open)? {
                let score = set.weighted(score);
                members.entry(member).and_modify(|old| *old = together(*old, score, aggregate)).or_insert(score);
            }
        }
        Ok(members.into_iter().map(|(member, score)| (score, member)).collect())
    }

    /// Returns the members that all sets have. Their scores are put together in the order of the sets, so that they do
    /// not depend on the sizes, which change when what has expired is swept.
    fn all_scores(&mut self, sets: &[Source], aggregate: Aggregate) -> Result<Vec<Place>, T::Error> {
        let Some(smallest) = sets.iter().min_by_key(|set| set.open.row.count) else { return Ok(Vec::new()) };
        self.charge_lookups(&smallest.open, sets.len() - 1, sets)?;
        let mut places = Vec::new();
        'members: for (known, member) in self.scores_of(&smallest.open)? {
            let mut all = None;
            for set in sets {
                let is_known = set.open.id() == smallest.open.id();
                let found = if is_known { Some(known) } else { self.score_in(&set.open, &member)? };
                let Some(score) = found.map(|score| set.weighted(score)) else { continue 'members };
                all = Some(all.map_or(score, |all| together(all, score, aggregate)));
            }
            places.extend(all.map(|score| (score, member)));
        }
        Ok(places)
    }

    /// Returns the members of the first set that none of the others has.
    fn first_scores(&mut self, first: &Source, others: &[Source]) -> Result<Vec<Place>, T::Error> {
        self.charge_lookups(&first.open, others.len(), others)?;
        let mut places = Vec::new();
        'members: for (score, member) in self.scores_of(&first.open)? {
            for other in others {
                if self.score_in(&other.open, &member)?.is_some() {
                    continue 'members;
                }
            }
            places.push((first.weighted(score), member));
        }
        Ok(places)
    }

    /// Takes the steps to look up each member of a set in so many others of these.
    fn charge_lookups(&mut self, set: &Open, others: usize, sets: &[Source]) -> Result<(), T::Error> {
        let lookups = set.row.count.saturating_mul(others as u64);
        check_rows(set.row.count.saturating_add(lookups), READ_ROWS_MAX)?;
        self.context.charge_rows(lookups as usize, 0)?;
        let sorted = sets.iter().filter(|other| other.open.row.kind == Kind::SortedSet);
        sorted.into_iter().try_for_each(|other| self.charge_expiries(&other.open.row, set.row.count as usize))
    }

    fn scores_of(&mut self, set: &Open) -> Result<Vec<Place>, T::Error> {
        if set.row.kind == Kind::Set {
            let one = score_or_zero(1.0);
            return Ok(self.members_of(set)?.into_iter().map(|member| (one, member)).collect());
        }
        self.context.charge_range(set.row.count)?;
        let set = self.without_expired(set.clone())?;
        let places = self.places(&set, &from(FIRST_PLACE), Order::Up, u64::MAX)?;
        check_places(&places)?;
        Ok(places)
    }

    fn score_in(&mut self, set: &Open, member: &Bytes) -> Result<Option<Score>, T::Error> {
        if set.row.kind == Kind::Set {
            return Ok(self.live_element(set.id(), member)?.map(|_| score_or_zero(1.0)));
        }
        self.live_score(&set.row, member)
    }
}

/// Returns the event that a combination was stored.
pub(crate) fn stored(operation: SetOperation) -> KeyEvent {
    match operation {
        SetOperation::Union => KeyEvent::ScoreUnion,
        SetOperation::Intersection => KeyEvent::ScoreIntersection,
        SetOperation::Difference => KeyEvent::ScoreDifference,
    }
}

/// Returns what becomes of two scores of a member.
fn together(left: Score, right: Score, aggregate: Aggregate) -> Score {
    match aggregate {
        Aggregate::Sum => score_or_zero(left.get() + right.get()),
        Aggregate::Lowest => left.min(right),
        Aggregate::Highest => left.max(right),
    }
}

fn score_or_zero(number: f64) -> Score {
    Score::new(number).unwrap_or_default()
}
