//! The outcome hash, computed a second time from the outcomes that stores have told. Its definition is in
//! `quorate_apply::outcome_hash`; this code shares none of it but the canonical bytes.
//!
//! Invariant: a value is known for an index once the outcomes of all entries up to it were told, in whatever order.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The running hash.
#[derive(Default)]
pub(super) struct Running {
    /// The canonical bytes of outcomes after the last known value, by index. The next one is missing.
    told: BTreeMap<u64, Vec<u8>>,
    values: BTreeMap<u64, u64>,
}

impl Running {
    /// Takes the canonical bytes of the outcome of an entry.
    pub(super) fn told(&mut self, index: u64, canonical: Vec<u8>) {
        let (mut next, mut value) = self.values.last_key_value().map_or((0, 0), |(index, value)| (index + 1, *value));
        if index < next {
            return;
        }
        self.told.insert(index, canonical);
        while let Some(canonical) = self.told.remove(&next) {
            value = xxh3_64_with_seed(&[&next.to_le_bytes()[..], &canonical].concat(), value);
            self.values.insert(next, value);
            next += 1;
        }
    }

    /// Returns the hash after an entry, if it is known.
    pub(super) fn at(&self, index: u64) -> Option<u64> {
        self.values.get(&index).copied()
    }
}
