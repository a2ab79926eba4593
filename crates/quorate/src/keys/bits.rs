//! The bits of strings.

use bytes::Bytes;
use quorate_model::keys::{BitAction, BitCommand, BitInteger, BitOperation, BitRange, BitStep, BitUnit, Overflow};

use super::into_bytes::all;
use super::{IntoBytes, Keys, KeysCall};

/// The type of a single bit.
const ONE_BIT: BitInteger = BitInteger { signed: false, bits: 1 };

/// All bits of a string.
const ALL: BitRange = BitRange { start: 0, end: None, unit: BitUnit::Byte };

/// The bits of the string of a key; bit 0 is the highest one of the first byte. A missing key is an empty string. Each
/// call costs the whole string.
///
/// ```
/// # async fn f(keys: quorate::Keys) -> Result<(), quorate::Error> {
/// let seen = keys.bits("seen:2026-11-28");
/// assert!(!seen.set(70_000, true).await?);
/// assert_eq!((seen.get(70_000).await?, seen.count().await?), (true, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bits {
    keys: Keys,
    key: Bytes,
}

impl Bits {
    /// Returns whether a bit is 1. Behind the end of the string all are 0.
    pub fn get(&self, offset: u64) -> KeysCall<bool> {
        self.step(BitStep { integer: ONE_BIT, offset, action: BitAction::Get })
    }

    /// Sets a bit, and returns whether it was 1. The string grows up to there.
    pub fn set(&self, offset: u64, to: bool) -> KeysCall<bool> {
        let action = BitAction::Set(to.into(), Overflow::Wrap);
        self.step(BitStep { integer: ONE_BIT, offset, action })
    }

    /// Returns how many bits are 1.
    pub fn count(&self) -> KeysCall<u64> {
        self.count_in(ALL)
    }

    /// Returns how many bits of a range are 1.
    pub fn count_in(&self, range: BitRange) -> KeysCall<u64> {
        self.keys.run(BitCommand::Count { key: self.key.clone(), range })
    }

    /// Returns where the first bit is that is 1, or 0. A 0 is found behind the end, too.
    pub fn find(&self, one: bool) -> KeysCall<Option<u64>> {
        self.find_in(one, ALL)
    }

    /// Returns where the first such bit of a range is.
    pub fn find_in(&self, one: bool, range: BitRange) -> KeysCall<Option<u64>> {
        self.keys.run(BitCommand::Find { key: self.key.clone(), one, range })
    }

    /// Reads and changes integers in the string, one after the other, and returns for each the one before, or the sum;
    /// none if it did not fit.
    pub fn fields(&self, steps: impl IntoIterator<Item = BitStep>) -> KeysCall<Vec<Option<i64>>> {
        self.keys.run(BitCommand::Fields { key: self.key.clone(), steps: steps.into_iter().collect() })
    }

    fn step(&self, step: BitStep) -> KeysCall<bool> {
        self.keys.run(BitCommand::Fields { key: self.key.clone(), steps: vec![step] })
    }
}

impl Keys {
    /// Returns the bits of the string of a key.
    pub fn bits(&self, key: impl IntoBytes) -> Bits {
        Bits { keys: self.clone(), key: key.into_bytes() }
    }

    /// Combines the bits of strings, stores the result in a key, whatever that holds, and returns its bytes, which are
    /// those of the longest string. An empty result removes the key.
    pub fn combine_bits_into<B: IntoBytes>(
        &self,
        operation: BitOperation,
        keys: impl IntoIterator<Item = B>,
        store: impl IntoBytes,
    ) -> KeysCall<u64> {
        self.run(BitCommand::Combine { operation, keys: all(keys), store: store.into_bytes() })
    }
}
