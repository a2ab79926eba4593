//! Calls that rusqlite does not offer: checkpoints, modules, the optimizer's mask, the parser's depth, the local-time
//! hook, memory statistics.

use std::ffi::{c_int, c_void};
use std::sync::Once;

use rusqlite::{Connection, ffi};

use crate::vfs::clock;

/// SQLite's internal bit for the use of STAT4 samples (`SQLITE_Stat4` of sqliteInt.h). A test checks its effect; a new
/// version of SQLite must pass that test.
const OPTIMIZATION_STAT4: c_int = 0x800;

/// The result of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpointed {
    /// SQLite's extended result code.
    pub code: i32,
    /// Frames in the `-wal`, or -1.
    pub frames: i32,
    /// How many of the frames have been copied to the main file, or -1.
    pub copied: i32,
}

/// Runs a checkpoint in one of SQLite's `SQLITE_CHECKPOINT_*` modes.
pub(crate) fn checkpoint(conn: &Connection, mode: i32) -> Checkpointed {
    let (mut frames, mut copied) = (-1, -1);
    // SAFETY: the handle is open as long as `conn` is borrowed, the name ends with NUL, and both places are valid.
    let code = unsafe {
        ffi::sqlite3_wal_checkpoint_v2(conn.handle(), c"main".as_ptr(), mode, &raw mut frames, &raw mut copied)
    };
    Checkpointed { code, frames, copied }
}

/// Removes all modules of virtual tables from a connection, so that it can't use such tables.
pub(crate) fn drop_modules(conn: &Connection) {
    // SAFETY: the handle is open, and a null list means that no module is kept. The call always succeeds.
    unsafe { ffi::sqlite3_drop_modules(conn.handle(), std::ptr::null_mut()) };
}

/// Makes a connection neither collect, load nor use STAT4 samples.
pub(crate) fn disable_stat4(conn: &Connection) {
    // SAFETY: the handle is open, and this operation takes a handle and a mask of optimizations to disable.
    unsafe { ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_OPTIMIZATIONS, conn.handle(), OPTIMIZATION_STAT4) };
}

/// Returns whether [`disable_stat4`] has taken effect.
pub(crate) fn stat4_is_disabled(conn: &Connection) -> bool {
    let mut mask: c_int = 0;
    // SAFETY: the handle is open, and this operation takes a handle and a place for the mask.
    unsafe { ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_GETOPT, conn.handle(), &raw mut mask) };
    mask & OPTIMIZATION_STAT4 != 0
}

/// SQLite's `SQLITE_LIMIT_PARSER_DEPTH`, for which rusqlite has no constant.
const LIMIT_PARSER_DEPTH: c_int = 12;

/// Limits the depth of the parser's stack, and so how deep the parts of a statement may be nested.
pub(crate) fn limit_parser_depth(conn: &Connection, depth: i32) {
    // SAFETY: the handle is open, and SQLite accepts any number.
    unsafe { ffi::sqlite3_limit(conn.handle(), LIMIT_PARSER_DEPTH, depth) };
}

/// Makes `'localtime'` and `'utc'` fail, in the whole process, on threads whose clock is a stamp.
pub(crate) fn install_localtime_rule() {
    static INSTALLED: Once = Once::new();
    let hook: unsafe extern "C" fn(*const c_void, *mut c_void) -> c_int = localtime;
    INSTALLED.call_once(|| {
        // SAFETY: mode 2 takes a callback of this type, which is never removed.
        unsafe { ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_LOCALTIME_FAULT, 2 as c_int, hook) };
    });
}

/// Disables SQLite's memory statistics in the whole process, because they take one global lock for every allocation of
/// every connection. It has no effect if SQLite was used before, because SQLite accepts this setting only until then.
pub(crate) fn disable_memory_statistics() {
    // SAFETY: this setting takes a number. SQLite keeps it in an integer of its own that it reads whenever it
    // allocates. If another thread's first use of SQLite happens at the same moment, some allocations are counted and
    // others are not, and nothing but the count depends on that.
    unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as c_int) };
}

unsafe extern "C" {
    /// POSIX: takes a `time_t` and fills a `struct tm`; returns null on failure.
    fn localtime_r(time: *const c_void, out: *mut c_void) -> *mut c_void;
}

unsafe extern "C" fn localtime(time: *const c_void, out: *mut c_void) -> c_int {
    if clock::is_stamped() {
        return 1;
    }
    // SAFETY: SQLite passes a `time_t` and a `struct tm`, though as untyped pointers.
    c_int::from(unsafe { localtime_r(time, out) }.is_null())
}
