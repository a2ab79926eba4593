//! The locks in the shared memory of a database, shared among the connections of this process.
//!
//! A read transaction takes one shared lock and releases it. SQLite's unix VFS makes a system call for that whenever no
//! other connection of the process holds the lock, under a mutex that all connections take. This layer keeps a released
//! read lock until a connection wants it exclusively. A connection that takes a kept lock again only sets a bit in its
//! own file. A connection that wants the lock exclusively first marks it as not kept, and then checks the bits. All
//! these accesses are sequentially consistent, so at least one of two such connections sees the other.
//!
//! Invariants:
//! - The base holds a shared lock, through one file, the holder, exactly if this process may use the lock without a
//!   call to the base. Other processes see at least the locks that they would see without this layer.
//! - No connection gets a lock exclusively while another connection of this process uses it.
//! - Other connections use a file only while it is in the table, and only under the table's mutex. A file's own calls
//!   that reach the locks of the base are made under that mutex too.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use quorate_env::lock;
use quorate_env::mutant::Mutant;
use rusqlite::ffi;

use super::file::{ShimFile, base_shm_lock};

/// The number of locks.
const SLOTS: usize = ffi::SQLITE_SHM_NLOCK as usize;

/// The first of the readers' locks. Those before it guard rare work, and are not kept.
const FIRST_OF_READERS: usize = 3;

const TAKE_SHARED: c_int = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_SHARED;
const GIVE_SHARED: c_int = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED;

/// The locks of one database.
#[derive(Default)]
pub(crate) struct Locks {
    /// Whether each lock is kept, so that a reader may use it without a call to the base.
    kept: [AtomicBool; SLOTS],
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// The file through which the base holds each lock, shared.
    holders: [Option<*mut ShimFile>; SLOTS],
    /// The open files that have used a lock.
    files: Vec<*mut ShimFile>,
}

// SAFETY: the pointers are used only under the mutex around the table, and a file leaves the table before it is closed.
unsafe impl Send for Table {}

/// The requirements of all `unsafe` methods: `file` is an open file of a shim to which these locks belong, its shared
/// memory is mapped, it belongs to the calling connection, and [`Locks::leave`] is called before it is unmapped or
/// closed.
impl Locks {
    /// Implements `xShmLock`.
    ///
    /// # Safety
    ///
    /// See the `impl` block.
    pub(super) unsafe fn lock(&self, file: *mut ShimFile, first: c_int, count: c_int, flags: c_int) -> c_int {
        let Ok(number) = usize::try_from(first) else { return ffi::SQLITE_MISUSE };
        // SAFETY: as promised by the caller.
        unsafe {
            match flags {
                TAKE_SHARED => self.share(file, number, first),
                GIVE_SHARED => self.give_back(file, number, first),
                _ if flags & ffi::SQLITE_SHM_LOCK != 0 => self.exclude(file, first, count, flags),
                _ => {
                    let _table = self.table();
                    base_shm_lock(file, first, count, flags)
                }
            }
        }
    }

    /// Takes a shared lock.
    ///
    /// # Safety
    ///
    /// See the `impl` block.
    unsafe fn share(&self, file: *mut ShimFile, number: usize, first: c_int) -> c_int {
        // SAFETY: see the `impl` block; the references end before the file is closed.
        let (uses, is_in_table) = unsafe { (&(*file).uses, &(*file).is_in_table) };
        if uses.load(Ordering::Relaxed) & bit(number) != 0 {
            return ffi::SQLITE_OK;
        }
        if is_in_table.load(Ordering::Relaxed) {
            uses.fetch_or(bit(number), Ordering::SeqCst);
            if self.is_kept(number) {
                return ffi::SQLITE_OK;
            }
            uses.fetch_and(!bit(number), Ordering::SeqCst);
        }
        let mut table = self.table();
        let Some(holder) = table.holders.get_mut(number) else { return ffi::SQLITE_MISUSE };
        if holder.is_none() {
            // SAFETY: see the `impl` block; the table's mutex is held.
            let code = unsafe { base_shm_lock(file, first, 1, TAKE_SHARED) };
            if code != ffi::SQLITE_OK {
                return code;
            }
            *holder = Some(file);
        }
        uses.fetch_or(bit(number), Ordering::SeqCst);
        self.keep(number, number >= FIRST_OF_READERS);
        if !is_in_table.swap(true, Ordering::Relaxed) {
            table.files.push(file);
        }
        ffi::SQLITE_OK
    }

    /// Releases a shared lock.
    ///
    /// # Safety
    ///
    /// See the `impl` block.
    unsafe fn give_back(&self, file: *mut ShimFile, number: usize, first: c_int) -> c_int {
        // SAFETY: see the `impl` block.
        unsafe { &(*file).uses }.fetch_and(!bit(number), Ordering::SeqCst);
        if number >= FIRST_OF_READERS {
            return ffi::SQLITE_OK;
        }
        let mut table = self.table();
        // SAFETY: all files in the table are open, and its mutex is held.
        unsafe { if table.user(number).is_none() { table.release(number, first) } else { ffi::SQLITE_OK } }
    }

    /// Takes exclusive locks: all of them or none.
    ///
    /// # Safety
    ///
    /// See the `impl` block.
    unsafe fn exclude(&self, file: *mut ShimFile, first: c_int, count: c_int, flags: c_int) -> c_int {
        let mut table = self.table();
        let offsets = first..first.saturating_add(count);
        let numbers = || offsets.clone().filter_map(|offset| Some((usize::try_from(offset).ok()?, offset)));
        numbers().for_each(|(number, _)| self.keep(number, false));
        // SAFETY: see the `impl` block; all files in the table are open, and its mutex is held.
        unsafe {
            // SQLite never requests an exclusive lock that the same connection holds shared.
            let is_used = numbers().any(|(number, _)| table.user(number).is_some());
            if is_used && !Mutant::ReadersNotCounted.is_on() {
                numbers().for_each(|(number, _)| self.keep(number, table.may_keep(number)));
                return ffi::SQLITE_BUSY;
            }
            for (number, offset) in numbers() {
                let code = table.release(number, offset);
                if code != ffi::SQLITE_OK {
                    return code;
                }
            }
            base_shm_lock(file, first, count, flags)
        }
    }

    /// Releases a file's share of the locks. If other files use a lock that this file holds, one of them becomes the
    /// holder.
    ///
    /// # Safety
    ///
    /// `file` must be an open file of a shim to which these locks belong, and belong to the calling connection.
    pub(super) unsafe fn leave(&self, file: *mut ShimFile) {
        let mut table = self.table();
        // SAFETY: as promised by the caller; all files in the table are open, and its mutex is held.
        unsafe {
            if !(*file).is_in_table.swap(false, Ordering::Relaxed) {
                return;
            }
            (*file).uses.store(0, Ordering::SeqCst);
            table.files.retain(|other| *other != file);
            for (number, offset) in (0..SLOTS).zip(0..) {
                if table.holders.get(number) != Some(&Some(file)) {
                    continue;
                }
                self.keep(number, false);
                let heir = table.user(number);
                let heir = heir.filter(|heir| base_shm_lock(*heir, offset, 1, TAKE_SHARED) == ffi::SQLITE_OK);
                // If this fails, the lock ends when the file is closed.
                let _ = table.release(number, offset);
                if let Some(holder) = table.holders.get_mut(number) {
                    *holder = heir;
                }
                self.keep(number, table.may_keep(number));
            }
        }
    }

    fn is_kept(&self, number: usize) -> bool {
        self.kept.get(number).is_some_and(|kept| kept.load(Ordering::SeqCst))
    }

    fn keep(&self, number: usize, keep: bool) {
        if let Some(kept) = self.kept.get(number) {
            kept.store(keep, Ordering::SeqCst);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locks").field("kept", &self.kept).finish_non_exhaustive()
    }
}

/// The requirement of all `unsafe` methods: all files in the table are open.
impl Table {
    /// Returns a file that uses a lock.
    ///
    /// # Safety
    ///
    /// See the `impl` block.
    unsafe fn user(&self, number: usize) -> Option<*mut ShimFile> {
        // SAFETY: see the `impl` block.
        let uses = |file: &*mut ShimFile| unsafe { &(**file).uses }.load(Ordering::SeqCst) & bit(number) != 0;
        self.files.iter().copied().find(uses)
    }

    fn may_keep(&self, number: usize) -> bool {
        number >= FIRST_OF_READERS && self.holders.get(number).is_some_and(Option::is_some)
    }

    /// Releases a lock at the base.
    ///
    /// # Safety
    ///
    /// See the `impl` block.
    unsafe fn release(&mut self, number: usize, offset: c_int) -> c_int {
        match self.holders.get_mut(number).and_then(Option::take) {
            // SAFETY: a holder is in the table, so it is open.
            Some(holder) => unsafe { base_shm_lock(holder, offset, 1, GIVE_SHARED) },
            None => ffi::SQLITE_OK,
        }
    }
}

/// Returns the bit of a lock in [`ShimFile::uses`].
fn bit(number: usize) -> u8 {
    1_u8.checked_shl(u32::try_from(number).unwrap_or(u32::MAX)).unwrap_or(0)
}
