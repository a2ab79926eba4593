//! Which blocks of a database file were written since one last looked.
//!
//! An image is sent while checkpoints write the file. Each image has [`Marks`]; a write marks after it happened, and
//! whoever sends takes the marks before it reads. So what was read torn or old is marked and will be read again.

use std::sync::{Mutex, MutexGuard};

use quorate_env::lock;

/// Bytes of a block: the unit of marks, the smallest page that databases of ours have.
pub const BLOCK: u64 = 4096;

/// What was written to a file since it was last asked.
#[derive(Debug, Default)]
pub struct Marks(Mutex<Written>);

/// What was written to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Blocks that were written.
    pub blocks: Blocks,
    /// The smallest size to which the file was cut: everything above changed too.
    pub cut: Option<u64>,
}

/// A set of blocks, by number from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    words: Vec<u64>,
    count: u64,
}

impl Marks {
    /// Adds the blocks that hold any of `len` bytes from `at`.
    pub fn add(&self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut written = self.lock();
        for number in at / BLOCK..at.saturating_add(len).div_ceil(BLOCK) {
            written.blocks.insert(number);
        }
    }

    /// Notes that the file was cut to `size`.
    pub fn cut(&self, size: u64) {
        let mut written = self.lock();
        written.cut = Some(written.cut.map_or(size, |cut| cut.min(size)));
    }

    /// Takes all marks away and returns them.
    pub fn take(&self) -> Written {
        std::mem::take(&mut *self.lock())
    }

    /// How many blocks are marked.
    pub fn count(&self) -> u64 {
        self.lock().blocks.count
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        lock(&self.0)
    }
}

impl Blocks {
    /// Adds one.
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

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first at or after `from`, together with all that follow it without a gap, but at most `max` of them: the
    /// first number and how many.
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
        fn runs_give_exactly_what_was_marked(
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
