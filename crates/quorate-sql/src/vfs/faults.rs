//! Injects failures of reads and writes in tests. Other builds inject none.

use super::watch::{Role, Watched};

#[cfg(not(test))]
impl Watched {
    /// Returns the code with which a write fails, if it shall fail.
    pub(crate) fn refusal(&self, _role: Role) -> Option<i32> {
        None
    }

    /// Returns the code with which a read fails, if it shall fail.
    pub(crate) fn read_refusal(&self, _role: Role) -> Option<i32> {
        None
    }
}

#[cfg(test)]
impl Watched {
    pub(crate) fn refusal(&self, role: Role) -> Option<i32> {
        use std::sync::atomic::Ordering;
        if role != Role::Wal {
            return None;
        }
        let take = |room: u64| room.checked_sub(1).filter(|left| *left > 0);
        if self.faults.wal_room.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) == Err(1) {
            return Some(rusqlite::ffi::SQLITE_FULL);
        }
        Some(self.faults.wal_writes.load(Ordering::Acquire)).filter(|code| *code != 0)
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

/// The failures to inject.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The SQLite error code of each write to the `-wal`; 0 injects no error.
    pub(crate) wal_writes: std::sync::atomic::AtomicI32,
    /// One more than the number of writes to the `-wal` for which there is room; 0 for no limit.
    pub(crate) wal_room: std::sync::atomic::AtomicU64,
    /// The SQLite error code of each read of the main file; 0 injects no error.
    pub(crate) main_reads: std::sync::atomic::AtomicI32,
    /// The number of the `-wal` read that fails, counted from 1 as of now; none fails if it is not positive.
    pub(crate) wal_read: std::sync::atomic::AtomicI64,
}
