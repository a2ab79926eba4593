//! SQLite's locks on a database file, between the connections of one process.
//!
//! Invariant: the rules of SQLite's locks hold. Many connections may hold SHARED, and one of them may raise its lock to
//! RESERVED. PENDING waits for the other connections to unlock and admits no new ones. A connection with EXCLUSIVE is
//! the only one with a lock.

use std::collections::BTreeMap;
use std::ffi::c_int;

use rusqlite::ffi;

/// The lock level of each connection.
#[derive(Debug, Default)]
pub(super) struct Locks(BTreeMap<u64, c_int>);

impl Locks {
    /// Raises a connection's lock level, or returns `SQLITE_BUSY` if the locks of other connections prevent that.
    pub(super) fn lock(&mut self, id: u64, wanted: c_int) -> c_int {
        let held = self.level(id);
        if held >= wanted {
            return ffi::SQLITE_OK;
        }
        let others = self.0.iter().filter(|(other, _)| **other != id).map(|(_, level)| *level).max();
        let others = others.unwrap_or(ffi::SQLITE_LOCK_NONE);
        let highest_allowed = match wanted {
            ffi::SQLITE_LOCK_SHARED => ffi::SQLITE_LOCK_RESERVED,
            ffi::SQLITE_LOCK_RESERVED => ffi::SQLITE_LOCK_SHARED,
            _ => ffi::SQLITE_LOCK_NONE,
        };
        if others <= highest_allowed {
            self.0.insert(id, wanted);
            return ffi::SQLITE_OK;
        }
        if wanted == ffi::SQLITE_LOCK_EXCLUSIVE && others == ffi::SQLITE_LOCK_SHARED {
            self.0.insert(id, ffi::SQLITE_LOCK_PENDING);
        }
        ffi::SQLITE_BUSY
    }

    /// Lowers a connection's lock level.
    pub(super) fn unlock(&mut self, id: u64, wanted: c_int) {
        if wanted == ffi::SQLITE_LOCK_NONE {
            self.0.remove(&id);
        } else if self.level(id) > wanted {
            self.0.insert(id, wanted);
        }
    }

    /// Whether a connection holds RESERVED or a higher level, and so is about to write.
    pub(super) fn is_reserved(&self) -> bool {
        self.0.values().any(|level| *level >= ffi::SQLITE_LOCK_RESERVED)
    }

    /// Returns the lock level of a connection.
    pub(super) fn level(&self, id: u64) -> c_int {
        self.0.get(&id).copied().unwrap_or(ffi::SQLITE_LOCK_NONE)
    }
}
