//! `random()` and `randomblob()`, drawn from the seed of the entry.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood 2014): the state grows by 0x9e3779b97f4a7c15 for each draw, and is
//! mixed by two rounds of shift and multiply. It is part of the log's meaning: replicas of all versions must draw the
//! same numbers, so it never changes. A blob takes one draw for each 8 bytes begun, in little-endian order.
//!
//! The functions answer as SQLite's own: `random()` is never the smallest integer, and `randomblob(n)` has at least one
//! byte. They are innocuous, so defaults and triggers may use them, and not deterministic, so indices may not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quorate_model::limits::VALUE_BYTES_MAX;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ffi};

/// The state of the generator of one connection.
#[derive(Debug, Default)]
pub struct Random {
    state: AtomicU64,
}

impl Random {
    /// Replaces the functions of the connection.
    pub(crate) fn install(conn: &Connection) -> rusqlite::Result<Arc<Self>> {
        let random = Arc::new(Self::default());
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
        let source = Arc::clone(&random);
        conn.create_scalar_function("random", 0, flags, move |_| Ok(source.integer()))?;
        let source = Arc::clone(&random);
        conn.create_scalar_function("randomblob", 1, flags, move |context| {
            source.blob(as_integer(context.get_raw(0)))
        })?;
        Ok(random)
    }

    /// The next draw is the first of this seed.
    pub(crate) fn seed(&self, seed: u64) {
        self.state.store(seed, Ordering::Relaxed);
    }

    /// The seed from which it would go on.
    pub(crate) fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    fn next(&self) -> u64 {
        let state = self.state.load(Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.store(state, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn integer(&self) -> i64 {
        let value = self.next().cast_signed();
        // As SQLite does: a negative number loses its sign bit and is negated, so the smallest never appears.
        if value < 0 { (value & i64::MAX).wrapping_neg() } else { value }
    }

    fn blob(&self, length: i64) -> rusqlite::Result<Vec<u8>> {
        let length = usize::try_from(length).unwrap_or(0).max(1);
        if length > VALUE_BYTES_MAX {
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_TOOBIG), None));
        }
        let mut bytes = Vec::with_capacity(length.next_multiple_of(8));
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// As `sqlite3_value_int64` converts.
#[expect(clippy::cast_possible_truncation, reason = "SQLite cuts off fractions; the cast saturates as SQLite does")]
fn as_integer(value: ValueRef<'_>) -> i64 {
    match value {
        ValueRef::Null => 0,
        ValueRef::Integer(value) => value,
        ValueRef::Real(value) => value as i64,
        ValueRef::Text(text) | ValueRef::Blob(text) => leading_integer(text),
    }
}

fn leading_integer(text: &[u8]) -> i64 {
    let mut rest = text.trim_ascii_start();
    let negative = rest.first() == Some(&b'-');
    if let Some((b'+' | b'-', after)) = rest.split_first() {
        rest = after;
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits.fold(0_i64, |value, digit| value.saturating_mul(10).saturating_add((digit - b'0').into()));
    if negative { -value } else { value }
}
