//! The tables that the logic runs on, and their rows.
//!
//! # Layout
//!
//! | table | row | found by |
//! |---|---|---|
//! | spaces | the number of its keys, and a generation | space |
//! | keys | [`KeyRow`] with its space and key | (space, key), and id |
//! | elements of hashes and sets, expiries in sorted sets | [`Element`] | (id, field), and (id, expiry) if it has one |
//! | members of sorted sets | score | (id, member), and (id, score, member) |
//! | blocks of sorted sets | count | (id, level, score, member) |
//! | items of lists | value | (id, position) |
//! | due | | (due, id) |
//! | trash | kind | id |
//!
//! # Invariants
//!
//! - All that belongs to a collection is found by the id of its key's row. Ids are never reused, so a collection is
//!   deleted at once by deleting its key's row, and its id goes to the trash until [`Tables::clear`] has removed the
//!   rest.
//! - Where a key is found by its space, that stands for the generation of the space. So a space is emptied at once by
//!   giving it a new generation; the keys of the old one are left to the sweep.
//! - No method changes more rows than it names, and that of a space whose number of keys changes. Each reads as many as
//!   its caller asks for: a range is read row by row until the [visitor](Visit) breaks.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_model::keys::{Kind, Order, Space, Span, Version};

use crate::KeysError;

/// The id of a row of keys, from 1; never reused.
pub type Id = u64;

/// The row of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its id.
    pub id: Id,
    /// What the key holds.
    pub kind: Kind,
    /// The version of the last change.
    pub version: Version,
    /// When the key expires.
    pub expires_at: Option<u64>,
    /// The time of the key's only row in the table of due times, if it has one. It is not later than anything of the
    /// key expires, but may be earlier.
    pub due: Option<u64>,
    /// The number of elements, members or items in the tables, with those that have expired; 0 for a string.
    pub count: u64,
    /// The number of elements, or members of a sorted set, that have an expiry.
    pub volatile: u64,
    /// The position of a list's first item. 1 for a sorted set that has blocks. Else 0.
    pub head: i64,
    /// The value of a string; else empty.
    pub value: Bytes,
}

/// An element of a hash or a set; or of a sorted set, beside the score of a member that has an expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The version of its last change.
    pub version: Version,
    /// When it expires.
    pub expires_at: Option<u64>,
    /// Its value; empty in a set and in a sorted set.
    pub value: Bytes,
}

/// The score of a member: a double that is not NaN, and 0 rather than -0, so that equal scores have equal bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score(f64);

impl Score {
    /// Returns a number as a score, unless it is NaN.
    pub fn new(number: f64) -> Option<Self> {
        // -0 + 0 is 0.
        (!number.is_nan()).then_some(Self(number + 0.0))
    }

    /// Returns the number.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns the next larger score; none after infinity.
    pub fn above(self) -> Option<Self> {
        (self.0 < f64::INFINITY).then(|| Self(self.0.next_up() + 0.0))
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The place of a member in a sorted set: its score, then its bytes.
pub type Place = (Score, Bytes);

/// The lowest place.
pub const FIRST_PLACE: Place = (Score(f64::NEG_INFINITY), Bytes::new());

/// Returns the lowest bytes above others.
pub fn after(bytes: &[u8]) -> Bytes {
    [bytes, &[0]].concat().into()
}

/// What gets the rows of a range, one after the other, until it breaks.
pub type Visit<'a, R> = &'a mut dyn FnMut(R) -> ControlFlow<()>;

/// One of the tables that hold parts of collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Elements of hashes and sets, and expiries of members of sorted sets.
    Elements,
    /// Members of sorted sets.
    Members,
    /// Blocks of sorted sets.
    Blocks,
    /// Items of lists.
    Items,
}

/// The tables. Each method is one prepared statement, or one for each [`Order`] or [`Part`].
///
/// A span is a range of row values, such as `(key_id, field) >= (?1, ?2) AND (key_id, field) < (?3, ?4)`: SQLite seeks
/// by both ends of it. Where `to` is missing, the second one starts with the next id, `(?1 + 1, x'')`.
///
/// A method fails only by trouble of the node itself; a row that is not there is no error.
pub trait Tables {
    /// Trouble with the tables, or a command that failed.
    type Error: From<KeysError>;

    /// Returns an id that was never returned before. A counter.
    fn new_id(&mut self) -> Result<Id, Self::Error>;

    /// Returns the row of a key. By (space, key).
    fn find_key(&mut self, space: Space, key: &[u8]) -> Result<Option<KeyRow>, Self::Error>;

    /// Returns the row with an id, with its space and key. By id.
    fn key(&mut self, id: Id) -> Result<Option<(Space, Bytes, KeyRow)>, Self::Error>;

    /// Adds the row of a key; there is none under this id or key. `INSERT`.
    fn add_key(&mut self, space: Space, key: &Bytes, row: &KeyRow) -> Result<(), Self::Error>;

    /// Changes the row with the id of `row`. `UPDATE` by id.
    fn update_key(&mut self, row: &KeyRow) -> Result<(), Self::Error>;

    /// Moves the row with an id to a key that has none. `UPDATE` by id.
    fn rename_key(&mut self, id: Id, space: Space, key: &Bytes) -> Result<(), Self::Error>;

    /// Removes the row with an id. `DELETE` by id.
    fn remove_key(&mut self, id: Id) -> Result<(), Self::Error>;

    /// Returns the number of keys of a space. By space.
    fn count_keys(&mut self, space: Space) -> Result<u64, Self::Error>;

    /// Takes all keys from a space. They are found by [`Tables::first_detached`] only, and removed by their ids.
    /// `UPDATE` of the row of the space: it has a generation that is new, and no keys.
    fn detach_keys(&mut self, space: Space) -> Result<(), Self::Error>;

    /// Returns the row of a key that was taken from its space; without its value, which nobody needs. The first one of
    /// the first generation that is not one of a space.
    fn first_detached(&mut self) -> Result<Option<KeyRow>, Self::Error>;

    /// Visits the keys of a span. By (space, key).
    fn keys(
        &mut self,
        space: Space,
        span: &Span,
        order: Order,
        visit: Visit<'_, (Bytes, KeyRow)>,
    ) -> Result<(), Self::Error>;

    /// Returns an element. By (id, field).
    fn element(&mut self, id: Id, field: &[u8]) -> Result<Option<Element>, Self::Error>;

    /// Adds or changes an element. UPSERT by (id, field).
    fn put_element(&mut self, id: Id, field: &Bytes, element: &Element) -> Result<(), Self::Error>;

    /// Removes an element. `DELETE` by (id, field).
    fn remove_element(&mut self, id: Id, field: &[u8]) -> Result<(), Self::Error>;

    /// Visits the elements of a span. By (id, field).
    fn elements(
        &mut self,
        id: Id,
        span: &Span,
        order: Order,
        visit: Visit<'_, (Bytes, Element)>,
    ) -> Result<(), Self::Error>;

    /// Visits the fields that have an expiry in the order of that, and then of their bytes. By (id, expiry).
    fn expiries(&mut self, id: Id, order: Order, visit: Visit<'_, (u64, Bytes)>) -> Result<(), Self::Error>;

    /// Counts the elements that expire at `now` or earlier. By (id, expiry); reads a row for each of them.
    fn count_expired(&mut self, id: Id, now: u64) -> Result<u64, Self::Error>;

    /// Returns the score of a member. By (id, member).
    fn score(&mut self, id: Id, member: &[u8]) -> Result<Option<Score>, Self::Error>;

    /// Adds a member, or changes its score. UPSERT by (id, member).
    fn put_member(&mut self, id: Id, member: &Bytes, score: Score) -> Result<(), Self::Error>;

    /// Removes a member. `DELETE` by (id, member).
    fn remove_member(&mut self, id: Id, member: &[u8]) -> Result<(), Self::Error>;

    /// Visits the members of a span. By (id, score, member).
    fn members(&mut self, id: Id, span: &Span<Place>, order: Order, visit: Visit<'_, Place>)
    -> Result<(), Self::Error>;

    /// Visits the members of a span in the order of their bytes, with their scores. By (id, member).
    fn scores(&mut self, id: Id, span: &Span, visit: Visit<'_, (Bytes, Score)>) -> Result<(), Self::Error>;

    /// Counts the members of a span. By (id, score, member); reads a row for each of them.
    fn count_members(&mut self, id: Id, span: &Span<Place>) -> Result<u64, Self::Error>;

    /// Adds or changes the block that starts at a place. UPSERT by (id, level, score, member).
    fn put_block(&mut self, id: Id, level: u8, from: &Place, count: u64) -> Result<(), Self::Error>;

    /// Removes the block that starts at a place. `DELETE` by (id, level, score, member).
    fn remove_block(&mut self, id: Id, level: u8, from: &Place) -> Result<(), Self::Error>;

    /// Visits the blocks that start in a span, each with its count. By (id, level, score, member).
    fn blocks(
        &mut self,
        id: Id,
        level: u8,
        span: &Span<Place>,
        order: Order,
        visit: Visit<'_, (Place, u64)>,
    ) -> Result<(), Self::Error>;

    /// Adds up the counts of the blocks that start in a span. By (id, level, score, member); reads a row for each.
    fn sum_blocks(&mut self, id: Id, level: u8, span: &Span<Place>) -> Result<u64, Self::Error>;

    /// Returns the item at a position. By (id, position).
    fn item(&mut self, id: Id, position: i64) -> Result<Option<Bytes>, Self::Error>;

    /// Adds or changes the item at a position. UPSERT by (id, position).
    fn put_item(&mut self, id: Id, position: i64, value: &Bytes) -> Result<(), Self::Error>;

    /// Removes the item at a position. `DELETE` by (id, position).
    fn remove_item(&mut self, id: Id, position: i64) -> Result<(), Self::Error>;

    /// Visits the items of a span with their positions. By (id, position).
    fn items(
        &mut self,
        id: Id,
        span: &Span<i64>,
        order: Order,
        visit: Visit<'_, (i64, Bytes)>,
    ) -> Result<(), Self::Error>;

    /// Adds a row of due times that is not there. `INSERT` of (due, id).
    fn add_due(&mut self, due: u64, id: Id) -> Result<(), Self::Error>;

    /// Removes a row of due times. `DELETE` by (due, id).
    fn remove_due(&mut self, due: u64, id: Id) -> Result<(), Self::Error>;

    /// Returns the earliest row of due times. By (due, id).
    fn first_due(&mut self) -> Result<Option<(u64, Id)>, Self::Error>;

    /// Adds an id to the trash, with what its key held. `INSERT` by id.
    fn add_trash(&mut self, id: Id, kind: Kind) -> Result<(), Self::Error>;

    /// Removes an id from the trash. `DELETE` by id.
    fn remove_trash(&mut self, id: Id) -> Result<(), Self::Error>;

    /// Returns the lowest id in the trash. By id.
    fn first_trash(&mut self) -> Result<Option<(Id, Kind)>, Self::Error>;

    /// Removes the first rows of an id from a table, at most `limit`, and returns how many these were. `DELETE` of the
    /// rows of the id up to the one that a subquery finds by `LIMIT 1 OFFSET limit - 1`, or of all.
    fn clear(&mut self, part: Part, id: Id, limit: usize) -> Result<usize, Self::Error>;
}
