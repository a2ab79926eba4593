//! SQLite's counters of changes, reset at each entry, and what its update hook reports.
//!
//! SQLite's counters outlive transactions and even rollbacks. Without the reset, an entry could see what ran before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use crate::ffi::hooks;

/// Counters of one connection.
#[derive(Debug, Default)]
pub struct Counters {
    /// `total_changes()` when the entry began.
    base: AtomicU64,
    inserted: AtomicBool,
    exhausted: AtomicBool,
}

impl Counters {
    pub(super) fn install(conn: &Connection) -> rusqlite::Result<Arc<Self>> {
        let counters = Arc::new(Self::default());
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
        let base = Arc::clone(&counters);
        conn.create_scalar_function("total_changes", 0, flags, move |context| {
            let total = hooks::total_changes(context)?.wrapping_sub(base.base.load(Ordering::Relaxed));
            Ok(total.cast_signed())
        })?;
        let watch = Arc::clone(&counters);
        hooks::set_update_hook(conn, move |inserted, rowid| {
            if inserted {
                watch.inserted.store(true, Ordering::Relaxed);
            }
            if rowid == i64::MAX {
                watch.exhausted.store(true, Ordering::Relaxed);
            }
        })?;
        Ok(counters)
    }

    pub(super) fn begin(&self, conn: &Connection) {
        self.base.store(conn.total_changes(), Ordering::Relaxed);
    }

    /// Returns whether SQLite has counted a change since the entry began.
    pub fn counted(&self, conn: &Connection) -> bool {
        conn.total_changes() != self.base.load(Ordering::Relaxed)
    }

    /// Begins a statement, and clears what was recorded of the previous one.
    pub fn watch(&self) {
        self.inserted.store(false, Ordering::Relaxed);
        self.exhausted.store(false, Ordering::Relaxed);
    }

    /// Returns whether the statement wrote a row with the largest rowid.
    pub fn exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Returns whether the statement inserted a row, either itself or through a trigger.
    pub fn inserted(&self) -> bool {
        self.inserted.load(Ordering::Relaxed)
    }
}
