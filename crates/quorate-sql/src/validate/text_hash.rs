//! A hash of texts for look-ups by statement: one pass of XXH3, without the state that its streaming form carries.

use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Makes maps whose keys are texts.
pub(crate) type TextHash = BuildHasherDefault<TextHasher>;

/// Hashes what it is given by XXH3, each piece seeded by the hash of those before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TextHasher(u64);

impl Hasher for TextHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    /// What ends every text: it tells nothing apart here.
    fn write_u8(&mut self, _: u8) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
