//! The cursors of scans. In Redis a cursor is a number, and here it is a position, which is bytes. A node remembers the
//! positions of the last cursors that it gave out, for all clients together.
//!
//! A position can't be written as a number: keys are longer than 8 bytes and alike at their beginnings. A table for
//! each connection would fail clients that go on over another connection of a pool, and one without a bound could be
//! filled by clients that never end their scans. So there is one table, with a bound of positions and of bytes.
//! A cursor that is not there (very old, of another node, or of the time before a restart) is an error: the client
//! begins again.
//! Nothing is ever left out silently.
//!
//! # Invariants
//!
//! - A cursor is below 2⁵³, since some clients read it as a double, and is never 0.
//! - It stands for the same position as long as it is known, so a client can read a page again.
//! - The upper bits are drawn at random when a node starts, so that it knows the cursors of another node as foreign.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// The most cursors that a node remembers.
pub const CURSORS_MAX: usize = 64 << 10;

/// The most bytes of the positions of all cursors.
pub const CURSOR_BYTES_MAX: usize = 16 << 20;

/// The bits of a cursor that count; those above are the node's.
const COUNTING_BITS: u32 = 32;

/// The bits of a cursor.
const CURSOR_BITS: u32 = 53;

/// The cursors of a node.
#[derive(Debug)]
pub struct Cursors(Mutex<Table>);

#[derive(Debug)]
struct Table {
    /// The cursor of the first position.
    first: u64,
    positions: VecDeque<Bytes>,
    bytes: usize,
}

impl Cursors {
    /// Returns no cursors.
    pub fn new(seed: u64) -> Self {
        let node = seed % (1 << (CURSOR_BITS - COUNTING_BITS));
        let first = (node << COUNTING_BITS) + 1;
        Self(Mutex::new(Table { first, positions: VecDeque::new(), bytes: 0 }))
    }

    /// Returns a new cursor for a position.
    pub fn add(&self, position: &[u8]) -> u64 {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A copy, since a slice would hold all that it is a slice of.
        table.positions.push_back(Bytes::copy_from_slice(position));
        table.bytes += position.len();
        while table.positions.len() > CURSORS_MAX || (table.bytes > CURSOR_BYTES_MAX && table.positions.len() > 1) {
            table.bytes -= table.positions.pop_front().map_or(0, |old| old.len());
            table.first += 1;
        }
        table.first + table.positions.len() as u64 - 1
    }

    /// Returns the position that a cursor stands for.
    pub fn find(&self, cursor: u64) -> Option<Bytes> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(cursor.checked_sub(table.first)?).ok()?;
        table.positions.get(place).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_stand_for_their_positions_until_many_others_came() {
        let cursors = Cursors::new(u64::MAX);
        let first = cursors.add(b"a");
        assert!(0 < first && first < 1 << CURSOR_BITS);
        assert_eq!(cursors.find(first), Some("a".into()));
        assert_eq!(cursors.find(first), Some("a".into()));
        for _ in 0..CURSORS_MAX {
            cursors.add(b"b");
        }
        assert_eq!(cursors.find(first), None);
        assert_eq!(cursors.find(first + 1), Some("b".into()));
        assert_eq!(cursors.find(0), None);
    }

    #[test]
    fn the_bytes_of_positions_are_limited() {
        let cursors = Cursors::new(0);
        let first = cursors.add(&vec![0; CURSOR_BYTES_MAX]);
        let second = cursors.add(b"b");
        assert_eq!((cursors.find(first), cursors.find(second)), (None, Some("b".into())));
    }
}
