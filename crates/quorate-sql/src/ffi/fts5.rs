//! Auxiliary functions of FTS5: access to the row and the query for which they are called.
//!
//! Invariant: what FTS5 lends, such as the texts of columns, is used only until the call ends.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use rusqlite::{Connection, ffi};

use super::functions::{Answer, Call, Failed, call_of, check, release};

/// A row that a query has found.
pub(crate) struct Found<'a> {
    api: &'a ffi::Fts5ExtensionApi,
    context: *mut ffi::Fts5Context,
    /// The call, with its arguments.
    pub(crate) call: Call<'a>,
}

/// An occurrence of a phrase of the query in the row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instance {
    pub(crate) phrase: usize,
    pub(crate) column: usize,
    /// The number of its first token.
    pub(crate) token: i64,
}

/// A token of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// The offset of its first byte.
    pub(crate) start: usize,
    /// The offset after its last byte.
    pub(crate) end: usize,
}

/// Whether more tokens are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Yes,
    No,
}

impl<'a> Found<'a> {
    pub(crate) fn columns(&self) -> usize {
        // SAFETY: here and below, the context is valid during the call, and each output place outlives the method call.
        self.api.xColumnCount.map_or(0, |count| number(unsafe { count(self.context) }))
    }

    /// Returns the number of phrases in the query.
    pub(crate) fn phrases(&self) -> usize {
        // SAFETY: see above.
        self.api.xPhraseCount.map_or(0, |count| number(unsafe { count(self.context) }))
    }

    /// Returns the number of tokens in a phrase.
    pub(crate) fn phrase_tokens(&self, phrase: usize) -> i64 {
        let phrase = c_int::try_from(phrase).unwrap_or(c_int::MAX);
        // SAFETY: see above.
        self.api.xPhraseSize.map_or(0, |size| unsafe { size(self.context, phrase) }).into()
    }

    /// Returns the number of instances of phrases in the row.
    pub(crate) fn instances(&self) -> Result<usize, Failed> {
        let mut count = 0;
        // SAFETY: see above.
        checked(self.api.xInstCount.map(|instances| unsafe { instances(self.context, &raw mut count) }))?;
        Ok(number(count))
    }

    /// Returns an instance; they are ordered by column and token.
    pub(crate) fn instance(&self, at: usize) -> Result<Instance, Failed> {
        let at = c_int::try_from(at).unwrap_or(c_int::MAX);
        let (mut phrase, mut column, mut token) = (0, 0, 0);
        let instance = |get: unsafe extern "C" fn(_, _, _, _, _) -> c_int| {
            // SAFETY: see above.
            unsafe { get(self.context, at, &raw mut phrase, &raw mut column, &raw mut token) }
        };
        checked(self.api.xInst.map(instance))?;
        Ok(Instance { phrase: number(phrase), column: number(column), token: token.into() })
    }

    /// Returns the number of tokens in a column.
    pub(crate) fn column_tokens(&self, column: usize) -> Result<i64, Failed> {
        let (column, mut size) = (c_int::try_from(column).unwrap_or(c_int::MAX), 0);
        // SAFETY: see above.
        checked(self.api.xColumnSize.map(|tokens| unsafe { tokens(self.context, column, &raw mut size) }))?;
        Ok(size.into())
    }

    /// Returns the text of a column, or `None` if the table does not store it.
    pub(crate) fn text(&self, column: usize) -> Result<Option<&'a [u8]>, Failed> {
        // SAFETY: the text stays until the call ends, and `'a` ends with the call.
        Ok(unsafe { self.bytes(column, self.api.xColumnText)? })
    }

    /// Returns bytes that FTS5 lends.
    ///
    /// # Safety
    ///
    /// The bytes must not be used after the call of the function.
    unsafe fn bytes(
        &self,
        column: usize,
        get: Option<unsafe extern "C" fn(*mut ffi::Fts5Context, c_int, *mut *const c_char, *mut c_int) -> c_int>,
    ) -> Result<Option<&'a [u8]>, Failed> {
        let column = c_int::try_from(column).unwrap_or(c_int::MAX);
        let (mut start, mut length) = (std::ptr::null(), 0);
        // SAFETY: see above.
        checked(get.map(|get| unsafe { get(self.context, column, &raw mut start, &raw mut length) }))?;
        // SAFETY: FTS5 has set `start` and `length` to bytes that it lends.
        Ok((!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast::<u8>(), number(length)) }))
    }

    /// Calls `each` with the tokens of the text of a column, in order and without synonyms.
    pub(crate) fn tokens<F>(&self, column: usize, text: &[u8], mut each: F) -> Result<(), Failed>
    where
        F: FnMut(Token) -> Result<More, Failed>,
    {
        // SAFETY: the bytes are used only below, before the call ends.
        let locale = unsafe { self.bytes(column, self.api.xColumnLocale)? }.unwrap_or_default();
        let mut showing = Showing { each: &mut each, result: Ok(()) };
        let code = self.api.xTokenize_v2.map(|tokenize| {
            let (text, text_length) = (text.as_ptr().cast(), c_int::try_from(text.len()).unwrap_or(c_int::MAX));
            let (locale, locale_length) = (locale.as_ptr().cast(), c_int::try_from(locale.len()).unwrap_or(0));
            let place = (&raw mut showing).cast::<c_void>();
            // SAFETY: both texts and `showing` outlive this call, in which FTS5 uses them.
            unsafe { tokenize(self.context, text, text_length, locale, locale_length, place, Some(show::<F>)) }
        });
        match (showing.result, code) {
            (Err(failed), _) => Err(failed),
            (Ok(()), Some(ffi::SQLITE_DONE)) => Ok(()),
            (Ok(()), code) => checked(code),
        }
    }
}

/// The closure that is called with each token, and the error that it returned.
struct Showing<'a, F> {
    each: &'a mut F,
    result: Result<(), Failed>,
}

unsafe extern "C" fn show<F>(
    showing: *mut c_void,
    flags: c_int,
    _token: *const c_char,
    _length: c_int,
    start: c_int,
    end: c_int,
) -> c_int
where
    F: FnMut(Token) -> Result<More, Failed>,
{
    if flags & ffi::FTS5_TOKEN_COLOCATED != 0 {
        return ffi::SQLITE_OK;
    }
    // SAFETY: the pointer is to the value that `tokens` passed, and nothing else uses it meanwhile.
    let showing = unsafe { &mut *showing.cast::<Showing<'_, F>>() };
    match (showing.each)(Token { start: number(start), end: number(end) }) {
        Ok(More::Yes) => ffi::SQLITE_OK,
        Ok(More::No) => ffi::SQLITE_DONE,
        Err(failed) => {
            showing.result = Err(failed);
            ffi::SQLITE_ERROR
        }
    }
}

/// The user data of an auxiliary function.
type Function = Arc<dyn Fn(&Found<'_>) -> Result<Answer<'static>, Failed> + Send + Sync>;

/// Replaces an auxiliary function of the connection.
pub(crate) fn auxiliary(conn: &Connection, name: &CStr, function: Function) -> rusqlite::Result<()> {
    let api = api_of(conn)?;
    let kept = Box::into_raw(Box::new(function)).cast();
    // SAFETY: the connection is open, so its FTS5 API is valid. The name ends with NUL and is copied; the callbacks
    // match the type of `kept`.
    let code = unsafe {
        match (*api).xCreateFunction {
            Some(create) => create(api, name.as_ptr(), kept, Some(call), Some(release::<Function>)),
            None => ffi::SQLITE_MISUSE,
        }
    };
    if code != ffi::SQLITE_OK {
        // SAFETY: FTS5 has failed to register the function, so it does not own `kept`.
        unsafe { release::<Function>(kept) };
    }
    check(code)
}

unsafe extern "C" fn call(
    api: *const ffi::Fts5ExtensionApi,
    row: *mut ffi::Fts5Context,
    context: *mut ffi::sqlite3_context,
    count: c_int,
    values: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: the arguments that FTS5 passes are valid during the call, and the user data is what `auxiliary`
    // registered.
    let (found, function) = unsafe {
        let api = &*api;
        let function = api.xUserData.map(|data| &*data(row).cast::<Function>());
        (Found { api, context: row, call: call_of(context, count, values) }, function)
    };
    if let Some(function) = function {
        found.call.answer(function(&found));
    }
}

/// Returns the API through which a connection's FTS5 is extended.
fn api_of(conn: &Connection) -> rusqlite::Result<*mut ffi::fts5_api> {
    let (mut api, mut statement) = (std::ptr::null_mut::<ffi::fts5_api>(), std::ptr::null_mut());
    // SAFETY: the handle is open, the texts end with NUL, and the place of the pointer outlives the statement, which is
    // finalized here.
    let done = unsafe {
        let sql = c"SELECT fts5(?1)".as_ptr();
        let code = ffi::sqlite3_prepare_v2(conn.handle(), sql, -1, &raw mut statement, std::ptr::null_mut());
        if code == ffi::SQLITE_OK {
            let place = (&raw mut api).cast::<c_void>();
            ffi::sqlite3_bind_pointer(statement, 1, place, c"fts5_api_ptr".as_ptr(), None);
            ffi::sqlite3_step(statement);
        }
        let text = CStr::from_ptr(ffi::sqlite3_errmsg(conn.handle())).to_string_lossy().into_owned();
        ffi::sqlite3_finalize(statement);
        if code == ffi::SQLITE_OK {
            Ok(())
        } else {
            Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(text)))
        }
    };
    done?;
    if api.is_null() { check(ffi::SQLITE_MISUSE).map(|()| api) } else { Ok(api) }
}

/// Converts a count of FTS5, which is an `int` and never negative.
fn number(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// Converts the code that a method returned; `None` means that this version of SQLite lacks the method.
fn checked(code: Option<c_int>) -> Result<(), Failed> {
    match code.unwrap_or(ffi::SQLITE_MISUSE) {
        ffi::SQLITE_OK => Ok(()),
        code => Err(Failed::Code(code)),
    }
}
