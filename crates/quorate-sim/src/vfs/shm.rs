//! The shared memory of a database in WAL mode, and its locks.
//!
//! Invariant: a region keeps its address until the last connection has unmapped the shared memory.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU64;

use rusqlite::ffi;

/// The number of locks of a database (`SQLITE_SHM_NLOCK`).
const SLOTS: usize = 8;

/// The regions and locks of one database.
#[derive(Debug, Default)]
pub(super) struct Shm {
    regions: Vec<Box<[AtomicU64]>>,
    slots: [Slot; SLOTS],
    users: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    shared: usize,
    exclusive: bool,
}

/// The part of the shared memory that one connection holds: its mapping and its locks.
#[derive(Debug, Default)]
pub(super) struct Hold {
    mapped: bool,
    slots: [Held; SLOTS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    #[default]
    Nothing,
    Shared,
    Exclusive,
}

impl Shm {
    /// Whether a region exists.
    pub(super) fn has(&self, region: usize) -> bool {
        region < self.regions.len()
    }

    /// Returns the start of a region of `bytes` bytes, or null if it does not exist and `extend` is not set.
    pub(super) fn map(&mut self, hold: &mut Hold, region: usize, bytes: usize, extend: bool) -> *mut c_void {
        if !hold.mapped {
            hold.mapped = true;
            self.users += 1;
        }
        while extend && self.regions.len() <= region {
            self.regions.push((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect());
        }
        self.regions.get(region).map_or(std::ptr::null_mut(), |region| region.as_ptr().cast_mut().cast())
    }

    /// Acquires or releases `count` locks from `first` on: all of them or none.
    pub(super) fn lock(&mut self, hold: &mut Hold, first: usize, count: usize, flags: c_int) -> c_int {
        let mut pairs: Vec<(&mut Slot, &mut Held)> =
            self.slots.iter_mut().zip(&mut hold.slots).skip(first).take(count).collect();
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            pairs.iter_mut().for_each(|(slot, held)| release(slot, held));
            return ffi::SQLITE_OK;
        }
        let exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
        let is_free = |(slot, held): &(&mut Slot, &mut Held)| match (exclusive, **held) {
            (_, Held::Exclusive) | (false, Held::Shared) => true,
            (true, Held::Shared) => slot.shared == 1,
            (true, Held::Nothing) => slot.shared == 0 && !slot.exclusive,
            (false, Held::Nothing) => !slot.exclusive,
        };
        if !pairs.iter().all(is_free) {
            return ffi::SQLITE_BUSY;
        }
        for (slot, held) in &mut pairs {
            release(slot, held);
            if exclusive {
                slot.exclusive = true;
                **held = Held::Exclusive;
            } else {
                slot.shared += 1;
                **held = Held::Shared;
            }
        }
        ffi::SQLITE_OK
    }

    /// Ends a connection's use of the shared memory.
    pub(super) fn unmap(&mut self, hold: &mut Hold) {
        self.slots.iter_mut().zip(&mut hold.slots).for_each(|(slot, held)| release(slot, held));
        if std::mem::take(&mut hold.mapped) {
            self.users = self.users.saturating_sub(1);
        }
        if self.users == 0 {
            self.regions.clear();
        }
    }
}

fn release(slot: &mut Slot, held: &mut Held) {
    match std::mem::take(held) {
        Held::Nothing => {}
        Held::Shared => slot.shared = slot.shared.saturating_sub(1),
        Held::Exclusive => slot.exclusive = false,
    }
}
