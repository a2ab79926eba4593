//! Replacements for functions of SQLite whose work or memory SQLite does not bound: `LIKE`, `GLOB`, `instr`, `replace`,
//! `trim`, `ltrim`, `rtrim`, `unhex`, `json_patch`, the JSON aggregates, and `snippet` and `highlight` of FTS5.
//!
//! SQLite checks a timeout or a budget between two steps of its virtual machine, and a function call is part of one
//! step. The built-in forms can take minutes in one call, and LIKE recurses once for each wildcard of its pattern. The
//! replacements return the same results in time that is linear in their arguments, or fail after [`COMPARISONS_MAX`],
//! and they report their work to a [`Meter`]. `docs/decisions/0018-own-functions.md` has the measurements.
//!
//! Invariant: what a function returns, and whether it fails, depends only on its arguments, and is equal on all
//! connections; a meter can only end the statement.

use std::sync::Arc;

use quorate_model::limits::COMPARISONS_MAX;
use rusqlite::Connection;

use crate::ffi::fts5::{self, Found};
use crate::ffi::functions::{self, Answer, Call, Failed, Wildcards};

mod excerpt;
mod json;
mod pattern;
mod text;

#[cfg(test)]
mod tests;

/// The bytes of work after which a function asks the meter whether to continue.
const STRETCH: u64 = 64 << 10;

/// How many bytes a comparison of two characters counts as.
const COMPARISON_BYTES: u64 = 8;

/// The error of a function that the meter has ended. The caller replaces it by the reason.
const ENDED: &str = "the statement was ended";

/// Counts the bytes that functions of a connection touch.
pub(crate) trait Meter: Send + Sync {
    /// Adds to the count; returns whether the statement must end.
    fn charge(&self, bytes: u64) -> bool;
}

/// Returns a meter for connections without limits.
pub(crate) fn unmetered() -> Arc<dyn Meter> {
    Arc::new(Unmetered)
}

/// A meter that counts nothing.
struct Unmetered;

impl Meter for Unmetered {
    fn charge(&self, _: u64) -> bool {
        false
    }
}

/// The work of one call.
struct Work<'a> {
    meter: &'a dyn Meter,
    /// Bytes that have not been reported to the meter yet.
    bytes: u64,
    comparisons: u64,
}

impl<'a> Work<'a> {
    fn new(meter: &'a dyn Meter) -> Self {
        Self { meter, bytes: 0, comparisons: 0 }
    }

    /// Counts bytes that are read or copied one after another.
    fn bytes(&mut self, count: usize) -> Result<(), Failed> {
        self.bytes = self.bytes.saturating_add(count as u64);
        if self.bytes < STRETCH { Ok(()) } else { self.report() }
    }

    /// Counts comparisons of characters; beyond the limit it fails with the text of `too_many`.
    fn comparisons(&mut self, count: u64, too_many: impl FnOnce() -> String) -> Result<(), Failed> {
        self.comparisons = self.comparisons.saturating_add(count);
        if self.comparisons > COMPARISONS_MAX {
            return Err(Failed::Text(too_many()));
        }
        self.bytes = self.bytes.saturating_add(count.saturating_mul(COMPARISON_BYTES));
        if self.bytes < STRETCH { Ok(()) } else { self.report() }
    }

    fn report(&mut self) -> Result<(), Failed> {
        let ends = self.meter.charge(std::mem::take(&mut self.bytes));
        if ends { Err(Failed::Text(ENDED.to_owned())) } else { Ok(()) }
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        // If the statement must end now, the next check of the meter ends it.
        self.meter.charge(self.bytes);
    }
}

/// Calls LIKE and GLOB once: each tells the planner what it is during its first call.
const FIRST_CALLS: &str = "SELECT 'a' LIKE 'a', 'a' LIKE 'a' ESCAPE 'b', 'a' GLOB 'a'";

/// Replaces the functions of a connection; the replacements report their work to the meter.
pub(crate) fn install(conn: &Connection, meter: &Arc<dyn Meter>) -> rusqlite::Result<()> {
    type Function = for<'a> fn(&Call<'a>, &mut Work<'_>) -> Result<Answer<'a>, Failed>;
    let like = Some(Wildcards { signs: [b'%', b'_', 0], ignores_case: true });
    let glob = Some(Wildcards { signs: [b'*', b'?', b'['], ignores_case: false });
    let all: [(_, _, _, Function); 9] = [
        (c"like", 2, like, pattern::like),
        (c"like", 3, like, pattern::like),
        (c"glob", 2, glob, pattern::glob),
        (c"instr", 2, None, text::instr),
        (c"replace", 3, None, text::replace),
        (c"trim", 2, None, text::trim),
        (c"ltrim", 2, None, text::ltrim),
        (c"rtrim", 2, None, text::rtrim),
        (c"unhex", 2, None, text::unhex),
    ];
    for (name, arguments, wildcards, function) in all {
        let meter = Arc::clone(meter);
        functions::scalar(conn, name, arguments, wildcards, move |call| function(call, &mut Work::new(&*meter)))?;
    }
    for (name, is_blob) in [(c"json_patch", false), (c"jsonb_patch", true)] {
        let (meter, patch) = (Arc::clone(meter), json::patch(is_blob));
        functions::scalar(conn, name, 2, None, move |call| patch(call, &mut Work::new(&*meter)))?;
    }
    for (name, arguments, is_blob) in [
        (c"json_group_array", 1, false),
        (c"jsonb_group_array", 1, true),
        (c"json_group_object", 2, false),
        (c"jsonb_group_object", 2, true),
    ] {
        functions::aggregate(conn, name, arguments, json::Gather::new(arguments == 2, is_blob, Arc::clone(meter)))?;
    }
    type Auxiliary = fn(&Found<'_>, &mut Work<'_>) -> Result<Answer<'static>, Failed>;
    let auxiliary: [(_, Auxiliary); 2] = [(c"highlight", excerpt::highlight), (c"snippet", excerpt::snippet)];
    for (name, function) in auxiliary {
        let meter = Arc::clone(meter);
        fts5::auxiliary(conn, name, Arc::new(move |found| function(found, &mut Work::new(&*meter))))?;
    }
    conn.query_row(FIRST_CALLS, [], |_| Ok(()))
}

/// Returns the part of a text before its first NUL: SQLite's own forms read only this part of some arguments.
fn before_nul(text: &[u8]) -> &[u8] {
    text.get(..memchr::memchr(0, text).unwrap_or(text.len())).unwrap_or(text)
}

/// Returns the bits of the character that SQLite takes from the first byte of a multi-byte character.
fn first_bits(byte: u8) -> u32 {
    u32::from(match byte {
        0xc0..=0xdf => byte & 0x1f,
        0xe0..=0xef => byte & 0x0f,
        0xf0..=0xf7 => byte & 0x07,
        0xf8..=0xfb => byte & 0x03,
        0xfc..=0xfd => byte & 0x01,
        _ => 0,
    })
}

/// Reads a character as SQLite does, which accepts any bytes. Returns the character and the offset of the next one, or
/// `None` at the end.
fn read_char(text: &[u8], at: usize) -> Option<(u32, usize)> {
    let first = *text.get(at)?;
    if first < 0xc0 {
        return Some((first.into(), at + 1));
    }
    let (mut c, mut next) = (first_bits(first), at + 1);
    while let Some(byte) = text.get(next).filter(|byte| **byte & 0xc0 == 0x80) {
        c = (c << 6) | u32::from(byte & 0x3f);
        next += 1;
    }
    let is_invalid = c < 0x80 || c & 0xffff_f800 == 0xd800;
    Some((if is_invalid { 0xfffd } else { c }, next))
}
