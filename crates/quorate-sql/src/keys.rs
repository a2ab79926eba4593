//! The tables of keys in SQLite, on which the logic of `quorate-keys` runs.
//!
//! [`KeyTables`] implements [`Tables`] on a connection, the writer's or a reader's. The tables and the views on them
//! are in [`schema`], the statements in [`statements`].
//!
//! # Invariants
//!
//! - The tables are created when a database is opened, and their rows are a function of the entries: they are compared
//!   between nodes as tables of users are.
//! - Each statement is prepared once for each connection, and finds its rows by an index.
//! - A row that the logic can't have written is damage, and never a panic.
//! - Ids, counts, versions and times are stored as the signed number with the same bits. No time is later than
//!   [`TIME_MAX`](quorate_keys::limits::TIME_MAX), so SQLite compares times as the logic does. It also compares scores
//!   so: a score is never NaN or -0, and infinities are the lowest and the highest double.

use bytes::Bytes;
use quorate_keys::{Element, Id, KeyRow, KeysError, Kind, Order, Part, Place, Score, Space, Span, Tables, Visit};
use quorate_locks::LocksError;
use quorate_model::{StoreFault, Topic};
use rusqlite::{Params, Row, params};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ffi::database::Database;
use crate::usage::{LARGE, NoMemory, copy_uncounted};

pub(crate) mod schema;
mod statements;
#[cfg(test)]
pub(crate) mod tests;

use statements as sql;

/// Why a command on keys or locks did not succeed.
#[derive(Debug)]
pub(crate) enum Ended<E = KeysError> {
    /// It failed, and has written nothing.
    Failed(E),
    /// SQLite failed.
    Sqlite(rusqlite::Error),
    /// The node is in trouble.
    Fault(StoreFault),
}

impl From<KeysError> for Ended {
    fn from(error: KeysError) -> Self {
        Self::Failed(error)
    }
}

impl From<LocksError> for Ended<LocksError> {
    fn from(error: LocksError) -> Self {
        Self::Failed(error)
    }
}

impl<E> From<rusqlite::Error> for Ended<E> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl<E> From<NoMemory> for Ended<E> {
    fn from(none: NoMemory) -> Self {
        Self::Fault(none.into())
    }
}

type Done<T> = Result<T, Ended>;

/// The topic of a key, which is touched when the key changes.
pub fn topic(space: Space, key: &[u8]) -> Topic {
    Topic(xxh3_64_with_seed(key, space.into()))
}

/// The topic of a space, which is touched when all its keys are removed at once; their own topics are not. Who waits
/// for a change of a key, also for its end, waits for both.
pub fn topic_of_space(space: Space) -> Topic {
    Topic(xxh3_64_with_seed(&[], u64::from(space) | 1 << 32))
}

/// The topic of all changes in a space, which each entry touches that changes a key there.
pub fn topic_of_changes(space: Space) -> Topic {
    Topic(xxh3_64_with_seed(&[], u64::from(space) | 2 << 32))
}

/// The tables of keys in the database of a connection.
pub(crate) struct KeyTables<'a, N> {
    database: &'a mut Database<N>,
    /// The earliest time at which something is to be swept that was added here.
    earliest_due: u64,
}

impl<'a, N> KeyTables<'a, N> {
    pub(crate) fn of(database: &'a mut Database<N>) -> Self {
        Self { database, earliest_due: u64::MAX }
    }

    /// Returns the earliest time at which something is to be swept that was added here; `u64::MAX` if nothing was.
    pub(crate) fn earliest_due(&self) -> u64 {
        self.earliest_due
    }

    /// Returns the number of keys of all spaces, and of those of spaces that were flushed.
    pub(crate) fn count_all(&mut self) -> Done<[u64; 2]> {
        let counts = self.database.first_row(sql::COUNT_ALL, [], |row| Ok([unsigned(row, 0)?, unsigned(row, 1)?]));
        counts.map(Option::unwrap_or_default)
    }

    /// Counts another key of a space.
    fn enter(&mut self, space: Space) -> Done<()> {
        if self.database.execute(sql::GROW_SPACE, params![space])? == 0 {
            self.database.change(sql::ADD_SPACE, params![space])?;
        }
        Ok(())
    }

    /// Runs a statement that puts a value into a row, and does not keep the memory of a large one.
    fn put(&mut self, sql: &'static str, params: impl Params, value: &Bytes) -> Done<()> {
        self.database.change(sql, params)?;
        if value.len() >= LARGE {
            self.database.drop_values(sql)?;
        }
        Ok(())
    }

    /// Returns a sum or a count.
    fn number(&mut self, sql: &'static str, params: impl Params) -> Done<u64> {
        self.database.first_row(sql, params, |row| unsigned(row, 0)).map(Option::unwrap_or_default)
    }
}

impl<N> Tables for KeyTables<'_, N> {
    type Error = Ended;

    /// Two statements cost less than one with RETURNING, which makes a table for what it returns.
    fn new_id(&mut self) -> Done<Id> {
        let id = self.number(sql::LAST_ID, [])? + 1;
        self.database.change(sql::SET_LAST_ID, params![id.cast_signed()])?;
        Ok(id)
    }

    fn find_key(&mut self, space: Space, key: &[u8]) -> Done<Option<KeyRow>> {
        self.database.first_row(sql::FIND_KEY, params![space, key], key_row)
    }

    fn key(&mut self, id: Id) -> Done<Option<(Space, Bytes, KeyRow)>> {
        let read = |row: &Row<'_>| Ok((row.get(KEY_COLUMNS + 1)?, blob(row, KEY_COLUMNS)?, key_row(row)?));
        self.database.first_row(sql::KEY, params![id.cast_signed()], read)
    }

    fn add_key(&mut self, space: Space, key: &Bytes, row: &KeyRow) -> Done<()> {
        let (id, kind, [expires_at, due]) = (row.id.cast_signed(), number_of(row.kind), times_of(row));
        let [version, count, volatile] = numbers_of(row);
        let (key, value) = (key.as_ref(), row.value.as_ref());
        self.enter(space)?;
        let values = params![id, space, key, kind, version, expires_at, due, count, volatile, row.head, value];
        self.put(sql::ADD_KEY, values, &row.value)
    }

    fn update_key(&mut self, row: &KeyRow) -> Done<()> {
        let [version, count, volatile] = numbers_of(row);
        let [expires_at, due] = times_of(row);
        let (id, value) = (row.id.cast_signed(), row.value.as_ref());
        let values = params![id, version, expires_at, due, count, volatile, row.head, value];
        self.put(sql::UPDATE_KEY, values, &row.value)
    }

    fn rename_key(&mut self, id: Id, space: Space, key: &Bytes) -> Done<()> {
        self.database.change(sql::SHRINK, params![id.cast_signed()])?;
        self.enter(space)?;
        Ok(self.database.change(sql::RENAME_KEY, params![id.cast_signed(), space, key.as_ref()])?)
    }

    fn remove_key(&mut self, id: Id) -> Done<()> {
        self.database.change(sql::SHRINK, params![id.cast_signed()])?;
        self.database.change(sql::REMOVE_KEY, params![id.cast_signed()])?;
        Ok(self.database.change(sql::FORGET_EMPTY, [])?)
    }

    fn count_keys(&mut self, space: Space) -> Done<u64> {
        self.number(sql::COUNT_KEYS, params![space])
    }

    fn detach_keys(&mut self, space: Space) -> Done<()> {
        self.earliest_due = 0;
        Ok(self.database.change(sql::DETACH, params![space])?)
    }

    fn first_detached(&mut self) -> Done<Option<KeyRow>> {
        self.database.first_row(sql::FIRST_DETACHED, [], key_row)
    }

    fn keys(&mut self, space: Space, span: &Span, order: Order, visit: Visit<'_, (Bytes, KeyRow)>) -> Done<()> {
        let (after, to) = span.to.as_ref().map_or((1, &[][..]), |to| (0, to.as_ref()));
        let read = |row: &Row<'_>| Ok((blob(row, KEY_COLUMNS)?, key_row(row)?));
        self.database.visit_rows(sql::KEYS.of(order), params![space, span.from.as_ref(), after, to], read, visit)
    }

    fn element(&mut self, id: Id, field: &[u8]) -> Done<Option<Element>> {
        self.database.first_row(sql::ELEMENT, params![id.cast_signed(), field], |row| element(row, 0))
    }

    fn put_element(&mut self, id: Id, field: &Bytes, element: &Element) -> Done<()> {
        let (version, expires_at) = (element.version.0.cast_signed(), element.expires_at.map(u64::cast_signed));
        let values = params![id.cast_signed(), field.as_ref(), version, expires_at, element.value.as_ref()];
        self.put(sql::PUT_ELEMENT, values, &element.value)
    }

    fn remove_element(&mut self, id: Id, field: &[u8]) -> Done<()> {
        Ok(self.database.change(sql::REMOVE_ELEMENT, params![id.cast_signed(), field])?)
    }

    fn elements(&mut self, id: Id, span: &Span, order: Order, visit: Visit<'_, (Bytes, Element)>) -> Done<()> {
        let (id, next) = ids_of(id, span);
        let (from, to) = (span.from.as_ref(), span.to.as_deref().unwrap_or_default());
        let read = |row: &Row<'_>| Ok((blob(row, 0)?, element(row, 1)?));
        self.database.visit_rows(sql::ELEMENTS.of(order), params![id, from, next, to], read, visit)
    }

    fn expiries(&mut self, id: Id, order: Order, visit: Visit<'_, (u64, Bytes)>) -> Done<()> {
        let read = |row: &Row<'_>| Ok((unsigned(row, 0)?, blob(row, 1)?));
        self.database.visit_rows(sql::EXPIRIES.of(order), params![id.cast_signed()], read, visit)
    }

    fn count_expired(&mut self, id: Id, now: u64) -> Done<u64> {
        self.number(sql::COUNT_EXPIRED, params![id.cast_signed(), i64::try_from(now).unwrap_or(i64::MAX)])
    }

    fn score(&mut self, id: Id, member: &[u8]) -> Done<Option<Score>> {
        self.database.first_row(sql::SCORE, params![id.cast_signed(), member], |row| score(row, 0))
    }

    fn put_member(&mut self, id: Id, member: &Bytes, score: Score) -> Done<()> {
        Ok(self.database.change(sql::PUT_MEMBER, params![id.cast_signed(), member.as_ref(), score.get()])?)
    }

    fn remove_member(&mut self, id: Id, member: &[u8]) -> Done<()> {
        Ok(self.database.change(sql::REMOVE_MEMBER, params![id.cast_signed(), member])?)
    }

    fn members(&mut self, id: Id, span: &Span<Place>, order: Order, visit: Visit<'_, Place>) -> Done<()> {
        let ((id, next), (score, member), to) = (ids_of(id, span), &span.from, end_of(span));
        let values = params![id, score.get(), member.as_ref(), next, to.0, to.1];
        self.database.visit_rows(sql::MEMBERS.of(order), values, |row| place(row, 0), visit)
    }

    fn scores(&mut self, id: Id, span: &Span, visit: Visit<'_, (Bytes, Score)>) -> Done<()> {
        let ((id, next), from, to) = (ids_of(id, span), span.from.as_ref(), span.to.as_deref().unwrap_or_default());
        self.database.visit_rows(
            sql::SCORES,
            params![id, from, next, to],
            |row| Ok((blob(row, 0)?, score(row, 1)?)),
            visit,
        )
    }

    fn count_members(&mut self, id: Id, span: &Span<Place>) -> Done<u64> {
        let ((id, next), (score, member), to) = (ids_of(id, span), &span.from, end_of(span));
        self.number(sql::COUNT_MEMBERS, params![id, score.get(), member.as_ref(), next, to.0, to.1])
    }

    fn put_block(&mut self, id: Id, level: u8, (score, member): &Place, count: u64) -> Done<()> {
        let values = params![id.cast_signed(), level, score.get(), member.as_ref(), count.cast_signed()];
        Ok(self.database.change(sql::PUT_BLOCK, values)?)
    }

    fn remove_block(&mut self, id: Id, level: u8, (score, member): &Place) -> Done<()> {
        Ok(self.database.change(sql::REMOVE_BLOCK, params![id.cast_signed(), level, score.get(), member.as_ref()])?)
    }

    fn blocks(
        &mut self,
        id: Id,
        level: u8,
        span: &Span<Place>,
        order: Order,
        visit: Visit<'_, (Place, u64)>,
    ) -> Done<()> {
        let ((score, member), to, next) = (&span.from, end_of(span), next_level(level, span));
        let values = params![id.cast_signed(), level, score.get(), member.as_ref(), next, to.0, to.1];
        self.database.visit_rows(sql::BLOCKS.of(order), values, |row| Ok((place(row, 0)?, unsigned(row, 2)?)), visit)
    }

    fn sum_blocks(&mut self, id: Id, level: u8, span: &Span<Place>) -> Done<u64> {
        let ((score, member), to, next) = (&span.from, end_of(span), next_level(level, span));
        let values = params![id.cast_signed(), level, score.get(), member.as_ref(), next, to.0, to.1];
        self.number(sql::SUM_BLOCKS, values)
    }

    fn item(&mut self, id: Id, position: i64) -> Done<Option<Bytes>> {
        self.database.first_row(sql::ITEM, params![id.cast_signed(), position], |row| blob(row, 0))
    }

    fn put_item(&mut self, id: Id, position: i64, value: &Bytes) -> Done<()> {
        self.put(sql::PUT_ITEM, params![id.cast_signed(), position, value.as_ref()], value)
    }

    fn remove_item(&mut self, id: Id, position: i64) -> Done<()> {
        Ok(self.database.change(sql::REMOVE_ITEM, params![id.cast_signed(), position])?)
    }

    fn items(&mut self, id: Id, span: &Span<i64>, order: Order, visit: Visit<'_, (i64, Bytes)>) -> Done<()> {
        let ((id, next), to) = (ids_of(id, span), span.to.unwrap_or(i64::MIN));
        let read = |row: &Row<'_>| Ok((row.get(0)?, blob(row, 1)?));
        self.database.visit_rows(sql::ITEMS.of(order), params![id, span.from, next, to], read, visit)
    }

    fn add_due(&mut self, due: u64, id: Id) -> Done<()> {
        self.earliest_due = self.earliest_due.min(due);
        Ok(self.database.change(sql::ADD_DUE, params![due.cast_signed(), id.cast_signed()])?)
    }

    fn remove_due(&mut self, due: u64, id: Id) -> Done<()> {
        Ok(self.database.change(sql::REMOVE_DUE, params![due.cast_signed(), id.cast_signed()])?)
    }

    fn first_due(&mut self) -> Done<Option<(u64, Id)>> {
        self.database.first_row(sql::FIRST_DUE, [], |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)))
    }

    fn add_trash(&mut self, id: Id, kind: Kind) -> Done<()> {
        self.earliest_due = 0;
        Ok(self.database.change(sql::ADD_TRASH, params![id.cast_signed(), number_of(kind)])?)
    }

    fn remove_trash(&mut self, id: Id) -> Done<()> {
        Ok(self.database.change(sql::REMOVE_TRASH, params![id.cast_signed()])?)
    }

    fn first_trash(&mut self) -> Done<Option<(Id, Kind)>> {
        self.database.first_row(sql::FIRST_TRASH, [], |row| Ok((unsigned(row, 0)?, kind(row, 1)?)))
    }

    fn clear(&mut self, part: Part, id: Id, limit: usize) -> Done<usize> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Ok(self.database.execute(sql::clear(part), params![id.cast_signed(), limit])?)
    }
}

/// The number of columns from which [`key_row`] reads; others follow.
const KEY_COLUMNS: usize = 9;

fn key_row(row: &Row<'_>) -> Done<KeyRow> {
    Ok(KeyRow {
        id: unsigned(row, 0)?,
        kind: kind(row, 1)?,
        version: quorate_keys::Version(unsigned(row, 2)?),
        expires_at: optional(row, 3)?,
        due: optional(row, 4)?,
        count: unsigned(row, 5)?,
        volatile: unsigned(row, 6)?,
        head: row.get(7)?,
        value: blob(row, 8)?,
    })
}

/// Reads an element from three columns.
fn element(row: &Row<'_>, first: usize) -> Done<Element> {
    Ok(Element {
        version: quorate_keys::Version(unsigned(row, first)?),
        expires_at: optional(row, first + 1)?,
        value: blob(row, first + 2)?,
    })
}

/// Reads a place from two columns.
fn place(row: &Row<'_>, first: usize) -> Done<Place> {
    Ok((score(row, first)?, blob(row, first + 1)?))
}

fn score(row: &Row<'_>, column: usize) -> Done<Score> {
    Score::new(row.get(column)?).ok_or_else(|| damaged("a score is not a number"))
}

fn kind(row: &Row<'_>, column: usize) -> Done<Kind> {
    let number: i64 = row.get(column)?;
    schema::KINDS
        .iter()
        .find(|(known, _)| *known == number)
        .map(|(_, kind)| *kind)
        .ok_or_else(|| damaged(format!("a key holds the kind {number}, which does not exist")))
}

fn number_of(kind: Kind) -> i64 {
    schema::KINDS.iter().find(|(_, known)| *known == kind).map_or(0, |(number, _)| *number)
}

pub(crate) fn unsigned<E>(row: &Row<'_>, column: usize) -> Result<u64, Ended<E>> {
    Ok(row.get::<_, i64>(column)?.cast_unsigned())
}

fn optional(row: &Row<'_>, column: usize) -> Done<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(i64::cast_unsigned))
}

/// Reads a blob. The logic bounds what a command reads, and drops what is not its reply before the next one.
pub(crate) fn blob<E>(row: &Row<'_>, column: usize) -> Result<Bytes, Ended<E>> {
    let bytes = row.get_ref(column)?.as_blob().map_err(rusqlite::Error::from)?;
    Ok(copy_uncounted(bytes)?.into())
}

#[cold]
fn damaged(what: impl std::fmt::Display) -> Ended {
    Ended::Fault(StoreFault::Damaged(format!("the tables of keys: {what}")))
}

fn numbers_of(row: &KeyRow) -> [i64; 3] {
    [row.version.0, row.count, row.volatile].map(u64::cast_signed)
}

fn times_of(row: &KeyRow) -> [Option<i64>; 2] {
    [row.expires_at, row.due].map(|at| at.map(u64::cast_signed))
}

/// Returns the ids with which the lower and the upper end of a span begin: a span without an end ends where the next id
/// begins.
fn ids_of<B>(id: Id, span: &Span<B>) -> (i64, i64) {
    let id = id.cast_signed();
    (id, if span.to.is_some() { id } else { id + 1 })
}

/// Returns the upper end of a span of places without its id.
fn end_of(span: &Span<Place>) -> (f64, &[u8]) {
    span.to.as_ref().map_or((f64::NEG_INFINITY, &[]), |(score, member)| (score.get(), member.as_ref()))
}

/// Returns the level with which the upper end of a span of blocks begins.
fn next_level(level: u8, span: &Span<Place>) -> u16 {
    u16::from(level) + u16::from(span.to.is_none())
}
