//! SQL functions with access to their arguments like that of the built-in functions.
//!
//! rusqlite offers an argument only in its storage class. The built-in functions that are replaced here read numbers as
//! the texts into which SQLite converts them, and use subtypes.
//!
//! Invariant: an argument is converted at most once, and the converted value stays until the call ends, so that what
//! [`Call::bytes`] returns stays valid.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, ffi};

use crate::usage::{Buffer, NoMemory};

/// The storage class of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Integer,
    Real,
    Text,
    Blob,
}

/// What a function returns.
pub(crate) enum Answer<'a> {
    Null,
    Integer(i64),
    /// A text that is an argument, or a part of one.
    Part(&'a [u8]),
    Text(Buffer),
    /// A text with the subtype of JSON.
    Json(Buffer),
    Blob(Buffer),
}

/// Why a function fails.
#[derive(Debug)]
pub(crate) enum Failed {
    /// With this text.
    Text(String),
    /// With SQLite's error for a value that is too large.
    TooBig,
    NoMemory,
    /// With an error of SQLite.
    Code(c_int),
}

impl From<NoMemory> for Failed {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// The subtype of the results of JSON functions.
const JSON_SUBTYPE: u32 = b'J' as u32;

/// Returns a number in the way that SQLite writes it in JSON.
pub(crate) fn json_real(value: f64) -> Vec<u8> {
    let mut text = [0_u8; 100];
    let length = c_int::try_from(text.len()).unwrap_or(0);
    // SAFETY: SQLite writes at most `length` bytes, the last of them NUL, and the format takes one double.
    unsafe { ffi::sqlite3_snprintf(length, text.as_mut_ptr().cast(), c"%!0.17g".as_ptr(), value) };
    text.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// A call of a function.
pub(crate) struct Call<'a> {
    context: *mut ffi::sqlite3_context,
    arguments: &'a [*mut ffi::sqlite3_value],
}

impl<'a> Call<'a> {
    pub(crate) fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Returns the storage class of an argument; a missing argument is NULL.
    pub(crate) fn kind(&self, number: usize) -> Kind {
        let Some(&value) = self.arguments.get(number) else { return Kind::Null };
        // SAFETY: SQLite's arguments are valid during the call.
        match unsafe { ffi::sqlite3_value_type(value) } {
            ffi::SQLITE_INTEGER => Kind::Integer,
            ffi::SQLITE_FLOAT => Kind::Real,
            ffi::SQLITE_TEXT => Kind::Text,
            ffi::SQLITE_BLOB => Kind::Blob,
            _ => Kind::Null,
        }
    }

    /// Returns the bytes of a text or blob, or of the text into which SQLite converts a number; `None` for NULL.
    pub(crate) fn bytes(&self, number: usize) -> Result<Option<&'a [u8]>, Failed> {
        let (kind, Some(&value)) = (self.kind(number), self.arguments.get(number)) else { return Ok(None) };
        if kind == Kind::Null {
            return Ok(None);
        }
        // SAFETY: the value is valid during the call, and its class is checked first: a blob is never converted to a
        // text, so no later call moves these bytes.
        let (start, length) = unsafe {
            let start = match kind {
                Kind::Blob => ffi::sqlite3_value_blob(value).cast::<u8>(),
                _ => ffi::sqlite3_value_text(value),
            };
            (start, ffi::sqlite3_value_bytes(value))
        };
        match usize::try_from(length) {
            Ok(0) if kind == Kind::Blob || !start.is_null() => Ok(Some(&[])),
            // SAFETY: SQLite keeps `length` bytes there until the call ends.
            Ok(length) if !start.is_null() => Ok(Some(unsafe { std::slice::from_raw_parts(start, length) })),
            _ => Err(Failed::NoMemory),
        }
    }

    /// Returns whether an argument is a text that a JSON function has returned.
    pub(crate) fn is_json(&self, number: usize) -> bool {
        // SAFETY: the value is valid during the call.
        self.arguments.get(number).is_some_and(|&value| unsafe { ffi::sqlite3_value_subtype(value) } == JSON_SUBTYPE)
    }

    /// Returns an argument as an integer, converted by SQLite.
    pub(crate) fn integer(&self, number: usize) -> i64 {
        // SAFETY: the value is valid during the call.
        self.arguments.get(number).map_or(0, |&value| unsafe { ffi::sqlite3_value_int64(value) })
    }

    /// Returns an argument as a floating-point number, converted by SQLite.
    pub(crate) fn real(&self, number: usize) -> f64 {
        // SAFETY: the value is valid during the call.
        self.arguments.get(number).map_or(0.0, |&value| unsafe { ffi::sqlite3_value_double(value) })
    }

    /// Returns one of the limits of the connection.
    pub(crate) fn limit(&self, id: c_int) -> usize {
        // SAFETY: the context belongs to an open connection.
        let limit = unsafe { ffi::sqlite3_limit(ffi::sqlite3_context_db_handle(self.context), id, -1) };
        usize::try_from(limit).unwrap_or(0)
    }

    pub(super) fn answer(&self, answer: Result<Answer<'_>, Failed>) {
        match answer {
            // SAFETY: here and below, the context is valid during the call, and SQLite copies the value.
            Ok(Answer::Null) => unsafe { ffi::sqlite3_result_null(self.context) },
            // SAFETY: see above.
            Ok(Answer::Integer(value)) => unsafe { ffi::sqlite3_result_int64(self.context, value) },
            Ok(Answer::Part(text)) => self.text(text),
            Ok(Answer::Text(text)) => self.text(&text),
            Ok(Answer::Json(text)) => {
                self.text(&text);
                // SAFETY: see above.
                unsafe { ffi::sqlite3_result_subtype(self.context, JSON_SUBTYPE) };
            }
            Ok(Answer::Blob(bytes)) => {
                let (start, length) = (bytes.as_ptr().cast::<c_void>(), bytes.len() as u64);
                // SAFETY: see above.
                unsafe { ffi::sqlite3_result_blob64(self.context, start, length, ffi::SQLITE_TRANSIENT()) };
            }
            Err(failed) => self.fail(&failed),
        }
    }

    fn text(&self, text: &[u8]) {
        let (start, length, encoding) = (text.as_ptr().cast(), text.len() as u64, ffi::SQLITE_UTF8 as u8);
        // SAFETY: the context is valid during the call, and SQLite copies the text.
        unsafe { ffi::sqlite3_result_text64(self.context, start, length, ffi::SQLITE_TRANSIENT(), encoding) };
    }

    fn fail(&self, failed: &Failed) {
        match failed {
            Failed::Text(text) => {
                let length = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
                // SAFETY: the context is valid during the call, and SQLite copies the text.
                unsafe { ffi::sqlite3_result_error(self.context, text.as_ptr().cast(), length) };
            }
            // SAFETY: the context is valid during the call.
            Failed::TooBig => unsafe { ffi::sqlite3_result_error_toobig(self.context) },
            // SAFETY: the context is valid during the call.
            Failed::NoMemory => unsafe { ffi::sqlite3_result_error_nomem(self.context) },
            // SAFETY: the context is valid during the call.
            Failed::Code(code) => unsafe { ffi::sqlite3_result_error_code(self.context, *code) },
        }
    }
}

/// The wildcards of a function that the planner may treat as LIKE or GLOB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wildcards {
    /// The wildcards for any text and for one character, and the start of a set, in the order of SQLite's
    /// `compareInfo`.
    pub(crate) signs: [u8; 3],
    pub(crate) ignores_case: bool,
}

/// The user data of a function. SQLite reads its first bytes as the wildcards of the function, so `signs` comes first.
#[repr(C)]
struct Kept<F> {
    signs: [u8; 3],
    ignores_case: bool,
    arguments: i16,
    is_known_to_planner: AtomicBool,
    function: F,
}

/// The flags of all functions of this module: they have no side effects.
const HARMLESS: c_int = ffi::SQLITE_UTF8 | ffi::SQLITE_INNOCUOUS;

/// The flags of functions that depend only on their arguments.
const FLAGS: c_int = HARMLESS | ffi::SQLITE_DETERMINISTIC;

/// The flags of functions that may return JSON.
const JSON_FLAGS: c_int = FLAGS | ffi::SQLITE_RESULT_SUBTYPE;

/// Replaces a function of the connection.
pub(crate) fn scalar<F>(
    conn: &Connection,
    name: &CStr,
    arguments: i16,
    wildcards: Option<Wildcards>,
    function: F,
) -> rusqlite::Result<()>
where
    F: for<'a> Fn(&Call<'a>) -> Result<Answer<'a>, Failed> + Send + 'static,
{
    create(conn, name, arguments, wildcards, if wildcards.is_some() { FLAGS } else { JSON_FLAGS }, function)
}

/// As [`scalar`], for a function that may return different values for the same arguments.
pub(crate) fn volatile<F>(conn: &Connection, name: &CStr, arguments: i16, function: F) -> rusqlite::Result<()>
where
    F: for<'a> Fn(&Call<'a>) -> Result<Answer<'a>, Failed> + Send + 'static,
{
    create(conn, name, arguments, None, HARMLESS, function)
}

fn create<F>(
    conn: &Connection,
    name: &CStr,
    arguments: i16,
    wildcards: Option<Wildcards>,
    flags: c_int,
    function: F,
) -> rusqlite::Result<()>
where
    F: for<'a> Fn(&Call<'a>) -> Result<Answer<'a>, Failed> + Send + 'static,
{
    // SAFETY: only SQLite calls it, with a context whose user data is given below.
    unsafe extern "C" fn call<F>(context: *mut ffi::sqlite3_context, count: c_int, values: *mut *mut ffi::sqlite3_value)
    where
        F: for<'a> Fn(&Call<'a>) -> Result<Answer<'a>, Failed>,
    {
        // SAFETY: the context is valid during the call, and its user data is what is given below.
        let kept = unsafe { &*ffi::sqlite3_user_data(context).cast::<Kept<F>>() };
        if !kept.is_known_to_planner.swap(true, Ordering::Relaxed) {
            // SAFETY: `kept` is the user data with which the function of this context was registered.
            unsafe { tell_planner(context, kept) };
        }
        // SAFETY: SQLite passes `count` arguments, which are valid during the call.
        let call = unsafe { call_of(context, count, values) };
        call.answer((kept.function)(&call));
    }
    let Wildcards { signs, ignores_case } = wildcards.unwrap_or_default();
    let is_known_to_planner = AtomicBool::new(wildcards.is_none());
    let kept = Box::into_raw(Box::new(Kept { signs, ignores_case, arguments, is_known_to_planner, function })).cast();
    // SAFETY: the handle is open, the name ends with NUL, and the callbacks fit `kept`, which SQLite releases, also on
    // failure.
    let code = unsafe {
        let release = Some(release::<Kept<F>> as unsafe extern "C" fn(*mut c_void));
        let (handle, count) = (conn.handle(), arguments.into());
        ffi::sqlite3_create_function_v2(handle, name.as_ptr(), count, flags, kept, Some(call::<F>), None, None, release)
    };
    check(code)
}

/// An aggregate function, which can also be used as a window function.
pub(crate) trait Aggregate: Send + 'static {
    /// The state of a group of rows.
    type Group: Default;

    /// Adds a row.
    fn step(&self, call: &Call<'_>, group: &mut Self::Group) -> Result<(), Failed>;

    /// Removes the oldest row.
    fn inverse(&self, call: &Call<'_>, group: &mut Self::Group) -> Result<(), Failed>;

    /// Returns the result for the rows, of which there may be none.
    fn value(&self, call: &Call<'_>, group: &Self::Group) -> Result<Answer<'static>, Failed>;
}

/// Replaces an aggregate of the connection; it may take and return JSON.
pub(crate) fn aggregate<A: Aggregate>(
    conn: &Connection,
    name: &CStr,
    arguments: i16,
    function: A,
) -> rusqlite::Result<()> {
    let kept = Box::into_raw(Box::new(function)).cast();
    let flags = FLAGS | ffi::SQLITE_SUBTYPE | ffi::SQLITE_RESULT_SUBTYPE;
    // SAFETY: the handle is open, the name ends with NUL, and the callbacks fit `kept`, which SQLite releases, also on
    // failure.
    let code = unsafe {
        ffi::sqlite3_create_window_function(
            conn.handle(),
            name.as_ptr(),
            arguments.into(),
            flags,
            kept,
            Some(step::<A>),
            Some(finish::<A>),
            Some(value::<A>),
            Some(inverse::<A>),
            Some(release::<A>),
        )
    };
    check(code)
}

/// Returns the place where SQLite keeps the pointer to the current group: null until its first row.
///
/// # Safety
///
/// The context must be that of a call of an aggregate with groups of this type, and the place must not be used after
/// that call.
unsafe fn group_of<'a, G>(context: *mut ffi::sqlite3_context) -> Option<&'a mut *mut G> {
    let size = c_int::try_from(size_of::<*mut G>()).unwrap_or(0);
    // SAFETY: SQLite keeps `size` bytes for the group, aligned for a pointer and initially zero, and nothing else uses
    // them meanwhile.
    unsafe { ffi::sqlite3_aggregate_context(context, size).cast::<*mut G>().as_mut() }
}

unsafe extern "C" fn step<A: Aggregate>(
    context: *mut ffi::sqlite3_context,
    count: c_int,
    values: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: the arguments are those that SQLite passes to a callback of this aggregate.
    unsafe { change::<A>(context, count, values, A::step) };
}

unsafe extern "C" fn inverse<A: Aggregate>(
    context: *mut ffi::sqlite3_context,
    count: c_int,
    values: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: the arguments are those that SQLite passes to a callback of this aggregate.
    unsafe { change::<A>(context, count, values, A::inverse) };
}

/// # Safety
///
/// The context, count and values must be those that SQLite passes to a callback of the aggregate.
unsafe fn change<A: Aggregate>(
    context: *mut ffi::sqlite3_context,
    count: c_int,
    values: *mut *mut ffi::sqlite3_value,
    change: impl FnOnce(&A, &Call<'_>, &mut A::Group) -> Result<(), Failed>,
) {
    // SAFETY: promised by the caller; the user data is what `aggregate` registered.
    let (call, function, place) = unsafe {
        let function = &*ffi::sqlite3_user_data(context).cast::<A>();
        (call_of(context, count, values), function, group_of::<A::Group>(context))
    };
    let Some(place) = place else { return call.fail(&Failed::NoMemory) };
    if place.is_null() {
        *place = Box::into_raw(Box::default());
    }
    // SAFETY: the pointer is to a box that was leaked above, in this call or an earlier one, and that `finish` frees.
    let group = unsafe { &mut **place };
    if let Err(failed) = change(function, &call, group) {
        call.fail(&failed);
    }
}

unsafe extern "C" fn value<A: Aggregate>(context: *mut ffi::sqlite3_context) {
    // SAFETY: as in `change`.
    let (call, function, place) = unsafe {
        let function = &*ffi::sqlite3_user_data(context).cast::<A>();
        (call_of(context, 0, std::ptr::null_mut()), function, group_of::<A::Group>(context))
    };
    // SAFETY: the pointer is null, or to the box of the group.
    match place.and_then(|place| unsafe { place.as_ref() }) {
        Some(group) => call.answer(function.value(&call, group)),
        None => call.answer(function.value(&call, &A::Group::default())),
    }
}

unsafe extern "C" fn finish<A: Aggregate>(context: *mut ffi::sqlite3_context) {
    // SAFETY: SQLite calls `finish` with a context that is also valid for `value`.
    unsafe { value::<A>(context) };
    // SAFETY: as in `change`.
    if let Some(place) = unsafe { group_of::<A::Group>(context) } {
        let group = std::mem::replace(place, std::ptr::null_mut());
        if !group.is_null() {
            // SAFETY: this is the box that `change` leaked; the place is null from now on.
            drop(unsafe { Box::from_raw(group) });
        }
    }
}

pub(super) unsafe extern "C" fn release<T>(kept: *mut c_void) {
    // SAFETY: SQLite calls this once, with the pointer that was registered together with this function.
    drop(unsafe { Box::from_raw(kept.cast::<T>()) });
}

pub(super) fn check(code: c_int) -> rusqlite::Result<()> {
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)) }
}

/// # Safety
///
/// The arguments must be those that SQLite passes to a callback, which must not have returned yet.
pub(super) unsafe fn call_of<'a>(
    context: *mut ffi::sqlite3_context,
    count: c_int,
    values: *mut *mut ffi::sqlite3_value,
) -> Call<'a> {
    let arguments = match usize::try_from(count) {
        // SAFETY: there are `count` values, as promised by the caller.
        Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(values, count) },
        _ => &[],
    };
    Call { context, arguments }
}

/// The version of SQLite for which the structures below are correct.
const KNOWN_SQLITE: c_int = 3_054_001;

/// The beginning of SQLite's `sqlite3_context`.
#[repr(C)]
struct ContextHead {
    out: *mut c_void,
    function: *mut FunctionHead,
}

/// The beginning of SQLite's `FuncDef`.
#[repr(C)]
struct FunctionHead {
    arguments: i16,
    flags: u32,
    user_data: *mut c_void,
}

/// SQLite's `SQLITE_FUNC_LIKE`: the planner may use an index for the literal beginning of a pattern. It reads the
/// wildcards from the first bytes of the user data.
const FUNC_LIKE: u32 = 0x4;

/// SQLite's `SQLITE_FUNC_CASE`: the function is case-sensitive.
const FUNC_CASE: u32 = 0x8;

/// Tells the planner that a function is LIKE or GLOB; SQLite sets these flags only for its own forms. Without them
/// queries return the right rows, but use no index for a pattern.
///
/// # Safety
///
/// `kept` must be the user data of the function to which the context belongs.
unsafe fn tell_planner<F>(context: *mut ffi::sqlite3_context, kept: &Kept<F>) {
    // SAFETY: this call has no requirements; it returns a number.
    if unsafe { ffi::sqlite3_libversion_number() } != KNOWN_SQLITE {
        return;
    }
    // SAFETY: in this version of SQLite, which is built in, the structures begin like this. The function belongs to
    // this connection and is not shared between connections, because it has our user data. Only the thread that uses
    // the connection reads or writes it.
    unsafe {
        let function = (*context.cast::<ContextHead>()).function;
        let is_ours = std::ptr::eq((*function).user_data, std::ptr::from_ref(kept).cast::<c_void>().cast_mut());
        if is_ours && (*function).arguments == kept.arguments {
            (*function).flags |= if kept.ignores_case { FUNC_LIKE } else { FUNC_LIKE | FUNC_CASE };
        }
    }
}
