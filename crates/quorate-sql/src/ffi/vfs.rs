//! The VFS shim: a registered `sqlite3_vfs` that passes every call on to a base VFS, except those for the clock and for
//! files.
//!
//! Invariants: a registered shim and its base live as long as the process; a shim's file is a [`file::ShimFile`]
//! followed by the base's file.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use rusqlite::ffi;

use super::file;
use crate::vfs::clock;

/// The length in bytes of the longest path that a base VFS may return.
const PATH_BYTES_MAX: usize = 4096;

/// The data of a shim; its `pAppData`.
pub(super) struct Shim {
    pub(super) base: *mut ffi::sqlite3_vfs,
    pub(super) name: String,
}

/// Registers a shim called `name` over the base VFS called `base` (`None`: SQLite's default).
///
/// Must be called at most once for each name; callers keep a list. Returns `None` if there is no such base, if a name
/// contains a NUL, or if SQLite refuses.
pub(crate) fn register(name: &str, base: Option<&str>) -> Option<()> {
    let c_name = CString::new(name).ok()?;
    let base = find(base)?;
    // SAFETY: `find` returned a registered VFS, which stays valid because none is ever unregistered.
    let (base_file, base_path) = unsafe { ((*base).szOsFile, (*base).mxPathname) };
    let shim: &'static Shim = Box::leak(Box::new(Shim { base, name: name.to_owned() }));
    let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
        iVersion: 2,
        szOsFile: c_int::try_from(file::BASE_OFFSET).ok()?.checked_add(base_file)?,
        mxPathname: base_path,
        pNext: std::ptr::null_mut(),
        zName: c_name.into_raw(),
        pAppData: std::ptr::from_ref(shim).cast_mut().cast(),
        xOpen: Some(file::open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(dl_open),
        xDlError: Some(dl_error),
        xDlSym: Some(dl_sym),
        xDlClose: Some(dl_close),
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
    (unsafe { ffi::sqlite3_vfs_register(vfs, 0) } == ffi::SQLITE_OK).then_some(())
}

/// Returns the full path of `path`, as the VFS called `name` spells it.
pub(crate) fn full_path(name: &str, path: &str) -> Option<String> {
    let vfs = find(Some(name))?;
    let path = CString::new(path).ok()?;
    let mut out = vec![0_u8; PATH_BYTES_MAX];
    let len = c_int::try_from(out.len()).ok()?;
    // SAFETY: `vfs` is registered for ever, `path` ends with NUL, and `out` has `len` bytes.
    let code = unsafe { ((*vfs).xFullPathname?)(vfs, path.as_ptr(), len, out.as_mut_ptr().cast()) };
    // SQLITE_OK_SYMLINK also means success; its low byte is SQLITE_OK.
    if code & 0xff != ffi::SQLITE_OK {
        return None;
    }
    CStr::from_bytes_until_nul(&out).ok()?.to_str().ok().map(str::to_owned)
}

fn find(name: Option<&str>) -> Option<*mut ffi::sqlite3_vfs> {
    let name = name.map(CString::new).transpose().ok()?;
    // SAFETY: initialising is idempotent and thread-safe; the name, if any, ends with NUL.
    let vfs = unsafe {
        if ffi::sqlite3_initialize() != ffi::SQLITE_OK {
            return None;
        }
        ffi::sqlite3_vfs_find(name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr()))
    };
    (!vfs.is_null()).then_some(vfs)
}

/// Returns the shim that belongs to a VFS.
///
/// # Safety
///
/// `vfs` must have been created by [`register`].
pub(super) unsafe fn shim(vfs: *mut ffi::sqlite3_vfs) -> &'static Shim {
    // SAFETY: by contract `pAppData` is the leaked `Shim`.
    unsafe { &*(*vfs).pAppData.cast::<Shim>() }
}

/// Calls a method of the base VFS of a shim; evaluates to `$absent` if there is no such method.
macro_rules! base {
    ($vfs:expr, $method:ident($($arg:expr),*), $absent:expr) => {{
        // SAFETY: SQLite calls a shim's method with the shim itself and with valid arguments; they are valid for the
        // base's method too, which gets its own VFS.
        unsafe {
            let base = shim($vfs).base;
            match (*base).$method {
                Some(method) => method(base, $($arg),*),
                None => $absent,
            }
        }
    }};
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    base!(vfs, xDelete(name, sync_dir), ffi::SQLITE_IOERR_DELETE)
}

unsafe extern "C" fn access(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, how: c_int, out: *mut c_int) -> c_int {
    base!(vfs, xAccess(name, how, out), ffi::SQLITE_IOERR_ACCESS)
}

unsafe extern "C" fn full_pathname(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    len: c_int,
    out: *mut c_char,
) -> c_int {
    base!(vfs, xFullPathname(name, len, out), ffi::SQLITE_CANTOPEN)
}

unsafe extern "C" fn dl_open(vfs: *mut ffi::sqlite3_vfs, name: *const c_char) -> *mut c_void {
    base!(vfs, xDlOpen(name), std::ptr::null_mut())
}

unsafe extern "C" fn dl_error(vfs: *mut ffi::sqlite3_vfs, len: c_int, out: *mut c_char) {
    base!(vfs, xDlError(len, out), ());
}

unsafe extern "C" fn dl_sym(
    vfs: *mut ffi::sqlite3_vfs,
    library: *mut c_void,
    symbol: *const c_char,
) -> Option<unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *mut c_void, *const c_char)> {
    base!(vfs, xDlSym(library, symbol), None)
}

unsafe extern "C" fn dl_close(vfs: *mut ffi::sqlite3_vfs, library: *mut c_void) {
    base!(vfs, xDlClose(library), ());
}

unsafe extern "C" fn randomness(vfs: *mut ffi::sqlite3_vfs, len: c_int, out: *mut c_char) -> c_int {
    base!(vfs, xRandomness(len, out), 0)
}

unsafe extern "C" fn sleep(vfs: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    base!(vfs, xSleep(micros), 0)
}

unsafe extern "C" fn get_last_error(vfs: *mut ffi::sqlite3_vfs, len: c_int, out: *mut c_char) -> c_int {
    base!(vfs, xGetLastError(len, out), 0)
}

unsafe extern "C" fn current_time_int64(vfs: *mut ffi::sqlite3_vfs, out: *mut ffi::sqlite3_int64) -> c_int {
    if let Some(millis) = clock::julian_millis() {
        // SAFETY: SQLite passes a place for one number.
        unsafe { *out = millis };
        return ffi::SQLITE_OK;
    }
    let mut days = 0.0;
    // SAFETY: as above; the base gets its own VFS and a place of the right type.
    unsafe {
        let base = shim(vfs).base;
        match (*base).xCurrentTimeInt64.filter(|_| (*base).iVersion >= 2) {
            Some(method) => return method(base, out),
            None => match (*base).xCurrentTime {
                Some(method) if method(base, &raw mut days) == ffi::SQLITE_OK => *out = clock::millis_of_days(days),
                _ => return ffi::SQLITE_ERROR,
            },
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time(vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    let mut millis = 0;
    // SAFETY: `vfs` is what SQLite passed, and `millis` is a place for one number.
    let code = unsafe { current_time_int64(vfs, &raw mut millis) };
    if code == ffi::SQLITE_OK {
        // SAFETY: SQLite passes a place for one number.
        unsafe { *out = clock::days_of_millis(millis) };
    }
    code
}
