//! Tables that count the rows that they touch.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_keys::*;

/// Tables in memory that count: a row for each that is looked up or changed, or visited, or counted.
#[derive(Default)]
pub struct Counting {
    pub tables: Memory,
    pub rows: u64,
}

type Result<T> = std::result::Result<T, KeysError>;

/// Methods that touch one row.
macro_rules! one_row {
    ($($name:ident($($argument:ident: $of:ty),*) -> $result:ty;)*) => {
        $(fn $name(&mut self, $($argument: $of),*) -> Result<$result> {
            self.rows += 1;
            self.tables.$name($($argument),*)
        })*
    };
}

/// Methods that touch the rows that they visit.
macro_rules! visits {
    ($($name:ident($($argument:ident: $of:ty),*) of $row:ty;)*) => {
        $(fn $name(&mut self, $($argument: $of,)* visit: Visit<'_, $row>) -> Result<()> {
            let rows = &mut self.rows;
            *rows += 1;
            self.tables.$name($($argument,)* &mut |row| {
                *rows += 1;
                visit(row)
            })
        })*
    };
}

impl Tables for Counting {
    type Error = KeysError;

    one_row! {
        new_id() -> Id;
        find_key(space: Space, key: &[u8]) -> Option<KeyRow>;
        key(id: Id) -> Option<(Space, Bytes, KeyRow)>;
        add_key(space: Space, key: &Bytes, row: &KeyRow) -> ();
        update_key(row: &KeyRow) -> ();
        rename_key(id: Id, space: Space, key: &Bytes) -> ();
        remove_key(id: Id) -> ();
        count_keys(space: Space) -> u64;
        detach_keys(space: Space) -> ();
        first_detached() -> Option<KeyRow>;
        element(id: Id, field: &[u8]) -> Option<Element>;
        put_element(id: Id, field: &Bytes, element: &Element) -> ();
        remove_element(id: Id, field: &[u8]) -> ();
        score(id: Id, member: &[u8]) -> Option<Score>;
        put_member(id: Id, member: &Bytes, score: Score) -> ();
        remove_member(id: Id, member: &[u8]) -> ();
        put_block(id: Id, level: u8, from: &Place, count: u64) -> ();
        remove_block(id: Id, level: u8, from: &Place) -> ();
        item(id: Id, position: i64) -> Option<Bytes>;
        put_item(id: Id, position: i64, value: &Bytes) -> ();
        remove_item(id: Id, position: i64) -> ();
        add_due(due: u64, id: Id) -> ();
        remove_due(due: u64, id: Id) -> ();
        first_due() -> Option<(u64, Id)>;
        add_trash(id: Id, kind: Kind) -> ();
        remove_trash(id: Id) -> ();
        first_trash() -> Option<(Id, Kind)>;
    }

    visits! {
        keys(space: Space, span: &Span, order: Order) of (Bytes, KeyRow);
        elements(id: Id, span: &Span, order: Order) of (Bytes, Element);
        expiries(id: Id, order: Order) of (u64, Bytes);
        members(id: Id, span: &Span<Place>, order: Order) of Place;
        scores(id: Id, span: &Span) of (Bytes, Score);
        blocks(id: Id, level: u8, span: &Span<Place>, order: Order) of (Place, u64);
        items(id: Id, span: &Span<i64>, order: Order) of (i64, Bytes);
    }

    fn count_expired(&mut self, id: Id, now: u64) -> Result<u64> {
        let count = self.tables.count_expired(id, now)?;
        self.rows += 1 + count;
        Ok(count)
    }

    fn count_members(&mut self, id: Id, span: &Span<Place>) -> Result<u64> {
        let count = self.tables.count_members(id, span)?;
        self.rows += 1 + count;
        Ok(count)
    }

    fn sum_blocks(&mut self, id: Id, level: u8, span: &Span<Place>) -> Result<u64> {
        let mut sum = 0;
        self.blocks(id, level, span, Order::Up, &mut |(_, count)| {
            sum += count;
            ControlFlow::Continue(())
        })?;
        Ok(sum)
    }

    fn clear(&mut self, part: Part, id: Id, limit: usize) -> Result<usize> {
        let removed = self.tables.clear(part, id, limit)?;
        self.rows += 1 + removed as u64;
        Ok(removed)
    }
}
