//! Own forms of SQLite's functions whose work or memory SQLite does not bound: `LIKE`, `GLOB`, `instr`, `replace`,
//! `trim`, `ltrim`, `rtrim`, `unhex`, `json_patch`, the aggregates that make JSON, and `snippet` and `highlight` of
//! FTS5.
//!
//! SQLite looks at a timeout or a budget between two steps of its virtual machine, and calls a function within one. The
//! built-in forms of these can take minutes in one call, and LIKE goes as deep into the stack as its pattern has
//! wildcards. These here return the same, in time that is linear in their arguments, or fail after [`COMPARISONS_MAX`];
//! and they tell a [`Meter`] of their work. The figures stand in `docs/decisions/0018-own-functions.md`.
//!
//! Invariant: what a function returns, and whether it fails, depends on its arguments alone, and is equal on all
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

/// Bytes of work after which a function asks the meter whether to go on.
const STRETCH: u64 = 64 << 10;

/// What a comparison of characters counts for, in bytes.
const COMPARISON_BYTES: u64 = 8;

/// What a function that was ended says. Whoever ended it says why.
const ENDED: &str = "the statement was ended";

/// Counts the bytes that functions of a connection touch.
pub(crate) trait Meter: Send + Sync {
    /// Counts some more; says whether the statement is to end.
    fn charge(&self, bytes: u64) -> bool;
}

/// A meter for connections that nobody waits for.
pub(crate) fn unmetered() -> Arc<dyn Meter> {
    Arc::new(Unmetered)
}

/// Counts nothing.
struct Unmetered;

impl Meter for Unmetered {
    fn charge(&self, _: u64) -> bool {
        false
    }
}

/// The work of one call.
struct Work<'a> {
    meter: &'a dyn Meter,
    /// Bytes that the meter was not told of yet.
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
        if self.bytes < STRETCH { Ok(()) } else { self.tell() }
    }

    /// Counts comparisons of characters; fails with what `too_many` says beyond the limit.
    fn comparisons(&mut self, count: u64, too_many: impl FnOnce() -> String) -> Result<(), Failed> {
        self.comparisons = self.comparisons.saturating_add(count);
        if self.comparisons > COMPARISONS_MAX {
            return Err(Failed::Text(too_many()));
        }
        self.bytes = self.bytes.saturating_add(count.saturating_mul(COMPARISON_BYTES));
        if self.bytes < STRETCH { Ok(()) } else { self.tell() }
    }

    fn tell(&mut self) -> Result<(), Failed> {
        let ends = self.meter.charge(std::mem::take(&mut self.bytes));
        if ends { Err(Failed::Text(ENDED.to_owned())) } else { Ok(()) }
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        // The next look at the meter ends the statement, if this is to.
        self.meter.charge(self.bytes);
    }
}

/// Makes LIKE and GLOB known to the planner, which each says of itself when it is called first.
const FIRST_CALLS: &str = "SELECT 'a' LIKE 'a', 'a' LIKE 'a' ESCAPE 'b', 'a' GLOB 'a'";

/// Replaces the functions of a connection; they tell the meter of their work.
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

/// The part of a text before its first NUL: SQLite's own forms see no more of some arguments.
fn before_nul(text: &[u8]) -> &[u8] {
    text.get(..memchr::memchr(0, text).unwrap_or(text.len())).unwrap_or(text)
}

/// What SQLite makes of the first byte of a character of several bytes.
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

/// Reads a character as SQLite does, which takes all bytes for something: the character, and where the next one is.
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
    let is_none = c < 0x80 || c & 0xffff_f800 == 0xd800;
    Some((if is_none { 0xfffd } else { c }, next))
}
