//! The write connection together with its prepared statements, in one value that can be sent to another thread.
//!
//! Invariants:
//! - The connection stays at one address on the heap from [`Database::new`] to the end of the drop, and every statement
//!   is dropped before it.
//! - No statement leaves this value: callers get borrows that end before the next call with `&mut self`.
//! - At most [`STATEMENTS_MAX`] statements of users are kept; the least recently used one is dropped to make room.
//! - `places` maps the text of each kept statement to its index in `kept`, and contains no other text.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::validate::text_hash::TextHash;
use rusqlite::types::ToSql;
use rusqlite::{Connection, Params, PrepFlags, Row, Rows, Statement, StatementStatus};

/// The most statements of users that are kept prepared.
pub(crate) const STATEMENTS_MAX: usize = 256;

/// A connection and its prepared statements, each of which carries a note `T`.
pub(crate) struct Database<T> {
    kept: Vec<Kept<T>>,
    /// The index in `kept` of the statement with a text.
    places: HashMap<Arc<str>, usize, TextHash>,
    /// The index of the statement that was looked up last: it is often looked up again.
    latest: usize,
    own: Vec<(&'static str, Statement<'static>)>,
    uses: u64,
    connection: NonNull<Connection>,
}

struct Kept<T> {
    sql: Arc<str>,
    statement: Statement<'static>,
    note: T,
    last_use: u64,
}

// SAFETY: `Connection` is `Send`. A `Statement` is not `Send` only because it borrows the connection and uses it
// without synchronisation. Here both are in one value, are sent together, and are used through `&mut Database` or, for
// the connection, through a borrow of a value that is not `Sync`.
unsafe impl<T: Send> Send for Database<T> {}

impl<T> Database<T> {
    pub(crate) fn new(connection: Connection) -> Self {
        let connection = NonNull::from(Box::leak(Box::new(connection)));
        let (kept, places) = (Vec::new(), HashMap::default());
        Self { kept, places, latest: 0, own: Vec::new(), uses: 0, connection }
    }

    pub(crate) fn connection(&self) -> &Connection {
        // SAFETY: the pointer was made from a leaked box in `new`, which is freed only in `drop`. It is only ever
        // borrowed as shared.
        unsafe { self.connection.as_ref() }
    }

    /// Runs one of the store's own statements, which are never dropped from the cache.
    pub(crate) fn execute(&mut self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.own(sql)?.execute(params)
    }

    /// Drops the values of the last run of one of the store's own statements, which SQLite keeps until the next run.
    pub(crate) fn drop_values(&mut self, sql: &'static str) -> rusqlite::Result<()> {
        self.own(sql).map(Statement::clear_bindings)
    }

    /// Runs one of the store's own statements, and returns its rows.
    pub(crate) fn rows(&mut self, sql: &'static str, params: impl Params) -> rusqlite::Result<Rows<'_>> {
        self.own(sql)?.query(params)
    }

    /// Runs one of the store's own statements, whatever number of rows it changes.
    pub(crate) fn change(&mut self, sql: &'static str, params: impl Params) -> rusqlite::Result<()> {
        self.execute(sql, params).map(drop)
    }

    /// Returns the first row of one of the store's own statements.
    pub(crate) fn first_row<R, E: From<rusqlite::Error>>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<R, E>,
    ) -> Result<Option<R>, E> {
        self.rows(sql, params)?.next()?.map(read).transpose()
    }

    /// Hands on the rows of one of the store's own statements, as long as `visit` wants more.
    pub(crate) fn visit_rows<R, E: From<rusqlite::Error>>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Result<R, E>,
        visit: &mut dyn FnMut(R) -> ControlFlow<()>,
    ) -> Result<(), E> {
        let mut rows = self.rows(sql, params)?;
        while let Some(row) = rows.next()? {
            if visit(read(row)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn own(&mut self, sql: &'static str) -> rusqlite::Result<&mut Statement<'static>> {
        let same = |(text, _): &(&'static str, _)| std::ptr::eq(text.as_ptr(), sql.as_ptr()) && text.len() == sql.len();
        if let Some(place) = self.own.iter().position(same) {
            return self.own.get_mut(place).map(|(_, statement)| statement).ok_or(rusqlite::Error::InvalidQuery);
        }
        let statement = self.prepared(sql)?;
        self.own.push((sql, statement));
        self.own.last_mut().map(|(_, statement)| statement).ok_or(rusqlite::Error::InvalidQuery)
    }

    /// Returns whether a user's statement with this text is kept.
    pub(crate) fn holds(&mut self, sql: &str) -> bool {
        self.place(sql).is_some()
    }

    fn place(&mut self, sql: &str) -> Option<usize> {
        if self.kept.get(self.latest).is_none_or(|kept| *kept.sql != *sql) {
            self.latest = *self.places.get(sql)?;
        }
        Some(self.latest)
    }

    /// Prepares a user's statement, and keeps it with the result of `note`, unless that is an error.
    pub(crate) fn prepare<E: From<rusqlite::Error>>(
        &mut self,
        sql: &str,
        note: impl FnOnce(&Statement<'_>) -> Result<T, E>,
    ) -> Result<(), E> {
        let statement = self.prepared(sql)?;
        let note = note(&statement)?;
        self.forget(sql);
        self.make_room();
        let sql: Arc<str> = sql.into();
        self.places.insert(Arc::clone(&sql), self.kept.len());
        self.kept.push(Kept { sql, statement, note, last_use: self.uses });
        Ok(())
    }

    /// Returns a kept statement.
    pub(crate) fn get(&mut self, sql: &str) -> Option<Prepared<'_, T>> {
        self.uses += 1;
        let place = self.place(sql)?;
        let kept = self.kept.get_mut(place)?;
        kept.last_use = self.uses;
        Some(Prepared { kept })
    }

    /// Drops a user's statement.
    pub(crate) fn forget(&mut self, sql: &str) {
        let Some(place) = self.places.remove(sql) else { return };
        self.kept.swap_remove(place);
        if let Some(moved) = self.kept.get(place) {
            self.places.insert(Arc::clone(&moved.sql), place);
        }
    }

    /// Drops all statements of users.
    pub(crate) fn flush(&mut self) {
        self.places.clear();
        self.kept.clear();
    }

    fn prepared(&self, sql: &str) -> rusqlite::Result<Statement<'static>> {
        // SAFETY: the connection outlives the statement, because the statement stays in this value: see `new` and
        // `drop`.
        let connection: &'static Connection = unsafe { self.connection.as_ref() };
        connection.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT)
    }

    fn make_room(&mut self) {
        if self.kept.len() < STATEMENTS_MAX {
            return;
        }
        let oldest = self.kept.iter().min_by_key(|kept| kept.last_use).map(|kept| Arc::clone(&kept.sql));
        if let Some(sql) = oldest {
            self.forget(&sql);
        }
    }
}

impl<T> Drop for Database<T> {
    fn drop(&mut self) {
        self.kept.clear();
        self.own.clear();
        // SAFETY: this is the box that `new` leaked; no statement borrows it any more, and nothing uses it after this.
        drop(unsafe { Box::from_raw(self.connection.as_ptr()) });
    }
}

/// A borrowed statement of a user.
pub(crate) struct Prepared<'a, T> {
    kept: &'a mut Kept<T>,
}

impl<T> Prepared<'_, T> {
    pub(crate) fn note(&self) -> &T {
        &self.kept.note
    }

    pub(crate) fn note_mut(&mut self) -> &mut T {
        &mut self.kept.note
    }

    pub(crate) fn statement(&self) -> &Statement<'_> {
        &self.kept.statement
    }

    pub(crate) fn parameter_count(&self) -> usize {
        self.kept.statement.parameter_count()
    }

    /// Returns the number of the parameter with this name, spelled as in the statement.
    pub(crate) fn parameter_number(&self, name: &str) -> Option<usize> {
        self.kept.statement.parameter_index(name).ok().flatten()
    }

    pub(crate) fn bind(&mut self, number: usize, value: impl ToSql) -> rusqlite::Result<()> {
        self.kept.statement.raw_bind_parameter(number, value)
    }

    pub(crate) fn clear_bindings(&mut self) {
        self.kept.statement.clear_bindings();
    }

    /// Runs the statement from its current state: its start, or the row at which earlier rows were leaked with
    /// `mem::forget`. Dropping the rows resets the statement.
    pub(crate) fn rows(&mut self) -> Rows<'_> {
        self.kept.statement.raw_query()
    }

    /// Runs the statement, which must return no rows; returns how many rows it changed.
    pub(crate) fn execute(&mut self) -> rusqlite::Result<u64> {
        self.kept.statement.raw_execute().map(|changes| changes as u64)
    }

    pub(crate) fn columns(&self) -> Vec<String> {
        self.kept.statement.column_names().map(str::to_owned).collect()
    }

    pub(crate) fn column_count(&self) -> usize {
        self.kept.statement.column_count()
    }

    /// Resets the counter of steps to zero.
    pub(crate) fn forget_steps(&self) {
        self.kept.statement.reset_status(StatementStatus::VmStep);
    }

    /// Returns the steps since the counter was reset, modulo 2^32, without the steps of statements that SQLite ran
    /// inside this one.
    #[expect(clippy::cast_sign_loss, reason = "SQLite counts modulo 2^32 and returns the count as a signed number")]
    pub(crate) fn steps(&self) -> u32 {
        self.kept.statement.get_status(StatementStatus::VmStep) as u32
    }
}
