//! Commands on ranges of sorted sets.

use std::ops::{Bound, ControlFlow};

use bytes::Bytes;
use quorate_model::keys::{KeyEvent, KeysReply, Order, Page, Range, Span};

use crate::KeysError;
use crate::blocks::{above, from};
use crate::keys::{Keys, Open, ReplyBytes, check_rows};
use crate::limits::{CHANGED_ROWS_MAX, READ_ROWS_MAX};
use crate::ordered::Ordered;
use crate::strings::slice;
use crate::tables::{FIRST_PLACE, Place, Score, Tables, after};

/// The bytes of a score in a reply.
pub(crate) const SCORE_BYTES: usize = 8;

/// The members that are read at once to be removed.
const REMOVED_AT_ONCE: u64 = 256;

/// Members by their ranks: from the first, and below the second.
type Ranks = (u64, u64);

/// Members with their scores.
pub(crate) type Scored = Vec<(Bytes, f64)>;

impl<T: Tables> Keys<'_, T> {
    /// Returns members of a range in their order, or from the last to the first.
    pub(crate) fn range(
        &mut self,
        key: &Bytes,
        range: &Range,
        reverse: bool,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<Place>, T::Error> {
        let Some(set) = self.ordered(key)? else { return Ok(Vec::new()) };
        let order = if reverse { Order::Down } else { Order::Up };
        if !matches!(range, Range::Rank(..)) && offset == 0 {
            let Some(span) = self.span(&set, range)? else { return Ok(Vec::new()) };
            return self.scored(&set, &span, order, limit);
        }
        let count = set.count();
        let (first, last) = self.ranks(&set, range)?;
        let (first, last) = match range {
            Range::Rank(..) if reverse => (count - last, count - first),
            _ => (first, last),
        };
        let limit = limit.min((last - first).saturating_sub(offset));
        if limit == 0 {
            return Ok(Vec::new());
        }
        let start = if reverse { last - 1 - offset } else { first + offset };
        let Some(place) = self.place_in(&set, start)? else { return Ok(Vec::new()) };
        let span = match order {
            Order::Up => from(place),
            Order::Down => Span { from: FIRST_PLACE, to: Some(above(&place)) },
        };
        self.scored(&set, &span, order, limit)
    }

    pub(crate) fn count_range(&mut self, key: &Bytes, range: &Range) -> Result<KeysReply, T::Error> {
        let Some(set) = self.ordered(key)? else { return Ok(KeysReply::Count(0)) };
        let (first, last) = self.ranks(&set, range)?;
        Ok(KeysReply::Count(last - first))
    }

    pub(crate) fn remove_range(&mut self, key: &Bytes, range: &Range) -> Result<KeysReply, T::Error> {
        let Some(mut set) = self.ordered(key)? else { return Ok(KeysReply::Count(0)) };
        let (first, last) = self.ranks(&set, range)?;
        let count = last - first;
        let event = match range {
            Range::Rank(..) => KeyEvent::RankRangeRemove,
            Range::Score(..) => KeyEvent::ScoreRangeRemove,
            Range::Member(..) => KeyEvent::MemberRangeRemove,
        };
        if count == set.count() {
            self.remove(&set.open, &[event, KeyEvent::Delete])?;
            return Ok(KeysReply::Count(count));
        }
        check_rows(count, CHANGED_ROWS_MAX)?;
        self.charge_members(count as usize)?;
        self.charge_expiries(&set.open.row, count as usize)?;
        self.charge_place(&set)?;
        let Some(start) = self.place_in(&set, first)?.filter(|_| count > 0) else {
            return Ok(KeysReply::Count(0));
        };
        let mut left = count;
        while left > 0 {
            let places = self.places(&set, &from(start.clone()), Order::Up, left.min(REMOVED_AT_ONCE))?;
            if places.is_empty() {
                break;
            }
            left -= places.len() as u64;
            for place in &places {
                self.drop_place(&mut set.open, place)?;
            }
        }
        self.save(set.open, &[event])?;
        Ok(KeysReply::Count(count))
    }

    pub(crate) fn pop_scores(&mut self, open: Open, count: u64, reverse: bool) -> Result<Scored, T::Error> {
        let mut set = self.without_expired(open)?;
        let count = count.min(set.count());
        check_rows(count, CHANGED_ROWS_MAX)?;
        self.charge_members(count as usize)?;
        self.charge_expiries(&set.open.row, count as usize)?;
        let order = if reverse { Order::Down } else { Order::Up };
        let places = self.places(&set, &from(FIRST_PLACE), order, count)?;
        check_places(&places)?;
        for place in &places {
            self.drop_place(&mut set.open, place)?;
        }
        if !places.is_empty() {
            self.save(set.open, &[if reverse { KeyEvent::HighestPop } else { KeyEvent::LowestPop }])?;
        }
        Ok(to_reply(places))
    }

    pub(crate) fn scan_scores(&mut self, key: &Bytes, from: &Bytes, limit: u64) -> Result<KeysReply, T::Error> {
        let mut page = Page { rows: Vec::new(), next: None };
        let Some(set) = self.ordered(key)? else { return Ok(KeysReply::ScoredPage(page)) };
        let limit = limit.clamp(1, READ_ROWS_MAX);
        self.context.charge_range(limit.min(set.count()))?;
        let mut bytes = ReplyBytes::default();
        self.tables.scores(set.open.id(), &Span { from: from.clone(), to: None }, &mut |(member, score)| {
            let place = (score, member);
            if set.is_hidden(&place) {
                return ControlFlow::Continue(());
            }
            let (here, flow) = (after(&place.1), bytes.add(place.1.len() + SCORE_BYTES));
            page.rows.push((place.1, score.get()));
            if flow.is_break() || page.rows.len() as u64 >= limit {
                page.next = Some(here);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(KeysReply::ScoredPage(page))
    }

    /// Reads the first members of a span in an order.
    fn scored(&mut self, set: &Ordered, span: &Span<Place>, order: Order, limit: u64) -> Result<Vec<Place>, T::Error> {
        self.context.charge_range(limit.min(set.count()).min(READ_ROWS_MAX))?;
        let places = self.places(set, span, order, limit.min(READ_ROWS_MAX + 1))?;
        check_places(&places)?;
        check_rows(places.len() as u64, READ_ROWS_MAX)?;
        Ok(places)
    }

    /// Returns the ranks of a range.
    fn ranks(&mut self, set: &Ordered, range: &Range) -> Result<Ranks, T::Error> {
        if let Range::Rank(first, last) = range {
            self.charge_place(set)?;
            return Ok(slice(set.count(), *first, *last));
        }
        for _ in 0..2 {
            self.charge_rank(&set.open.row)?;
        }
        let Some(span) = self.span(set, range)? else { return Ok((0, 0)) };
        let first = self.rank_in(set, Some(&span.from))?;
        Ok((first, self.rank_in(set, span.to.as_ref())?))
    }

    /// Returns the span of a range that is not one by ranks; none if it is empty.
    fn span(&mut self, set: &Ordered, range: &Range) -> Result<Option<Span<Place>>, T::Error> {
        let span = match range {
            Range::Rank(..) => None,
            Range::Score(min, max) => score_span(*min, *max),
            Range::Member(min, max) => {
                let lowest = self.places(set, &from(FIRST_PLACE), Order::Up, 1)?;
                lowest.first().map(|(score, _)| member_span(*score, min, max))
            }
        };
        Ok(span.filter(|span| !span.is_empty()))
    }
}

fn score_span(min: Bound<f64>, max: Bound<f64>) -> Option<Span<Place>> {
    let at = |score: Score| (score, Bytes::new());
    let from = match min {
        Bound::Unbounded => FIRST_PLACE,
        Bound::Included(min) => at(Score::new(min)?),
        Bound::Excluded(min) => at(Score::new(min)?.above()?),
    };
    let to = match max {
        Bound::Unbounded => None,
        Bound::Included(max) => Score::new(max)?.above().map(at),
        Bound::Excluded(max) => Some(at(Score::new(max)?)),
    };
    Some(Span { from, to })
}

/// Returns the span of members with a score from one to another.
fn member_span(score: Score, min: &Bound<Bytes>, max: &Bound<Bytes>) -> Span<Place> {
    let from = match min {
        Bound::Unbounded => Bytes::new(),
        Bound::Included(min) => min.clone(),
        Bound::Excluded(min) => after(min),
    };
    let to = match max {
        Bound::Unbounded => score.above().map(|next| (next, Bytes::new())),
        Bound::Included(max) => Some((score, after(max))),
        Bound::Excluded(max) => Some((score, max.clone())),
    };
    Span { from: (score, from), to }
}

/// # Errors
///
/// [`KeysError::ReplyTooLong`], if a reply may not have these.
pub(crate) fn check_places(places: &[Place]) -> Result<(), KeysError> {
    let mut bytes = ReplyBytes::default();
    _ = places.iter().try_for_each(|(_, member)| bytes.add(member.len() + SCORE_BYTES));
    bytes.check()
}

pub(crate) fn to_reply(places: Vec<Place>) -> Scored {
    places.into_iter().map(|(score, member)| (member, score.get())).collect()
}
