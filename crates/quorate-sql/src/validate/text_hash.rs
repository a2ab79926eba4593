//! A hash of texts for look-ups by statement: one pass of XXH3, without the state of its streaming form.

use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The hasher of maps whose keys are texts.
pub(crate) type TextHash = BuildHasherDefault<TextHasher>;

/// Hashes its input with XXH3; each piece is seeded with the hash of those before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TextHasher(u64);

impl Hasher for TextHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    /// Ignores the byte with which `str` ends its hash: the keys are single texts, so it distinguishes nothing.
    fn write_u8(&mut self, _: u8) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
