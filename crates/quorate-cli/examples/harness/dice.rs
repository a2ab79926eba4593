//! Random choices, as generators of statements like them. Equal seeds make equal choices.

#![allow(clippy::indexing_slicing, reason = "a generator stops at the first surprise")]

use quorate_env::Rng;

/// Random numbers, as generators like them.
pub struct Dice(pub Rng);

impl Dice {
    pub fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Whether something happens that does in so many of a hundred cases.
    pub fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn index(&self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// One of some; none of nothing.
    pub fn pick<'a, T>(&self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }

    /// One of some, of which there is at least one.
    pub fn one<T: Copy>(&self, items: &[T]) -> T {
        items[self.index(items.len())]
    }
}
