//! `random()` and `randomblob()`, drawn from the seed of the entry.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood 2014): the state grows by 0x9e3779b97f4a7c15 for each draw, and is
//! mixed by two rounds of shift and multiply. The generator never changes, because replicas of all versions must draw
//! the same numbers from the same log. A blob takes one draw for each 8 bytes or part of them, in little-endian order.
//!
//! The functions have the properties of SQLite's own: `random()` never returns the smallest integer, and
//! `randomblob(n)` returns at least one byte. They are marked innocuous, so defaults and triggers may use them, and not
//! deterministic, so indices may not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quorate_model::limits::VALUE_BYTES_MAX;
use rusqlite::Connection;

use crate::ffi::functions::{self, Answer, Failed};
use crate::functions::Meter;
use crate::usage::Buffer;

/// The state of the generator of one connection.
#[derive(Debug, Default)]
pub struct Random {
    state: AtomicU64,
}

impl Random {
    /// Replaces the functions of the connection. The bytes of blobs are reported to the meter.
    pub(crate) fn install(conn: &Connection, meter: &Arc<dyn Meter>) -> rusqlite::Result<Arc<Self>> {
        let random = Arc::new(Self::default());
        let source = Arc::clone(&random);
        functions::volatile(conn, c"random", 0, move |_| Ok(Answer::Integer(source.integer())))?;
        let (source, meter) = (Arc::clone(&random), Arc::clone(meter));
        functions::volatile(conn, c"randomblob", 1, move |call| {
            let blob = source.blob(call.integer(0))?;
            // If the statement must end now, the next step ends it.
            meter.charge(blob.len() as u64);
            Ok(Answer::Blob(blob))
        })?;
        Ok(random)
    }

    /// Sets the seed: the next draw is its first one.
    pub(crate) fn seed(&self, seed: u64) {
        self.state.store(seed, Ordering::Relaxed);
    }

    /// Returns the seed that would continue the sequence of draws.
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

    fn blob(&self, length: i64) -> Result<Buffer, Failed> {
        let length = usize::try_from(length).unwrap_or(0).max(1);
        if length > VALUE_BYTES_MAX {
            return Err(Failed::TooBig);
        }
        let mut bytes = Buffer::default();
        bytes.reserve(length)?;
        while bytes.len() < length {
            let drawn = self.next().to_le_bytes();
            let missing = length.saturating_sub(bytes.len());
            bytes.append(drawn.get(..missing).unwrap_or(&drawn))?;
        }
        Ok(bytes)
    }
}
