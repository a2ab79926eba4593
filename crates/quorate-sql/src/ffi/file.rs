//! The files of the VFS shim: each passes every call on to a file of the base VFS, and records the writes. The file of
//! a `-wal` collects the frames that SQLite appends, and passes several on in one call.
//!
//! Invariants: the memory of a file is a [`ShimFile`] and, at [`BASE_OFFSET`], the base's file. A `ShimFile`'s methods
//! are set exactly as long as the base's are, so that SQLite closes both or neither.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};

use rusqlite::ffi;

use super::vfs::shim;
use crate::usage::{self, Refusal, TempFile};
use crate::vfs::frames::Frames;
use crate::vfs::watch::{self, Role, Watched};
use crate::vfs::writes;

/// The lock of the shared memory that a writing transaction holds.
const WRITE_LOCK: c_int = 0;

/// The offset of the base's file: SQLite aligns files to 8 bytes.
pub(super) const BASE_OFFSET: usize = size_of::<ShimFile>().next_multiple_of(8);

/// The shim's own part of an open file.
#[repr(C)]
pub(super) struct ShimFile {
    head: ffi::sqlite3_file,
    /// From `Arc::into_raw`, or null; released when the file is closed.
    watched: *const Watched,
    /// From `Box::into_raw`, or null; dropped after the file was closed.
    temp: *mut TempFile,
    /// From `Box::into_raw`, or null if the file is not a `-wal`; dropped after the file was closed.
    frames: *mut Frames,
    /// The other file of the same connection, while both are open: the `-wal` of a database file, or the database file
    /// of a `-wal`; else null.
    other: *mut Self,
    /// A bit for each lock of the shared memory that the file's connection uses, for [`Locks`](super::shm::Locks).
    pub(super) uses: AtomicU8,
    /// Whether the file is in the table of `Locks`.
    pub(super) is_in_table: AtomicBool,
}

/// The shim's method tables, one for each version that the base's file may have.
static METHODS: [ffi::sqlite3_io_methods; 3] = [methods(1), methods(2), methods(3)];

const fn methods(version: c_int) -> ffi::sqlite3_io_methods {
    ffi::sqlite3_io_methods {
        iVersion: version,
        xClose: Some(close),
        xRead: Some(read),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        xFileSize: Some(file_size),
        xLock: Some(lock),
        xUnlock: Some(unlock),
        xCheckReservedLock: Some(check_reserved_lock),
        xFileControl: Some(file_control),
        xSectorSize: Some(sector_size),
        xDeviceCharacteristics: Some(device_characteristics),
        xShmMap: Some(shm_map),
        xShmLock: Some(shm_lock),
        xShmBarrier: Some(shm_barrier),
        xShmUnmap: Some(shm_unmap),
        xFetch: Some(fetch),
        xUnfetch: Some(unfetch),
    }
}

/// `xOpen` of the shim's VFS.
pub(super) unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite provides `szOsFile` bytes for the file, which are the shim's part and the base's, and a name that
    // is null or ends with NUL. None of the memory is read before it is written here.
    unsafe {
        let shim = shim(vfs);
        let ours = file.cast::<ShimFile>();
        let watched = watched_of(&shim.name, name, flags);
        // SQLite lets the VFS choose the name of a temporary file. The base keeps a pointer to the name that it gets.
        let temp = if name.is_null() { usage::temp_file() } else { None };
        let name = temp.as_ref().map_or(name, |temp| temp.name.as_ptr());
        let frames = (flags & ffi::SQLITE_OPEN_WAL != 0).then(Box::<Frames>::default);
        ours.write(ShimFile {
            head: ffi::sqlite3_file { pMethods: std::ptr::null() },
            watched: watched.map_or(std::ptr::null(), Arc::into_raw),
            temp: temp.map_or(std::ptr::null_mut(), Box::into_raw),
            frames: frames.map_or(std::ptr::null_mut(), Box::into_raw),
            other: std::ptr::null_mut(),
            uses: AtomicU8::new(0),
            is_in_table: AtomicBool::new(false),
        });
        let base = base_of(file);
        (*base).pMethods = std::ptr::null();
        let code =
            (*shim.base).xOpen.map_or(ffi::SQLITE_CANTOPEN, |open| open(shim.base, name, base, flags, out_flags));
        if (*base).pMethods.is_null() {
            if !(*ours).temp.is_null() {
                usage::refused(Refusal::TempFile(code));
            }
            forget(ours);
        } else {
            (*ours).head.pMethods = match (*(*base).pMethods).iVersion {
                ..=1 => &raw const METHODS[0],
                2 => &raw const METHODS[1],
                _ => &raw const METHODS[2],
            };
            if !(*ours).frames.is_null() {
                // The pager opens both by the same VFS, and closes the `-wal` first.
                let main = ffi::sqlite3_database_file_object(name).cast::<ShimFile>();
                ((*ours).other, (*main).other) = (main, ours);
            }
        }
        code
    }
}

/// Returns the record of a file about to be opened, if it is a watched database or its `-wal`.
///
/// # Safety
///
/// `name` must be null or end with NUL.
unsafe fn watched_of(vfs: &str, name: *const std::ffi::c_char, flags: c_int) -> Option<Arc<Watched>> {
    let role = match flags & (ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL) {
        ffi::SQLITE_OPEN_MAIN_DB => Role::Main,
        ffi::SQLITE_OPEN_WAL => Role::Wal,
        _ => return None,
    };
    if name.is_null() {
        return None;
    }
    // SAFETY: not null, so it ends with NUL by contract.
    let path = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    watch::find(vfs, path, role)
}

/// Releases the reference to the watched database, and drops the temporary file and the held frames.
///
/// # Safety
///
/// `file` must have been written by [`open`].
unsafe fn forget(file: *mut ShimFile) {
    // SAFETY: the pointers are null or came from `Arc::into_raw` and `Box::into_raw`, and are set to null so that each
    // is released only once.
    unsafe {
        let temp = std::mem::replace(&mut (*file).temp, std::ptr::null_mut());
        if !temp.is_null() {
            drop(Box::from_raw(temp));
        }
        let frames = std::mem::replace(&mut (*file).frames, std::ptr::null_mut());
        if !frames.is_null() {
            drop(Box::from_raw(frames));
        }
        let other = std::mem::replace(&mut (*file).other, std::ptr::null_mut());
        if !other.is_null() {
            (*other).other = std::ptr::null_mut();
        }
        let watched = std::mem::replace(&mut (*file).watched, std::ptr::null());
        if !watched.is_null() {
            drop(Arc::from_raw(watched));
        }
    }
}

/// Returns the base's part of a file.
///
/// # Safety
///
/// `file` must point to memory of `szOsFile` bytes of a shim.
unsafe fn base_of(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: the base's file is at this offset of the memory.
    unsafe { file.byte_add(BASE_OFFSET) }
}

/// Returns the watched database to which an open file belongs, if it is the main file or the `-wal` of one.
///
/// # Safety
///
/// `file` must be an open file of a shim, and the result must not outlive it.
unsafe fn watched<'a>(file: *mut ffi::sqlite3_file) -> Option<(&'a Watched, Role)> {
    // SAFETY: `open` wrote the `ShimFile`; its reference keeps the target alive until `close`.
    unsafe {
        let ours = file.cast::<ShimFile>();
        let role = if (*ours).frames.is_null() { Role::Main } else { Role::Wal };
        (*ours).watched.as_ref().map(|watched| (watched, role))
    }
}

/// Returns the [`TempFile`] of an open file, if it has one.
///
/// # Safety
///
/// `file` must be an open file of a shim that nothing else uses meanwhile, and the result must not outlive it.
unsafe fn temp<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a mut TempFile> {
    // SAFETY: `open` wrote the `ShimFile`, whose pointer is null or points to a box that lives until `close`.
    unsafe { (*file.cast::<ShimFile>()).temp.as_mut() }
}

/// Returns the held frames of an open file, if it is a `-wal`.
///
/// # Safety
///
/// `file` must be an open file of a shim that nothing else uses meanwhile, and the result must not outlive it.
unsafe fn frames<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a mut Frames> {
    // SAFETY: `open` wrote the `ShimFile`, whose pointer is null or points to a box that lives until `close`.
    unsafe { (*file.cast::<ShimFile>()).frames.as_mut() }
}

/// Calls a method of the base's part of a file; evaluates to `$absent` if there is no such method.
macro_rules! base {
    ($file:expr, $method:ident($($arg:expr),*), $absent:expr) => {{
        // SAFETY: SQLite calls a shim's method with an open file of the shim, whose base is then open too, and with
        // valid arguments.
        unsafe {
            let base = base_of($file);
            match (*(*base).pMethods).$method {
                Some(method) => method(base, $($arg),*),
                None => $absent,
            }
        }
    }};
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite calls with an open file.
    unsafe { leave_locks(file) };
    let code = base!(file, xClose(), ffi::SQLITE_OK);
    // SAFETY: SQLite closes a file once, and does not touch it afterwards.
    unsafe {
        forget(file.cast());
        (*file).pMethods = std::ptr::null();
    }
    code
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, out: *mut c_void, len: c_int, at: i64) -> c_int {
    let code = write_held(file);
    if code != ffi::SQLITE_OK {
        return code;
    }
    // SAFETY: SQLite calls with an open file, and the reference does not outlive this call.
    let watched = unsafe { watched(file) };
    let code = match watched.and_then(|(watched, role)| watched.read_refusal(role)) {
        Some(code) => code,
        None => base!(file, xRead(out, len, at), ffi::SQLITE_IOERR_READ),
    };
    if code != ffi::SQLITE_OK
        && code != ffi::SQLITE_IOERR_SHORT_READ
        && let Some((watched, _)) = watched
    {
        watched.failed_to_read();
    }
    code
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, bytes: *const c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: SQLite calls with an open file that no other thread uses, and the references do not outlive this call.
    let (frames, temp) = unsafe { (frames(file), temp(file)) };
    if let Some(temp) = temp {
        return write_temp(file, temp, bytes, len, at);
    }
    let (at, len) = (u64::try_from(at).unwrap_or(0), usize::try_from(len).unwrap_or(0));
    // SAFETY: SQLite passes as many bytes as it says, and they stay as they are during the call.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast(), len) };
    let Some(frames) = frames else { return write_now(file, at, bytes) };
    let is_held = frames.takes(at, bytes);
    if is_held && !frames.are_due() {
        return ffi::SQLITE_OK;
    }
    let code = write_held(file);
    if is_held || code != ffi::SQLITE_OK { code } else { write_now(file, at, bytes) }
}

/// Writes the frames that a `-wal` holds; does nothing for other files.
fn write_held(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: callers have an open file that no other thread uses, and the reference does not outlive this call.
    let frames = unsafe { frames(file) };
    let written = frames.and_then(|frames| frames.written(|at, bytes| write_now(file, at, bytes)));
    written.unwrap_or(ffi::SQLITE_OK)
}

/// Passes a write on, and records it.
fn write_now(file: *mut ffi::sqlite3_file, at: u64, bytes: &[u8]) -> c_int {
    // SAFETY: callers have an open file that no other thread uses, and the reference does not outlive this call.
    let watched = unsafe { watched(file) };
    let code = match watched.and_then(|(watched, role)| watched.refusal(role)) {
        Some(code) => code,
        None => {
            let (at, len) = (i64::try_from(at).unwrap_or(i64::MAX), c_int::try_from(bytes.len()).unwrap_or(c_int::MAX));
            base!(file, xWrite(bytes.as_ptr().cast(), len, at), ffi::SQLITE_IOERR_WRITE)
        }
    };
    if code != ffi::SQLITE_OK {
        writes::failed(code);
    }
    // The marks are added after the write, whether it failed or not. A sender that takes the marks and then reads
    // therefore sees the new bytes, or finds the marks next time.
    if let Some((watched, role)) = watched {
        let len = bytes.len() as u64;
        watched.wrote(role, at, len);
        if role == Role::Wal {
            watched.wrote_frames(at, bytes);
        }
        if code == ffi::SQLITE_OK && watched.wants_sync(role, len) {
            // SAFETY: the file is still open.
            return unsafe { sync(file, ffi::SQLITE_SYNC_NORMAL | ffi::SQLITE_SYNC_DATAONLY) };
        }
    }
    code
}

/// Writes to a temporary file, if its size limit permits.
fn write_temp(file: *mut ffi::sqlite3_file, temp: &mut TempFile, bytes: *const c_void, len: c_int, at: i64) -> c_int {
    let end = u64::try_from(at.saturating_add(len.into())).unwrap_or(0);
    let code = if temp.grow_to(end) {
        let code = base!(file, xWrite(bytes, len, at), ffi::SQLITE_IOERR_WRITE);
        if code != ffi::SQLITE_OK {
            usage::refused(Refusal::TempFile(code));
        }
        code
    } else {
        ffi::SQLITE_FULL
    };
    if code != ffi::SQLITE_OK {
        writes::failed(code);
    }
    code
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    let code = write_held(file);
    if code != ffi::SQLITE_OK {
        return code;
    }
    let code = base!(file, xTruncate(size), ffi::SQLITE_IOERR_TRUNCATE);
    // SAFETY: SQLite calls with an open file that no other thread uses, and the reference does not outlive this call.
    if let Some(temp) = unsafe { temp(file) }.filter(|_| code == ffi::SQLITE_OK) {
        temp.cut(u64::try_from(size).unwrap_or(0));
    }
    // SAFETY: SQLite calls with an open file, and the reference does not outlive this call.
    if let Some((watched, role)) = unsafe { watched(file) } {
        watched.truncated(role, u64::try_from(size).unwrap_or(0));
    }
    code
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let code = write_held(file);
    if code != ffi::SQLITE_OK {
        return code;
    }
    let sync = || match base!(file, xSync(flags), ffi::SQLITE_IOERR_FSYNC) {
        ffi::SQLITE_OK => Ok(()),
        code => Err(code),
    };
    // SAFETY: SQLite calls with an open file, and the reference does not outlive this call.
    let synced = match unsafe { watched(file) } {
        Some((watched, role)) => watched.sync(role, sync).unwrap_or(Err(ffi::SQLITE_IOERR_FSYNC)),
        None => sync(),
    };
    synced.err().unwrap_or(ffi::SQLITE_OK)
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    base!(file, xFileSize(out), ffi::SQLITE_IOERR_FSTAT)
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    base!(file, xLock(level), ffi::SQLITE_IOERR_LOCK)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    base!(file, xUnlock(level), ffi::SQLITE_IOERR_UNLOCK)
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    base!(file, xCheckReservedLock(out), ffi::SQLITE_IOERR_CHECKRESERVEDLOCK)
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, op: c_int, arg: *mut c_void) -> c_int {
    // A temporary file must grow only through writes, which are counted.
    let is_size = matches!(op, ffi::SQLITE_FCNTL_SIZE_HINT | ffi::SQLITE_FCNTL_CHUNK_SIZE);
    // SAFETY: SQLite calls with an open file that no other thread uses, and the reference does not outlive this call.
    if is_size && unsafe { temp(file) }.is_some() {
        return ffi::SQLITE_OK;
    }
    base!(file, xFileControl(op, arg), ffi::SQLITE_NOTFOUND)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    base!(file, xSectorSize(), 0)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    base!(file, xDeviceCharacteristics(), 0)
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    match base!(file, xShmMap(region, size, extend, out), ffi::SQLITE_IOERR_SHMMAP) {
        // The base has no separate code for a disk that is too full for the `-shm` to grow.
        ffi::SQLITE_IOERR_SHMSIZE => {
            writes::failed(ffi::SQLITE_FULL);
            ffi::SQLITE_FULL
        }
        code => code,
    }
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file, whose `other` is null or open, and `leave_locks` runs before the file is
    // unmapped or closed.
    unsafe {
        let wal = (*file.cast::<ShimFile>()).other;
        if first == WRITE_LOCK && flags & ffi::SQLITE_SHM_UNLOCK != 0 && !wal.is_null() {
            frames(wal.cast()).into_iter().for_each(Frames::forget);
        }
        match watched(file) {
            Some((watched, Role::Main)) => watched.locks.lock(file.cast(), first, count, flags),
            _ => base_shm_lock(file.cast(), first, count, flags),
        }
    }
}

/// Calls `xShmLock` of the base.
///
/// # Safety
///
/// `file` must be an open file of a shim.
pub(super) unsafe fn base_shm_lock(file: *mut ShimFile, first: c_int, count: c_int, flags: c_int) -> c_int {
    base!(file.cast(), xShmLock(first, count, flags), ffi::SQLITE_IOERR_SHMLOCK)
}

/// Releases a file's share of its database's locks.
///
/// # Safety
///
/// `file` must be an open file of a shim.
unsafe fn leave_locks(file: *mut ffi::sqlite3_file) {
    // SAFETY: as promised by the caller.
    unsafe {
        if let Some((watched, Role::Main)) = watched(file) {
            watched.locks.leave(file.cast());
        }
    }
}

/// Executes a memory barrier, which is all that SQLite requires. Its unix VFS also takes a process-wide mutex, "for
/// redundancy".
unsafe extern "C" fn shm_barrier(_: *mut ffi::sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    unsafe { leave_locks(file) };
    base!(file, xShmUnmap(delete), ffi::SQLITE_OK)
}

unsafe extern "C" fn fetch(file: *mut ffi::sqlite3_file, at: i64, len: c_int, out: *mut *mut c_void) -> c_int {
    base!(file, xFetch(at, len, out), ffi::SQLITE_IOERR)
}

unsafe extern "C" fn unfetch(file: *mut ffi::sqlite3_file, at: i64, page: *mut c_void) -> c_int {
    base!(file, xUnfetch(at, page), ffi::SQLITE_OK)
}
