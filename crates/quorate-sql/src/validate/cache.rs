//! A cache of facts about recently used texts.
//!
//! It consists of two maps, a young and an old one. An entry that is found in the old map moves to the young one. When
//! the young map is full, it replaces the old one. A text that is used again thus stays in the cache, for the cost of a
//! look-up.
//!
//! Invariant: at most twice [`TEXTS_MAX`] texts of at most [`TEXT_BYTES_MAX`] bytes.

use std::collections::HashMap;

use super::text_hash::TextHash;

/// The most texts in one map.
const TEXTS_MAX: usize = 1024;

/// The most bytes of a cached text. A longer text is checked each time.
const TEXT_BYTES_MAX: usize = 16 << 10;

type Map<T> = HashMap<Box<str>, T, TextHash>;

pub(super) struct Cache<T> {
    young: Map<T>,
    old: Map<T>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { young: Map::default(), old: Map::default() }
    }
}

impl<T: Clone> Cache<T> {
    pub(super) fn get(&mut self, text: &str) -> Option<T> {
        if let Some(known) = self.young.get(text) {
            return Some(known.clone());
        }
        let known = self.old.remove(text)?;
        self.insert(text, known.clone());
        Some(known)
    }

    pub(super) fn insert(&mut self, text: &str, known: T) {
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
        if self.young.len() >= TEXTS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(text.into(), known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_texts_stay_and_others_are_dropped() {
        let mut cache = Cache::default();
        cache.insert("used", 0);
        for number in 1..10 * TEXTS_MAX {
            cache.insert(&number.to_string(), number);
            assert_eq!(cache.get("used"), Some(0));
            assert!(cache.young.len() + cache.old.len() <= 2 * TEXTS_MAX);
        }
        assert_eq!(cache.get("1"), None);
        assert_eq!(cache.get(&(10 * TEXTS_MAX - 1).to_string()), Some(10 * TEXTS_MAX - 1));
    }

    #[test]
    fn long_texts_are_not_kept() {
        let mut cache = Cache::default();
        for (len, kept) in [(TEXT_BYTES_MAX, true), (TEXT_BYTES_MAX + 1, false)] {
            let text = "x".repeat(len);
            cache.insert(&text, ());
            assert_eq!(cache.get(&text).is_some(), kept);
        }
    }
}
