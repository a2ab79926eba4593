//! Draws of keys and elements at random, by a seed that the proposer has drawn.
//!
//! A collection of few elements is read whole, so each has the same chance. Of a larger one a window is read: it starts
//! at an element that is found by going down the tree of prefixes, at each step by a random byte. Keys are drawn in the
//! same way, and members of a sorted set by their ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_model::keys::{KeysReply, Order, Span};

use crate::blocks::from;
use crate::generic::Wanted;
use crate::keys::{Keys, Open, ReplyBytes, check_rows};
use crate::limits::{FAIR_DRAW_MAX, NEXT_ROW_STEPS, RANK_STEPS, READ_ROWS_MAX};
use crate::ordered::Ordered;
use crate::ranges::{SCORE_BYTES, check_places, to_reply};
use crate::tables::{FIRST_PLACE, Id, Place, Tables};

/// The elements that a draw from a large collection reads more than it needs.
const WINDOW: u64 = 256;

/// The steps down the tree of prefixes.
const PREFIX_STEPS: usize = 16;

type Row = (Bytes, Bytes);

impl<T: Tables> Keys<'_, T> {
    /// Draws elements. With `repeats` one may be there more than once, else there are no more than exist.
    pub(crate) fn draw(&mut self, open: &Open, count: u64, repeats: bool, seed: u64) -> Result<Vec<Row>, T::Error> {
        let mut random = Random(seed);
        if repeats {
            check_rows(count, READ_ROWS_MAX)?;
        }
        let needed = if repeats { 0 } else { count };
        let is_small = open.row.count <= FAIR_DRAW_MAX;
        let window = if is_small { open.row.count } else { needed.saturating_add(WINDOW) };
        let rows = window.saturating_add(open.row.volatile).min(2 * READ_ROWS_MAX);
        self.context.charge_range(rows.saturating_add(count.min(READ_ROWS_MAX)))?;
        let id = open.id();
        let from = if is_small {
            Bytes::new()
        } else {
            self.random_start(&mut random, |keys, span, order| keys.end_field(id, span, order))?
        };
        let mut rows = self.page(open.id(), Span { from: from.clone(), to: None }, window)?.rows;
        let missing = window.saturating_sub(rows.len() as u64);
        if !from.is_empty() && missing > 0 {
            rows.extend(self.page(open.id(), Span { from: Bytes::new(), to: Some(from) }, missing)?.rows);
        }
        let drawn = if repeats { with_repeats(&rows, count, &mut random) } else { some_of(rows, count, &mut random) };
        let mut bytes = ReplyBytes::default();
        _ = drawn.iter().try_for_each(|(field, value)| bytes.add(field.len() + value.len()));
        bytes.check()?;
        Ok(drawn)
    }

    /// Draws members of a sorted set, each by its rank, or all of them in one reading of the set if that costs less.
    pub(crate) fn draw_scores(
        &mut self,
        key: &Bytes,
        count: u64,
        repeats: bool,
        seed: u64,
    ) -> Result<KeysReply, T::Error> {
        let Some(set) = self.ordered(key)? else { return Ok(KeysReply::Scored(Vec::new())) };
        let count = if repeats { count } else { count.min(set.count()) };
        check_rows(count, READ_ROWS_MAX)?;
        self.context.charge(count.saturating_mul(NEXT_ROW_STEPS))?;
        let ranks = numbers(set.count(), count, repeats, &mut Random(seed));
        let rows = set.open.row.count;
        let is_read = rows <= READ_ROWS_MAX && rows * NEXT_ROW_STEPS <= count * RANK_STEPS;
        let places = if is_read { self.read_ranks(&set, &ranks)? } else { self.seek_ranks(&set, &ranks)? };
        check_places(&places)?;
        Ok(KeysReply::Scored(to_reply(places)))
    }

    fn seek_ranks(&mut self, set: &Ordered, ranks: &[u64]) -> Result<Vec<Place>, T::Error> {
        let mut places = Vec::new();
        for rank in ranks {
            self.charge_place(set)?;
            places.extend(self.place_in(set, *rank)?);
        }
        Ok(places)
    }

    fn read_ranks(&mut self, set: &Ordered, ranks: &[u64]) -> Result<Vec<Place>, T::Error> {
        self.context.charge_range(set.open.row.count)?;
        let mut found: BTreeMap<u64, Option<Place>> = ranks.iter().map(|rank| (*rank, None)).collect();
        let (mut rank, mut bytes) = (0, ReplyBytes::default());
        self.tables.members(set.open.id(), &from(FIRST_PLACE), Order::Up, &mut |place| {
            if set.is_hidden(&place) {
                return ControlFlow::Continue(());
            }
            let wanted = found.get_mut(&rank);
            rank += 1;
            let Some(wanted) = wanted else { return ControlFlow::Continue(()) };
            let flow = bytes.add(place.1.len() + SCORE_BYTES);
            *wanted = Some(place);
            flow
        })?;
        bytes.check()?;
        Ok(ranks.iter().filter_map(|rank| found.get(rank).cloned().flatten()).collect())
    }

    /// Draws a key of the space.
    pub(crate) fn draw_key(&mut self, seed: u64) -> Result<KeysReply, T::Error> {
        let (count, mut random) = (self.tables.count_keys(self.space)?, Random(seed));
        let from = if count <= FAIR_DRAW_MAX {
            self.key_after(Bytes::new(), random.below(count))?
        } else {
            let start = self.random_start(&mut random, Self::end_key)?;
            self.key_after(start, random.below(WINDOW))?
        };
        let wanted = Wanted { limit: 1, kind: None, values: false };
        for span in [Span { from: from.clone(), to: None }, Span { from: Bytes::new(), to: Some(from) }] {
            if let Some(found) = self.scan(span, Order::Up, &wanted)?.rows.pop() {
                return Ok(KeysReply::Value(found.key));
            }
        }
        Ok(KeysReply::Missing)
    }

    /// Returns a random place among bytes in their order, of which `end` returns the first or the last ones of a span.
    fn random_start(
        &mut self,
        random: &mut Random,
        mut end: impl FnMut(&mut Self, &Span, Order) -> Result<Option<Bytes>, T::Error>,
    ) -> Result<Bytes, T::Error> {
        self.context.charge_rows(3 * PREFIX_STEPS, 0)?;
        let mut span = Span::ALL;
        let mut found = Bytes::new();
        for _ in 0..PREFIX_STEPS {
            let (Some(first), Some(last)) = (end(self, &span, Order::Up)?, end(self, &span, Order::Down)?) else {
                break;
            };
            let common = first.iter().zip(&last).take_while(|(left, right)| left == right).count();
            let byte = |bytes: &Bytes| bytes.get(common).map_or(0, |byte| u64::from(*byte));
            let drawn = byte(&first) + random.below(byte(&last) - byte(&first) + 1);
            let from = [last.slice(..common).as_ref(), &[drawn as u8]].concat().into();
            let Some(here) = end(self, &Span { from, to: span.to }, Order::Up)? else { break };
            span = Span::prefix(&here.slice(..here.len().min(common + 1)));
            found = here;
        }
        Ok(found)
    }

    fn end_field(&mut self, id: Id, span: &Span, order: Order) -> Result<Option<Bytes>, T::Error> {
        let mut end = None;
        self.tables.elements(id, span, order, &mut |(field, _)| {
            end = Some(field);
            ControlFlow::Break(())
        })?;
        Ok(end)
    }

    /// Returns the key after so many others, counted from a place on; that place, if there are not so many.
    fn key_after(&mut self, from: Bytes, mut others: u64) -> Result<Bytes, T::Error> {
        let (span, mut result) = (Span { from, to: None }, Ok(()));
        let (context, mut found) = (&mut *self.context, None);
        self.tables.keys(self.space, &span, Order::Up, &mut |(key, row)| {
            result = context.charge(NEXT_ROW_STEPS).and_then(|()| context.charge_bytes(row.value.len()));
            if others == 0 {
                found = Some(key);
            }
            if others == 0 || result.is_err() {
                return ControlFlow::Break(());
            }
            others -= 1;
            ControlFlow::Continue(())
        })?;
        result?;
        Ok(found.unwrap_or(span.from))
    }

    fn end_key(&mut self, span: &Span, order: Order) -> Result<Option<Bytes>, T::Error> {
        let mut end = None;
        self.tables.keys(self.space, span, order, &mut |(key, row)| {
            end = Some((key, row.value.len()));
            ControlFlow::Break(())
        })?;
        let Some((key, bytes)) = end else { return Ok(None) };
        self.context.charge_bytes(bytes)?;
        Ok(Some(key))
    }
}

/// Takes rows out in a random order.
fn some_of(mut rows: Vec<Row>, count: u64, random: &mut Random) -> Vec<Row> {
    let count = (count as usize).min(rows.len());
    (0..count).map(|_| rows.swap_remove(random.below(rows.len() as u64) as usize)).collect()
}

fn with_repeats(rows: &[Row], count: u64, random: &mut Random) -> Vec<Row> {
    (0..count).filter_map(|_| rows.get(random.below(rows.len() as u64) as usize).cloned()).collect()
}

/// Draws numbers below a bound. Without repeats no more than there are, and in their order.
fn numbers(bound: u64, count: u64, repeats: bool, random: &mut Random) -> Vec<u64> {
    if repeats {
        return (0..count).map(|_| random.below(bound)).collect();
    }
    let mut drawn = BTreeSet::new();
    for last in bound.saturating_sub(count)..bound {
        let number = random.below(last + 1);
        drawn.insert(if drawn.contains(&number) { last } else { number });
    }
    drawn.into_iter().collect()
}

/// The generator SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`; 0 if that is 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
