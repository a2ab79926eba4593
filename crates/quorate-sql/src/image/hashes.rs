//! A hash for each block of a file that is sent, and the digest of the whole file.
//!
//! Both sides keep the hashes while blocks are sent repeatedly, so the digest needs no second reading of the file. They
//! take 8 bytes for each 4 KiB.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::vfs::marks::{BLOCK, Blocks};

/// Hashes of blocks by number; 0 if a block is missing.
#[derive(Debug, Default)]
pub(super) struct Hashes(Vec<u64>);

impl Hashes {
    /// Records the content of a block.
    pub(super) fn set(&mut self, number: u64, bytes: &[u8]) {
        let Ok(at) = usize::try_from(number) else { return };
        if at >= self.0.len() {
            self.0.resize(at.saturating_add(1), 0);
        }
        if let Some(hash) = self.0.get_mut(at) {
            *hash = xxh3_64(bytes).max(1);
        }
    }

    /// Forgets all blocks from the one that contains this byte.
    pub(super) fn forget_from(&mut self, byte: u64) {
        let keep = usize::try_from(byte / BLOCK).unwrap_or(usize::MAX);
        if keep < self.0.len() {
            self.0.truncate(keep);
        }
    }

    /// Adds the missing blocks of a file of `len` bytes.
    pub(super) fn add_missing(&self, len: u64, blocks: &mut Blocks) {
        let known = self.0.iter().map(|hash| *hash != 0).chain(std::iter::repeat(false));
        for (number, _) in (0..len.div_ceil(BLOCK)).zip(known).filter(|(_, known)| !known) {
            blocks.insert(number);
        }
    }

    /// The digest of a file of `len` bytes; `None` while a block is missing.
    pub(super) fn digest(&self, len: u64) -> Option<u128> {
        let blocks = self.0.get(..usize::try_from(len.div_ceil(BLOCK)).ok()?)?;
        let mut digest = Xxh3::new();
        digest.update(&len.to_le_bytes());
        for hash in blocks {
            if *hash == 0 {
                return None;
            }
            digest.update(&hash.to_le_bytes());
        }
        Some(digest.digest128())
    }
}
