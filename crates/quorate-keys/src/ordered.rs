//! Sorted sets as commands on their order see them: without the members that have expired and were not swept.
//!
//! Blocks count these members, too, as the tables have them. So their places are read first: a rank is that in the
//! tables without the hidden ones below, and a member is found by its rank after a search among them. That costs
//! nothing in a set of which no member may expire, and one row while none has.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::keys::{Kind, Order, Span};

use crate::KeysError;
use crate::keys::{Keys, Open, ReplyBytes};
use crate::limits::READ_ROWS_MAX;
use crate::ranges::SCORE_BYTES;
use crate::tables::{Id, Place, Tables};

/// A sorted set, and the places of its members that have expired.
pub(crate) struct Ordered {
    pub(crate) open: Open,
    hidden: Vec<Place>,
}

impl Ordered {
    /// Returns the number of members that exist.
    pub(crate) fn count(&self) -> u64 {
        self.open.row.count.saturating_sub(self.hidden.len() as u64)
    }

    /// Returns whether the member at a place has expired.
    pub(crate) fn is_hidden(&self, place: &Place) -> bool {
        self.hidden.binary_search(place).is_ok()
    }

    fn hidden_below(&self, place: &Place) -> u64 {
        if Mutant::ExpiredIsRanked.is_on() {
            return 0;
        }
        self.hidden.partition_point(|hidden| hidden < place) as u64
    }
}

impl<T: Tables> Keys<'_, T> {
    /// Returns the sorted set of a key that exists.
    pub(crate) fn ordered(&mut self, key: &Bytes) -> Result<Option<Ordered>, T::Error> {
        self.typed(key, Kind::SortedSet)?.map(|open| self.without_expired(open)).transpose()
    }

    /// Finds out what has expired of a sorted set.
    pub(crate) fn without_expired(&mut self, open: Open) -> Result<Ordered, T::Error> {
        let members = if open.row.volatile > 0 { self.expired_members(open.id())? } else { Vec::new() };
        let mut hidden = Vec::with_capacity(members.len());
        for member in members {
            let score = self.tables.score(open.id(), &member)?;
            hidden.extend(score.map(|score| (score, member)));
        }
        hidden.sort_unstable();
        Ok(Ordered { open, hidden })
    }

    /// Returns the members that have expired, and takes the steps to look each up and to pass over it once.
    fn expired_members(&mut self, id: Id) -> Result<Vec<Bytes>, T::Error> {
        let (mut members, mut bytes) = (Vec::new(), ReplyBytes::default());
        let (context, mut result) = (&mut *self.context, Ok(()));
        self.tables.expiries(id, Order::Up, &mut |(at, member)| {
            if at > context.now {
                return ControlFlow::Break(());
            }
            let is_full = members.len() as u64 >= READ_ROWS_MAX || bytes.add(member.len()).is_break();
            members.push(member);
            result = if is_full { Err(KeysError::TooManyExpired) } else { context.charge_rows(2, 0) };
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result?;
        Ok(members)
    }

    /// Takes the steps to find a member by its rank.
    pub(crate) fn charge_place(&mut self, set: &Ordered) -> Result<(), T::Error> {
        let searched = usize::BITS - set.hidden.len().leading_zeros();
        (0..=searched).try_for_each(|_| self.charge_rank(&set.open.row))
    }

    /// Counts the members below a place, or all members if no place is given.
    pub(crate) fn rank_in(&mut self, set: &Ordered, below: Option<&Place>) -> Result<u64, T::Error> {
        let Some(place) = below else { return Ok(set.count()) };
        Ok(self.rank(&set.open.row, place)?.saturating_sub(set.hidden_below(place)))
    }

    /// Returns the place of the member with a rank.
    pub(crate) fn place_in(&mut self, set: &Ordered, rank: u64) -> Result<Option<Place>, T::Error> {
        // How many of the hidden ones are below it: those that have at most as many others below them.
        let (mut passed, mut left) = (0, set.hidden.as_slice());
        while let (below, [hidden, above @ ..]) = left.split_at(left.len() / 2) {
            let before = passed + below.len() as u64;
            if self.rank(&set.open.row, hidden)?.saturating_sub(before) <= rank {
                (passed, left) = (before + 1, above);
            } else {
                left = below;
            }
        }
        self.place_at(&set.open.row, rank.saturating_add(passed))
    }

    /// Returns the first members of a span in an order; no more than that reach the size of a reply.
    pub(crate) fn places(
        &mut self,
        set: &Ordered,
        span: &Span<Place>,
        order: Order,
        limit: u64,
    ) -> Result<Vec<Place>, T::Error> {
        let (mut places, mut bytes) = (Vec::new(), ReplyBytes::default());
        if limit == 0 {
            return Ok(places);
        }
        self.tables.members(set.open.id(), span, order, &mut |place| {
            if set.is_hidden(&place) {
                return ControlFlow::Continue(());
            }
            let flow = bytes.add(place.1.len() + SCORE_BYTES);
            places.push(place);
            if places.len() as u64 >= limit { ControlFlow::Break(()) } else { flow }
        })?;
        Ok(places)
    }
}
