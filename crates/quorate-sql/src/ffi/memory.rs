//! A layer over SQLite's allocator that counts large blocks for [`usage`](crate::usage), and lets it check the
//! deadline.
//!
//! Invariants: every block comes from SQLite's own allocator and has the size that this reports; a refused request has
//! no effect. The layer is installed before SQLite is used for the first time in the process, or never.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use rusqlite::ffi;

use crate::usage::{LARGE, Refusal, ask, grow, refused, shrink};

/// SQLite's own allocator.
static BASE: OnceLock<Base> = OnceLock::new();

type Malloc = unsafe extern "C" fn(c_int) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Size = unsafe extern "C" fn(*mut c_void) -> c_int;

struct Base {
    malloc: Malloc,
    realloc: Realloc,
    free: Free,
    size: Size,
}

/// Installs the layer; returns `false` if SQLite was used before and keeps its allocator. To be called once.
pub(crate) fn install() -> bool {
    let mut methods = ffi::sqlite3_mem_methods {
        xMalloc: None,
        xFree: None,
        xRealloc: None,
        xSize: None,
        xRoundup: None,
        xInit: None,
        xShutdown: None,
        pAppData: std::ptr::null_mut(),
    };
    // SAFETY: this setting takes a place for the methods, which outlives the call. Once SQLite is in use, it refuses
    // this call and the one below.
    let code = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, &raw mut methods) };
    let base = match (methods.xMalloc, methods.xRealloc, methods.xFree, methods.xSize) {
        (Some(malloc), Some(realloc), Some(free), Some(size)) if code == ffi::SQLITE_OK => {
            Base { malloc, realloc, free, size }
        }
        _ => return false,
    };
    if BASE.set(base).is_err() {
        return false;
    }
    methods.xMalloc = Some(malloc);
    methods.xRealloc = Some(realloc);
    methods.xFree = Some(free);
    // SAFETY: the methods are complete and consistent, and are copied. The methods that are not replaced are SQLite's
    // own. If another thread's first use of SQLite happens at the same moment, it may see some of these methods and
    // some of SQLite's own; both work on the same blocks.
    (unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw const methods) }) == ffi::SQLITE_OK
}

/// Returns the size of a block in bytes.
///
/// # Safety
///
/// `block` must be a block of this allocator.
unsafe fn size(base: &Base, block: *mut c_void) -> usize {
    // SAFETY: as promised by the caller.
    usize::try_from(unsafe { (base.size)(block) }).unwrap_or(0)
}

unsafe extern "C" fn malloc(bytes: c_int) -> *mut c_void {
    let Some(base) = BASE.get() else { return std::ptr::null_mut() };
    let wanted = usize::try_from(bytes).unwrap_or(0);
    let counted = wanted >= LARGE;
    if !ask(wanted) || counted && !grow(wanted) {
        return std::ptr::null_mut();
    }
    // SAFETY: calls SQLite's own method with the argument that SQLite passed.
    let block = unsafe { (base.malloc)(bytes) };
    if block.is_null() {
        refused(Refusal::System);
        if counted {
            shrink(wanted);
        }
    }
    block
}

unsafe extern "C" fn realloc(block: *mut c_void, bytes: c_int) -> *mut c_void {
    let Some(base) = BASE.get() else { return std::ptr::null_mut() };
    let counted = |bytes: usize| if bytes < LARGE { 0 } else { bytes };
    let bytes_wanted = usize::try_from(bytes).unwrap_or(0);
    let wanted = counted(bytes_wanted);
    // SAFETY: SQLite calls with a block of this allocator.
    let had = counted(unsafe { size(base, block) });
    if !ask(bytes_wanted) || wanted > had && !grow(wanted.saturating_sub(had)) {
        return std::ptr::null_mut();
    }
    // SAFETY: calls SQLite's own method with the arguments that SQLite passed.
    let moved = unsafe { (base.realloc)(block, bytes) };
    if moved.is_null() {
        refused(Refusal::System);
    }
    match (moved.is_null(), wanted > had) {
        (true, true) => shrink(wanted.saturating_sub(had)),
        (false, false) => shrink(had.saturating_sub(wanted)),
        _ => {}
    }
    moved
}

unsafe extern "C" fn free(block: *mut c_void) {
    let Some(base) = BASE.get() else { return };
    // SAFETY: SQLite calls with a block of this allocator, and does not use it afterwards.
    unsafe {
        let bytes = size(base, block);
        if bytes >= LARGE {
            shrink(bytes);
        }
        (base.free)(block);
    }
}
