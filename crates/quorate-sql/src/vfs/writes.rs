//! Failed writes, counted by thread: what tells a full disk from a full table.
//!
//! SQLite gives the same code to "no space left" and to "this table has used up its rowids". Only the first has a write
//! that failed.

use std::cell::Cell;

use rusqlite::ffi;

thread_local! {
    static FAILED: Cell<u64> = const { Cell::new(0) };
    static FULL: Cell<u64> = const { Cell::new(0) };
}

/// Writes to any file of SQLite that failed on this thread so far.
pub fn failed_writes() -> u64 {
    FAILED.get()
}

/// Those of [`failed_writes`] that failed because the file system was full.
pub fn full_writes() -> u64 {
    FULL.get()
}

/// Told of each write that failed, with its code.
pub(crate) fn failed(code: i32) {
    FAILED.set(FAILED.get().wrapping_add(1));
    if code & 0xff == ffi::SQLITE_FULL {
        FULL.set(FULL.get().wrapping_add(1));
    }
}
