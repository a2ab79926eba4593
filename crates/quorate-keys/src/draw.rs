//! Draws of elements at random, by a seed that the proposer has drawn.
//!
//! A collection of few elements is read whole, so each has the same chance. Of a larger one a window is read: it starts
//! at an element that is found by going down the tree of prefixes, at each step by a random byte.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_model::keys::{Order, Span};

use crate::keys::{Keys, Open, ReplyBytes, check_rows};
use crate::limits::{FAIR_DRAW_MAX, READ_ROWS_MAX};
use crate::tables::{Id, Tables};

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
        let from = if is_small { Bytes::new() } else { self.random_field(open.id(), &mut random)? };
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

    /// Returns the start of a random field.
    fn random_field(&mut self, id: Id, random: &mut Random) -> Result<Bytes, T::Error> {
        self.context.charge_rows(2 * PREFIX_STEPS, 0)?;
        let mut span = Span::ALL;
        let mut found = Bytes::new();
        for _ in 0..PREFIX_STEPS {
            let (Some(first), Some(last)) = (self.end(id, &span, Order::Up)?, self.end(id, &span, Order::Down)?) else {
                break;
            };
            let common = first.iter().zip(&last).take_while(|(left, right)| left == right).count();
            let byte = |field: &Bytes| field.get(common).map_or(0, |byte| u64::from(*byte));
            let drawn = byte(&first) + random.below(byte(&last) - byte(&first) + 1);
            let from = [last.slice(..common).as_ref(), &[drawn as u8]].concat().into();
            let Some(here) = self.end(id, &Span { from, to: span.to }, Order::Up)? else { break };
            span = Span::prefix(&here.slice(..here.len().min(common + 1)));
            found = here;
        }
        Ok(found)
    }

    fn end(&mut self, id: Id, span: &Span, order: Order) -> Result<Option<Bytes>, T::Error> {
        let mut end = None;
        self.tables.elements(id, span, order, &mut |(field, _)| {
            end = Some(field);
            ControlFlow::Break(())
        })?;
        Ok(end)
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
