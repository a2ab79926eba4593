//! Random choices for generators of statements. Equal seeds make equal choices.

#![allow(clippy::indexing_slicing, reason = "a generator may panic")]

use quorate_env::Rng;

/// A source of random choices.
pub struct Dice(pub Rng);

impl Dice {
    pub fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Returns true in `percent` of 100 cases.
    pub fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn index(&self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Returns one of the items; `None` if there are none.
    pub fn pick<'a, T>(&self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }

    /// Returns one of the items, of which there must be at least one.
    pub fn one<T: Copy>(&self, items: &[T]) -> T {
        items[self.index(items.len())]
    }
}
