//! SQLite's callbacks on the write connection, and a few related calls.
//!
//! rusqlite's own hooks panic on text that is not UTF-8, which would end a program that aborts on panic; these do not.
//!
//! Invariants: a callback lives as long as its connection, which owns it. It is called on the thread that uses the
//! connection, and never after the connection was closed.

use std::ffi::{CStr, c_char, c_int, c_void};

use rusqlite::functions::Context;
use rusqlite::{Connection, ffi};

/// An access about which SQLite calls the authorizer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    /// One of SQLite's action codes.
    pub action: i32,
    /// The first argument: usually a table.
    pub first: Option<&'a str>,
    /// The second argument: a column, a module, a function.
    pub second: Option<&'a str>,
    /// The schema: `main` or `temp`.
    pub database: Option<&'a str>,
    /// The trigger, the view or the common table expression that makes the access; `None` for the statement itself.
    pub accessor: Option<&'a str>,
}

/// An authorizer's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The access is allowed.
    Allow,
    /// The statement fails.
    Deny,
    /// SQLite leaves this part out, and continues.
    Skip,
}

/// Installs `decide` as the authorizer of statements that are being prepared; it gets `None` for an access with a text
/// that is not UTF-8.
pub(crate) fn set_authorizer<F>(conn: &Connection, decide: F) -> rusqlite::Result<()>
where
    F: Fn(Option<Access<'_>>) -> Answer + Send + 'static,
{
    // SAFETY: only SQLite calls it, with the `F` that is given below.
    unsafe extern "C" fn call<F: Fn(Option<Access<'_>>) -> Answer>(
        decide: *mut c_void,
        action: c_int,
        first: *const c_char,
        second: *const c_char,
        database: *const c_char,
        accessor: *const c_char,
    ) -> c_int {
        // SAFETY: `decide` was given below and lives as long as the connection; the texts are null or end with NUL, and
        // live as long as this call.
        let (decide, first, second, database, accessor) =
            unsafe { (&*decide.cast::<F>(), text(first), text(second), text(database), text(accessor)) };
        let access = match (first, second, database, accessor) {
            (Ok(first), Ok(second), Ok(database), Ok(accessor)) => {
                Some(Access { action, first, second, database, accessor })
            }
            _ => None,
        };
        match decide(access) {
            Answer::Allow => ffi::SQLITE_OK,
            Answer::Deny => ffi::SQLITE_DENY,
            Answer::Skip => ffi::SQLITE_IGNORE,
        }
    }
    let context = keep(conn, c"quorate.authorizer", decide)?;
    // SAFETY: the handle is open, and `context` is an `F` that lives as long as the connection.
    check(unsafe { ffi::sqlite3_set_authorizer(conn.handle(), Some(call::<F>), context) })
}

/// Calls `watch` for each row that is inserted or updated, with whether it is new, and its rowid.
pub(crate) fn set_update_hook<F: Fn(bool, i64) + Send + 'static>(conn: &Connection, watch: F) -> rusqlite::Result<()> {
    // SAFETY: only SQLite calls it, with the `F` that is given below.
    unsafe extern "C" fn call<F: Fn(bool, i64)>(
        watch: *mut c_void,
        action: c_int,
        _database: *const c_char,
        _table: *const c_char,
        rowid: i64,
    ) {
        // SAFETY: `watch` was given below and lives as long as the connection.
        let watch = unsafe { &*watch.cast::<F>() };
        if action != ffi::SQLITE_DELETE {
            watch(action == ffi::SQLITE_INSERT, rowid);
        }
    }
    let context = keep(conn, c"quorate.update", watch)?;
    // SAFETY: the handle is open, and `context` is an `F` that lives as long as the connection.
    unsafe { ffi::sqlite3_update_hook(conn.handle(), Some(call::<F>), context) };
    Ok(())
}

/// Calls `tick` after every `stride` steps of a statement; returning `true` interrupts the statement.
pub(crate) fn set_progress_handler<F>(conn: &Connection, stride: u16, tick: F) -> rusqlite::Result<()>
where
    F: Fn() -> bool + Send + 'static,
{
    // SAFETY: only SQLite calls it, with the `F` that is given below.
    unsafe extern "C" fn call<F: Fn() -> bool>(tick: *mut c_void) -> c_int {
        // SAFETY: `tick` was given below and lives as long as the connection.
        c_int::from(unsafe { &*tick.cast::<F>() }())
    }
    let context = keep(conn, c"quorate.progress", tick)?;
    // SAFETY: the handle is open, and `context` is an `F` that lives as long as the connection.
    unsafe { ffi::sqlite3_progress_handler(conn.handle(), stride.into(), Some(call::<F>), context) };
    Ok(())
}

/// Sets the value of `last_insert_rowid()` until the next insert.
pub(crate) fn set_last_insert_rowid(conn: &Connection, rowid: i64) {
    // SAFETY: the handle is open.
    unsafe { ffi::sqlite3_set_last_insert_rowid(conn.handle(), rowid) };
}

/// Returns whether a deferred foreign key constraint is violated at this moment.
pub(crate) fn deferred_keys_are_open(conn: &Connection) -> bool {
    let (mut open, mut peak) = (0, 0);
    // SAFETY: the handle is open and both places are valid.
    unsafe {
        ffi::sqlite3_db_status(conn.handle(), ffi::SQLITE_DBSTATUS_DEFERRED_FKS, &raw mut open, &raw mut peak, 0);
    }
    open != 0
}

/// Returns `total_changes()` of the connection on which a function runs.
pub(crate) fn total_changes(context: &Context<'_>) -> rusqlite::Result<u64> {
    // SAFETY: the connection is only read, and not kept beyond this call.
    Ok(unsafe { context.get_connection() }?.total_changes())
}

/// Gives `value` to the connection, which drops it when it is closed or gets another value with this name.
fn keep<V: Send + 'static>(conn: &Connection, name: &CStr, value: V) -> rusqlite::Result<*mut c_void> {
    // SAFETY: only SQLite calls it, once, with the `V` that is given below.
    unsafe extern "C" fn release<V>(value: *mut c_void) {
        // SAFETY: SQLite calls this once, with the pointer given below.
        drop(unsafe { Box::from_raw(value.cast::<V>()) });
    }
    let value = Box::into_raw(Box::new(value)).cast::<c_void>();
    // SAFETY: the handle is open, the name ends with NUL, and `release` has the type of the pointer. On failure SQLite
    // releases it.
    check(unsafe { ffi::sqlite3_set_clientdata(conn.handle(), name.as_ptr(), value, Some(release::<V>)) })?;
    Ok(value)
}

fn check(code: c_int) -> rusqlite::Result<()> {
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)) }
}

/// # Safety
///
/// The pointer must be null or point to a text that ends with NUL and lives for `'a`.
unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, std::str::Utf8Error> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: promised by the caller.
    unsafe { CStr::from_ptr(text) }.to_str().map(Some)
}
