//! Ranks in sorted sets, by blocks that count members.
//!
//! A block starts at a place and reaches to the next one of its level. Blocks of level 0 have up to 512 members, those
//! of level 1 up to 65,536, and start where one of level 0 starts. So a rank is a sum over the blocks of level 1 before
//! its own, those of level 0 in that, and the members in the last one. Members that have expired are counted until they
//! are swept; [`ordered`](crate::ordered) leaves them out.
//!
//! # Invariants
//!
//! - A set that never had more members than one block has none, and is counted itself; [`KeyRow::head`] says so.
//! - Else the first block of each level starts at the lowest place, and the counts of each level add up to the set's.
//! - Each start of level 1 is one of level 0; so that block stays when it is empty.
//! - A block that has lost three quarters is merged with a neighbour, unless both together are too large; an empty one
//!   is always. So two
//!   neighbours of level 0 below the same block of level 1 have more than 128 members together.
//!
//! [`KeyRow::head`]: crate::KeyRow::head

use std::ops::ControlFlow;

use quorate_env::mutant::Mutant;
use quorate_model::keys::{Order, Span};

use crate::keys::{Keys, Open};
use crate::limits::RANK_STEPS;
use crate::tables::{FIRST_PLACE, Id, KeyRow, Place, Tables, after};

/// The most members of a block, by level.
pub const BLOCK_MEMBERS_MAX: [u64; 2] = [512, 65_536];

/// The members of a set for which one more row of blocks is read, as a power of two.
const MEMBERS_PER_ROW_BITS: u32 = 14;

/// A block: where it starts, and the number of its members.
type Block = (Place, u64);

impl<T: Tables> Keys<'_, T> {
    /// Takes the steps of a rank.
    pub(crate) fn charge_rank(&mut self, row: &KeyRow) -> Result<(), T::Error> {
        Ok(self.context.charge(RANK_STEPS + (row.count >> MEMBERS_PER_ROW_BITS))?)
    }

    /// Returns the number of members below a place.
    pub(crate) fn rank(&mut self, row: &KeyRow, place: &Place) -> Result<u64, T::Error> {
        if row.head == 0 {
            return self.tables.count_members(row.id, &to(FIRST_PLACE, place));
        }
        let Some((large, _)) = self.floor(row.id, 1, place)? else { return Ok(0) };
        let Some((small, _)) = self.floor(row.id, 0, place)? else { return Ok(0) };
        let before = self.tables.sum_blocks(row.id, 1, &to(FIRST_PLACE, &large))?;
        let within = self.tables.sum_blocks(row.id, 0, &to(large, &small))?;
        Ok(before + within + self.tables.count_members(row.id, &to(small, place))?)
    }

    /// Returns the place of the member with a rank.
    pub(crate) fn place_at(&mut self, row: &KeyRow, mut rank: u64) -> Result<Option<Place>, T::Error> {
        let mut start = FIRST_PLACE;
        if row.head != 0 {
            for level in [1, 0] {
                self.tables.blocks(row.id, level, &from(start.clone()), Order::Up, &mut |(place, count)| {
                    start = place;
                    if rank < count {
                        return ControlFlow::Break(());
                    }
                    rank -= count;
                    ControlFlow::Continue(())
                })?;
            }
        }
        self.nth_member(row.id, start, rank)
    }

    /// Counts a member that was added to the members of a set, whose row counts it already.
    pub(crate) fn count_added(&mut self, open: &mut Open, place: &Place) -> Result<(), T::Error> {
        let id = open.id();
        if open.row.head != 0 {
            for level in [0, 1] {
                self.recount(id, level, place, 1)?;
            }
        } else if open.row.count > most(0) {
            open.row.head = 1;
            for level in [1, 0] {
                self.tables.put_block(id, level, &FIRST_PLACE, open.row.count)?;
            }
            self.split(id, 0, (FIRST_PLACE, open.row.count))?;
        }
        Ok(())
    }

    /// Counts a member that is removed from a set.
    pub(crate) fn count_removed(&mut self, open: &Open, place: &Place) -> Result<(), T::Error> {
        if open.row.head != 0 && !Mutant::RemovedIsRanked.is_on() {
            for level in [0, 1] {
                self.recount(open.id(), level, place, -1)?;
            }
        }
        Ok(())
    }

    fn recount(&mut self, id: Id, level: u8, place: &Place, by: i64) -> Result<(), T::Error> {
        let Some((start, count)) = self.floor(id, level, place)? else { return Ok(()) };
        let count = count.saturating_add_signed(by);
        self.tables.put_block(id, level, &start, count)?;
        if count > most(level) {
            self.split(id, level, (start, count))
        } else if by < 0 && count <= most(level) / 4 {
            self.shrink(id, level, (start, count))
        } else {
            Ok(())
        }
    }

    /// Splits a block into two halves.
    fn split(&mut self, id: Id, level: u8, (start, count): Block) -> Result<(), T::Error> {
        let half = count / 2;
        let middle = if level == 0 {
            self.nth_member(id, start.clone(), half)?.map(|place| (place, half))
        } else {
            self.block_after(id, &start, half)?
        };
        let Some((middle, left)) = middle else { return Ok(()) };
        self.tables.put_block(id, level, &start, left)?;
        self.tables.put_block(id, level, &middle, count - left)
    }

    /// Returns the first start of level 0 before which there are so many members from `start` on, and how many.
    fn block_after(&mut self, id: Id, start: &Place, members: u64) -> Result<Option<Block>, T::Error> {
        let (mut sum, mut found) = (0, None);
        self.tables.blocks(id, 0, &from(start.clone()), Order::Up, &mut |(place, count)| {
            if sum >= members {
                found = Some((place, sum));
                return ControlFlow::Break(());
            }
            sum += count;
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Merges a block that has few members with one of its neighbours, if that is small enough.
    fn shrink(&mut self, id: Id, level: u8, block: Block) -> Result<(), T::Error> {
        let before = if self.is_fixed(id, level, &block.0)? { None } else { self.below(id, level, &block.0)? };
        if let Some(before) = before
            && fit(level, before.1, block.1)
        {
            return self.merge(id, level, before, block);
        }
        let Some(next) = self.first_from(id, level, above(&block.0))? else { return Ok(()) };
        if fit(level, block.1, next.1) && !self.is_fixed(id, level, &next.0)? {
            return self.merge(id, level, block, next);
        }
        Ok(())
    }

    /// Merges a block with the next one.
    fn merge(&mut self, id: Id, level: u8, block: Block, next: Block) -> Result<(), T::Error> {
        self.tables.remove_block(id, level, &next.0)?;
        self.tables.put_block(id, level, &block.0, block.1 + next.1)?;
        if level == 0 {
            return Ok(());
        }
        // The block of level 0 at the same place need not stay any more.
        match self.first_from(id, 0, next.0)? {
            Some(small) if small.1 <= most(0) / 4 => self.shrink(id, 0, small),
            _ => Ok(()),
        }
    }

    /// Returns whether a block has to stay: it starts at the lowest place, or a block of the next level starts with it.
    fn is_fixed(&mut self, id: Id, level: u8, start: &Place) -> Result<bool, T::Error> {
        if *start == FIRST_PLACE || level > 0 {
            return Ok(*start == FIRST_PLACE);
        }
        Ok(self.floor(id, 1, start)?.is_some_and(|(large, _)| large == *start))
    }

    /// Returns the block that a place is in.
    fn floor(&mut self, id: Id, level: u8, place: &Place) -> Result<Option<Block>, T::Error> {
        self.below(id, level, &above(place))
    }

    /// Returns the last block that starts below a place.
    fn below(&mut self, id: Id, level: u8, place: &Place) -> Result<Option<Block>, T::Error> {
        self.end_block(id, level, &to(FIRST_PLACE, place), Order::Down)
    }

    fn first_from(&mut self, id: Id, level: u8, place: Place) -> Result<Option<Block>, T::Error> {
        self.end_block(id, level, &from(place), Order::Up)
    }

    fn end_block(&mut self, id: Id, level: u8, span: &Span<Place>, order: Order) -> Result<Option<Block>, T::Error> {
        let mut found = None;
        self.tables.blocks(id, level, span, order, &mut |block| {
            found = Some(block);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Returns the member after so many others, counted from a place on.
    fn nth_member(&mut self, id: Id, start: Place, mut others: u64) -> Result<Option<Place>, T::Error> {
        let mut found = None;
        self.tables.members(id, &from(start), Order::Up, &mut |place| {
            if others == 0 {
                found = Some(place);
                return ControlFlow::Break(());
            }
            others -= 1;
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// Returns the lowest place above another one.
pub(crate) fn above(place: &Place) -> Place {
    (place.0, after(&place.1))
}

pub(crate) fn from(place: Place) -> Span<Place> {
    Span { from: place, to: None }
}

pub(crate) fn to(from: Place, below: &Place) -> Span<Place> {
    Span { from, to: Some(below.clone()) }
}

/// Returns whether two neighbours are merged. An empty one always is.
fn fit(level: u8, left: u64, right: u64) -> bool {
    left == 0 || right == 0 || left + right <= most(level) / 4 * 3
}

fn most(level: u8) -> u64 {
    let [small, large] = BLOCK_MEMBERS_MAX;
    if level == 0 { small } else { large }
}
