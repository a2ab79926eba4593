//! Records which blocks of a database file were written since the last check.
//!
//! An image is sent while checkpoints write the file. Each image has its [`Marks`]. A write adds marks after it has
//! happened, and the sender takes the marks before it reads. A block that was read torn or old is therefore marked, and
//! is read again.

use std::sync::{Mutex, MutexGuard};

use quorate_env::lock;

/// The size of a block in bytes. Marks count in blocks; a block is the smallest page size of the store's databases.
pub const BLOCK: u64 = 4096;

/// The writes to a file since they were last taken.
#[derive(Debug, Default)]
pub struct Marks(Mutex<Written>);

/// The writes to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Blocks that were written.
    pub blocks: Blocks,
    /// The smallest size to which the file was truncated: everything beyond that has changed too.
    pub cut: Option<u64>,
}

/// A set of blocks, by number from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    words: Vec<u64>,
    count: u64,
}

impl Marks {
    /// Marks the blocks that contain any of the `len` bytes from `at`.
    pub fn add(&self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut written = self.lock();
        for number in at / BLOCK..at.saturating_add(len).div_ceil(BLOCK) {
            written.blocks.insert(number);
        }
    }

    /// Records that the file was truncated to `size`.
    pub fn cut(&self, size: u64) {
        let mut written = self.lock();
        written.cut = Some(written.cut.map_or(size, |cut| cut.min(size)));
    }

    /// Removes all marks and returns them.
    pub fn take(&self) -> Written {
        std::mem::take(&mut *self.lock())
    }

    /// Returns the number of marked blocks.
    pub fn count(&self) -> u64 {
        self.lock().blocks.count
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        lock(&self.0)
    }
}

impl Blocks {
    /// Adds a block.
    pub fn insert(&mut self, number: u64) {
        let Ok(word) = usize::try_from(number / 64) else { return };
        if word >= self.words.len() {
            self.words.resize(word.saturating_add(1), 0);
        }
        if let Some(word) = self.words.get_mut(word) {
            let bit = 1_u64 << (number % 64);
            self.count = self.count.saturating_add(u64::from(*word & bit == 0));
            *word |= bit;
        }
    }

    /// Adds all blocks of another set.
    pub fn merge(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
        self.count = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
    }

    /// Returns the number of blocks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the blocks in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        std::iter::successors(self.next_at(0), |last| self.next_at(last.saturating_add(1)))
    }

    /// Returns the first run of consecutive blocks at or after `from`, cut to `max` blocks: its first number and its
    /// length.
    pub fn next_run(&self, from: u64, max: u64) -> Option<(u64, u64)> {
        let first = self.next_at(from)?;
        let mut len = 1;
        while len < max && self.contains(first.saturating_add(len)) {
            len = len.saturating_add(1);
        }
        Some((first, len))
    }

    fn contains(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok().and_then(|word| self.words.get(word));
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    fn next_at(&self, from: u64) -> Option<u64> {
        let first_word = usize::try_from(from / 64).ok()?;
        for (at, word) in self.words.iter().enumerate().skip(first_word) {
            let word = if at == first_word { word & (u64::MAX << (from % 64)) } else { *word };
            if word != 0 {
                return Some((at as u64).saturating_mul(64).saturating_add(u64::from(word.trailing_zeros())));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_cover_exactly_the_marked_blocks(
            writes in prop::collection::vec((0_u64..2_000_000, 0_u64..70_000), 0..20), max in 1_u64..300,
        ) {
            let marks = Marks::default();
            let mut model = BTreeSet::new();
            for &(at, len) in &writes {
                marks.add(at, len);
                model.extend((at..at + len).step_by(4096).chain((len > 0).then(|| at + len - 1)).map(|at| at / BLOCK));
            }
            prop_assert_eq!(marks.count(), model.len() as u64);
            let blocks = marks.take().blocks;
            prop_assert_eq!(marks.count(), 0);
            let mut found = BTreeSet::new();
            let mut from = 0;
            while let Some((first, len)) = blocks.next_run(from, max) {
                prop_assert!(len <= max && first >= from);
                found.extend(first..first + len);
                from = first + len;
            }
            prop_assert_eq!(found, model);
        }
    }
}
