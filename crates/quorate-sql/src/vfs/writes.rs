//! Counts failed writes by thread, to tell a full disk from a full table.
//!
//! SQLite reports "no space left" and "this table has used up its rowids" with the same code. Only in the first case
//! has a write failed.

use std::cell::Cell;

use rusqlite::ffi;

thread_local! {
    static FAILED: Cell<u64> = const { Cell::new(0) };
    static FULL: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of writes to any of SQLite's files that have failed on this thread.
pub fn failed_writes() -> u64 {
    FAILED.get()
}

/// Returns how many of [`failed_writes`] failed because the file system was full.
pub fn full_writes() -> u64 {
    FULL.get()
}

/// Counts a write that failed with `code`.
pub(crate) fn failed(code: i32) {
    FAILED.set(FAILED.get().wrapping_add(1));
    if code & 0xff == ffi::SQLITE_FULL {
        FULL.set(FULL.get().wrapping_add(1));
    }
}
