//! Reads and writes that tests make fail. In the product none is refused before it reaches the base VFS.

use super::watch::{Role, Watched};

#[cfg(not(test))]
impl Watched {
    /// The code with which a write is refused.
    pub(crate) fn refusal(&self, _role: Role) -> Option<i32> {
        None
    }

    /// The code with which a read is refused.
    pub(crate) fn read_refusal(&self, _role: Role) -> Option<i32> {
        None
    }
}

#[cfg(test)]
impl Watched {
    pub(crate) fn refusal(&self, role: Role) -> Option<i32> {
        let code = self.faults.wal_writes.load(std::sync::atomic::Ordering::Acquire);
        (role == Role::Wal && code != 0).then_some(code)
    }

    pub(crate) fn read_refusal(&self, role: Role) -> Option<i32> {
        use std::sync::atomic::Ordering;
        let code = self.faults.main_reads.load(Ordering::Acquire);
        let is_next = || self.faults.wal_read.fetch_sub(1, Ordering::AcqRel) == 1;
        match role {
            Role::Main => (code != 0).then_some(code),
            Role::Wal => is_next().then_some(rusqlite::ffi::SQLITE_IOERR_READ),
        }
    }
}

/// What goes wrong.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// SQLite's code for each write to the `-wal`; 0 lets them pass.
    pub(crate) wal_writes: std::sync::atomic::AtomicI32,
    /// SQLite's code for each read of the main file; 0 lets them pass.
    pub(crate) main_reads: std::sync::atomic::AtomicI32,
    /// Which read of the `-wal` from now on fails, counted from 1; none if it is not positive.
    pub(crate) wal_read: std::sync::atomic::AtomicI64,
}
