//! The hash of the answer to a read: of a query's rows in their order, with each value's storage class, or of the reply
//! to a command on keys.
//!
//! Invariant: read checks in logs contain this hash, so it never changes; `docs/model-format.md` defines it.

use quorate_model::codec::encode_keys_reply;
use quorate_model::keys::KeysReply;
use rusqlite::types::ValueRef;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::query::Rows;
use crate::value::borrowed;

/// Hashes rows one value at a time.
pub(crate) struct RowsHash(Xxh3);

impl RowsHash {
    pub(crate) fn new() -> Self {
        Self(Xxh3::new())
    }

    /// Begins the next row; its values follow.
    pub(crate) fn begin_row(&mut self) {
        self.0.update(&[0]);
    }

    pub(crate) fn value(&mut self, value: ValueRef<'_>) {
        let mut sized = |class: u8, bytes: &[u8]| {
            self.0.update(&[class]);
            self.0.update(&(bytes.len() as u64).to_le_bytes());
            self.0.update(bytes);
        };
        match value {
            ValueRef::Null => sized(1, &[]),
            ValueRef::Integer(value) => sized(2, &value.to_le_bytes()),
            ValueRef::Real(value) => sized(3, &value.to_bits().to_le_bytes()),
            ValueRef::Text(text) => sized(4, text),
            ValueRef::Blob(bytes) => sized(5, bytes),
        }
    }

    /// Adds bytes that are not part of a row.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> u128 {
        self.0.digest128()
    }
}

/// Returns the hash of rows that were read.
pub fn of(rows: &Rows) -> u128 {
    let mut hash = RowsHash::new();
    for row in rows {
        hash.begin_row();
        row.values().iter().for_each(|value| hash.value(borrowed(value)));
    }
    hash.finish()
}

/// Returns the hash of the reply to a command on keys.
pub fn of_reply(reply: &KeysReply) -> u128 {
    xxh3_128(&encode_keys_reply(reply))
}
