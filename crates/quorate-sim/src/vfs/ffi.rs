//! The C side of the VFS, and the only `unsafe` code of the crate. It converts pointers to values and back.
//!
//! Invariants: a registered VFS is never freed; the memory of an open file is a [`CFile`] whose `open` is a leaked box
//! from the end of [`open`] to [`close`]; no callback panics.

#![expect(unsafe_code, reason = "SQLite's VFS interface exists only in C")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use rusqlite::ffi;

use super::Registered;
use super::file::OpenFile;
use super::life::Life;

/// The maximum length of a path.
const PATH_BYTES_MAX: c_int = 1024;

/// The size of the sectors in which the disk writes, as SQLite sees it.
const SECTOR_BYTES: c_int = 4096;

/// The memory that SQLite allocates for an open file.
#[repr(C)]
struct CFile {
    head: ffi::sqlite3_file,
    open: *mut OpenFile,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
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
    xFetch: None,
    xUnfetch: None,
};

/// Registers a VFS, which then exists as long as the process.
pub(super) fn register(registered: Registered) -> Option<&'static Registered> {
    let name = CString::new(registered.name.as_str()).ok()?;
    let registered: &'static Registered = Box::leak(Box::new(registered));
    let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
        iVersion: 2,
        szOsFile: c_int::try_from(size_of::<CFile>()).ok()?,
        mxPathname: PATH_BYTES_MAX,
        pNext: std::ptr::null_mut(),
        zName: name.into_raw(),
        pAppData: std::ptr::from_ref(registered).cast_mut().cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(get_last_error),
        xCurrentTimeInt64: Some(current_time_int64),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }));
    // SAFETY: `vfs` is complete and is never freed.
    (unsafe { ffi::sqlite3_vfs_register(vfs, 0) } == ffi::SQLITE_OK).then_some(registered)
}

/// Seeds SQLite's own random number generator, which the whole process shares.
pub fn seed_randomness(seed: u64) {
    // SQLite takes zero for no seed.
    let seed = c_int::try_from(seed % 0x7fff_ffff).unwrap_or(0).saturating_add(1);
    let no_connection: *mut ffi::sqlite3 = std::ptr::null_mut();
    // SAFETY: `sqlite3_initialize` is idempotent; this operation of `sqlite3_test_control` takes a number, and a
    // connection or null.
    unsafe {
        ffi::sqlite3_initialize();
        ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_PRNG_SEED, seed, no_connection);
    }
}

/// Returns the life that a VFS is bound to.
fn life(vfs: *mut ffi::sqlite3_vfs) -> Option<Arc<Life>> {
    // SAFETY: SQLite calls a VFS's methods with that VFS, whose `pAppData` is the leaked `Registered`.
    unsafe { &*(*vfs).pAppData.cast::<Registered>() }.life()
}

/// Returns a name that SQLite passes, or `None` if the pointer is null or the name is not UTF-8.
fn text<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: names end with NUL and live as long as the call that they are passed to.
    unsafe { CStr::from_ptr(name) }.to_str().ok()
}

/// Returns the open file in SQLite's memory.
fn file<'a>(file: *mut ffi::sqlite3_file) -> &'a mut OpenFile {
    // SAFETY: SQLite calls methods of files that were opened and are not closed, and uses a file by one thread at a
    // time; no method calls another.
    unsafe { &mut *(*file.cast::<CFile>()).open }
}

/// Writes a result to the place that SQLite passes, unless it is null.
fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the pointer is not null, so it points to a place for one value of the type in the method's signature.
        unsafe { out.write(value) };
    }
}

fn size(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(0)
}

fn offset(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

// SAFETY (of all functions below): only SQLite calls them, with the arguments that its documentation promises.

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    out: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let opened = life(vfs).ok_or(ffi::SQLITE_CANTOPEN).and_then(|life| life.open(text(name), flags));
    let (methods, open, code) = match opened {
        Ok(open) => (&raw const METHODS, Box::into_raw(Box::new(open)), ffi::SQLITE_OK),
        // SQLite does not close a file without methods.
        Err(code) => (std::ptr::null(), std::ptr::null_mut(), code),
    };
    put(out.cast(), CFile { head: ffi::sqlite3_file { pMethods: methods }, open });
    put(out_flags, flags);
    code
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    match (life(vfs), text(name)) {
        (Some(life), Some(name)) => life.delete(Path::new(name), sync_dir != 0),
        _ => ffi::SQLITE_IOERR_DELETE,
    }
}

unsafe extern "C" fn access(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, how: c_int, out: *mut c_int) -> c_int {
    let (Some(life), Some(name)) = (life(vfs), text(name)) else { return ffi::SQLITE_IOERR_ACCESS };
    put(out, c_int::from(life.access(Path::new(name), how)));
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    len: c_int,
    out: *mut c_char,
) -> c_int {
    let Some(name) = text(name) else { return ffi::SQLITE_CANTOPEN };
    let full = if name.starts_with('/') { name.to_owned() } else { format!("/{name}") };
    if full.len() >= size(len) {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: `out` has `len` bytes, more than the name; the two do not overlap.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(full.as_ptr(), full.len());
        out.add(full.len()).write(0);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(vfs: *mut ffi::sqlite3_vfs, len: c_int, out: *mut c_char) -> c_int {
    let Some(life) = life(vfs) else { return 0 };
    // SAFETY: `out` has `len` bytes, which SQLite has initialized or does not read before this call.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), size(len)) };
    life.randomness(out);
    len
}

unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    micros
}

unsafe extern "C" fn get_last_error(_: *mut ffi::sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}

unsafe extern "C" fn current_time_int64(vfs: *mut ffi::sqlite3_vfs, out: *mut ffi::sqlite3_int64) -> c_int {
    let Some(life) = life(vfs) else { return ffi::SQLITE_ERROR };
    put(out, life.julian_millis());
    ffi::SQLITE_OK
}

#[expect(clippy::cast_precision_loss, reason = "the interface wants days as a floating-point number")]
unsafe extern "C" fn current_time(vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    let Some(life) = life(vfs) else { return ffi::SQLITE_ERROR };
    put(out, life.julian_millis() as f64 / 86_400_000.0);
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(closing: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once; `open` leaked the box.
    drop(unsafe { Box::from_raw((*closing.cast::<CFile>()).open) });
    put(closing, ffi::sqlite3_file { pMethods: std::ptr::null() });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(from: *mut ffi::sqlite3_file, out: *mut c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: `out` has `len` bytes, and nothing else uses them during the call.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), size(len)) };
    file(from).read(out, offset(at))
}

unsafe extern "C" fn write(to: *mut ffi::sqlite3_file, bytes: *const c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: `bytes` points to `len` bytes, which nothing changes during the call.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size(len)) };
    file(to).write(bytes, offset(at))
}

unsafe extern "C" fn truncate(of: *mut ffi::sqlite3_file, len: i64) -> c_int {
    file(of).truncate(offset(len))
}

unsafe extern "C" fn sync(of: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    file(of).sync()
}

unsafe extern "C" fn file_size(of: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    match file(of).len() {
        Ok(len) => {
            put(out, i64::try_from(len).unwrap_or(i64::MAX));
            ffi::SQLITE_OK
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn lock(of: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    file(of).lock(level)
}

unsafe extern "C" fn unlock(of: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    file(of).unlock(level);
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(of: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    put(out, c_int::from(file(of).is_reserved()));
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    SECTOR_BYTES
}

/// As on Linux, a write does not harm the bytes next to it, even if power fails.
unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    of: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    match file(of).shm_map(size(region), size(bytes), extend != 0) {
        Ok(start) => {
            put(out, start);
            ffi::SQLITE_OK
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn shm_lock(of: *mut ffi::sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    file(of).shm_lock(size(first), size(count), flags)
}

unsafe extern "C" fn shm_barrier(_: *mut ffi::sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(of: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    file(of).shm_unmap();
    ffi::SQLITE_OK
}
