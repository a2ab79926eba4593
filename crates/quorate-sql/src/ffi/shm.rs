//! The locks in the shared memory of a database, as the connections of this process share them.
//!
//! A read transaction takes one lock, shared, and gives it back. SQLite's unix VFS asks the operating system each time
//! when no other connection of the process has it, under a mutex for which all of them wait. Here a lock for reading
//! that nobody uses any more is kept until somebody wants it exclusively, and whoever takes it again only notes so in
//! its own file. Who wants it exclusively first says that it is not kept, and then looks at the notes: one of the two
//! sees the other (both are sequentially consistent).
//!
//! Invariants:
//! - The base holds a shared lock exactly where this process may use it without asking, by one file: the holder. Other
//!   processes see at least the locks that they would see without this layer.
//! - Nobody gets a lock exclusively while another connection of this process uses it.
//! - A file is called for by others' connections only while it is in the table, and only under the table's lock; so are
//!   all calls of its own that reach the locks of the base.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use quorate_env::lock;
use quorate_env::mutant::Mutant;
use rusqlite::ffi;

use super::file::{ShimFile, base_shm_lock};

/// How many locks there are.
const SLOTS: usize = ffi::SQLITE_SHM_NLOCK as usize;

/// The locks from this one on are those of readers; the others guard rare work, and are not kept.
const FIRST_OF_READERS: usize = 3;

const TAKE_SHARED: c_int = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_SHARED;
const GIVE_SHARED: c_int = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED;

/// The locks of one database.
#[derive(Default)]
pub(crate) struct Locks {
    /// Which can be used without asking.
    kept: [AtomicBool; SLOTS],
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Whose file has each at the base, shared.
    holders: [Option<*mut ShimFile>; SLOTS],
    /// The files that have used a lock, and are open.
    files: Vec<*mut ShimFile>,
}

// SAFETY: the pointers are used under the lock around the table alone, and a file leaves the table before it is closed.
unsafe impl Send for Table {}

/// What all methods ask for that are `unsafe`: `file` is an open file of a shim whose locks these are, its shared
/// memory is mapped, it is the calling connection's, and [`Locks::leave`] comes before its end.
impl Locks {
    /// `xShmLock`.
    ///
    /// # Safety
    ///
    /// See the block.
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

    /// Takes a lock for reading.
    ///
    /// # Safety
    ///
    /// See the block.
    unsafe fn share(&self, file: *mut ShimFile, number: usize, first: c_int) -> c_int {
        // SAFETY: see the block; the references end before the file does.
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
            // SAFETY: see the block; the table's lock is held.
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

    /// Gives it back.
    ///
    /// # Safety
    ///
    /// See the block.
    unsafe fn give_back(&self, file: *mut ShimFile, number: usize, first: c_int) -> c_int {
        // SAFETY: see the block.
        unsafe { &(*file).uses }.fetch_and(!bit(number), Ordering::SeqCst);
        if number >= FIRST_OF_READERS {
            return ffi::SQLITE_OK;
        }
        let mut table = self.table();
        // SAFETY: all files in the table are open, and its lock is held.
        unsafe { if table.user(number).is_none() { table.release(number, first) } else { ffi::SQLITE_OK } }
    }

    /// Takes locks exclusively: all of them or none.
    ///
    /// # Safety
    ///
    /// See the block.
    unsafe fn exclude(&self, file: *mut ShimFile, first: c_int, count: c_int, flags: c_int) -> c_int {
        let mut table = self.table();
        let offsets = first..first.saturating_add(count);
        let numbers = || offsets.clone().filter_map(|offset| Some((usize::try_from(offset).ok()?, offset)));
        numbers().for_each(|(number, _)| self.keep(number, false));
        // SAFETY: see the block; all files in the table are open, and its lock is held.
        unsafe {
            // SQLite never wants a lock exclusively that the same connection has shared.
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

    /// Ends what a file has of the locks; a lock that others use goes to one of them.
    ///
    /// # Safety
    ///
    /// `file` must be an open file of a shim whose locks these are, and the calling connection's.
    pub(super) unsafe fn leave(&self, file: *mut ShimFile) {
        let mut table = self.table();
        // SAFETY: as promised by the caller; all files in the table are open, and its lock is held.
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
                // What fails here ends with the file.
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

/// What all methods ask for that are `unsafe`: all files in the table are open.
impl Table {
    /// A file that uses a lock.
    ///
    /// # Safety
    ///
    /// See the block.
    unsafe fn user(&self, number: usize) -> Option<*mut ShimFile> {
        // SAFETY: see the block.
        let uses = |file: &*mut ShimFile| unsafe { &(**file).uses }.load(Ordering::SeqCst) & bit(number) != 0;
        self.files.iter().copied().find(uses)
    }

    fn may_keep(&self, number: usize) -> bool {
        number >= FIRST_OF_READERS && self.holders.get(number).is_some_and(Option::is_some)
    }

    /// Gives a lock back at the base.
    ///
    /// # Safety
    ///
    /// See the block.
    unsafe fn release(&mut self, number: usize, offset: c_int) -> c_int {
        match self.holders.get_mut(number).and_then(Option::take) {
            // SAFETY: a holder is in the table.
            Some(holder) => unsafe { base_shm_lock(holder, offset, 1, GIVE_SHARED) },
            None => ffi::SQLITE_OK,
        }
    }
}

/// The bit of a lock in [`ShimFile::uses`].
fn bit(number: usize) -> u8 {
    1_u8.checked_shl(u32::try_from(number).unwrap_or(u32::MAX)).unwrap_or(0)
}
