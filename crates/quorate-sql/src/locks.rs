//! The tables of locks in SQLite, on which the logic of `quorate-locks` runs.
//!
//! # Invariants
//!
//! - The tables are created when a database is opened, and their rows are a function of the entries: they are compared
//!   between nodes as tables of users are.
//! - Each statement is prepared once for each connection, and finds its rows by an index.
//! - Tokens, counts and times are stored as the signed number with the same bits; none has the highest bit.

use bytes::Bytes;
use quorate_locks::{ClaimRow, LockRow, LocksError, Tables, Token, Visit};
use quorate_model::Topic;
use quorate_model::keys::Span;
use rusqlite::{Row, params};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ffi::database::Database;
use crate::keys::{Ended, blob, unsigned};

pub(crate) mod schema;
#[cfg(test)]
mod tests;

const LAST_TOKEN: &str = "SELECT last FROM _quorate_locks_tokens WHERE id = 1";
const SET_LAST_TOKEN: &str = "INSERT INTO _quorate_locks_tokens (id, last) VALUES (1, ?1)
    ON CONFLICT (id) DO UPDATE SET last = excluded.last";

const LOCK: &str = "SELECT permits, held, waiting, due FROM _quorate_locks WHERE name = ?1";
const ADD_LOCK: &str = "INSERT INTO _quorate_locks (name, permits, held, waiting, due) VALUES (?1, ?2, ?3, ?4, ?5)";
const UPDATE_LOCK: &str = "UPDATE _quorate_locks SET permits = ?2, held = ?3, waiting = ?4, due = ?5 WHERE name = ?1";
const REMOVE_LOCK: &str = "DELETE FROM _quorate_locks WHERE name = ?1";
const NAMES: &str = "SELECT name FROM _quorate_locks WHERE name >= ?1 ORDER BY name";
const NAMES_BELOW: &str = "SELECT name FROM _quorate_locks WHERE name >= ?1 AND name < ?2 ORDER BY name";
const FIRST_DUE: &str = "SELECT due, name FROM _quorate_locks ORDER BY due, name LIMIT 1";

/// The numbers of leases and waits of the first `?1` locks by name.
const COUNT: &str = "SELECT coalesce(sum(held), 0), coalesce(sum(waiting), 0)
    FROM (SELECT held, waiting FROM _quorate_locks ORDER BY name LIMIT ?1)";

/// The tables have no counter, so metrics count the leases and waits of at most so many locks. That is some 11,000
/// steps of SQLite. The counts of all stores are read in one first try, which may take 100,000 steps and a
/// millisecond: beyond that there are none.
const COUNTED_MAX: u32 = 1_000;

const CLAIM: &str = "SELECT holder, held, number, ttl, ends_at, note FROM _quorate_locks_claims
    WHERE name = ?1 AND holder = ?2";
const LEASE: &str = "SELECT holder, held, number, ttl, ends_at, note FROM _quorate_locks_claims
    WHERE name = ?1 AND held = 1 AND number = ?2";
const FIRST_END: &str = "SELECT holder, held, number, ttl, ends_at, note FROM _quorate_locks_claims
    WHERE name = ?1 ORDER BY ends_at, holder LIMIT 1";
const CLAIMS: &str = "SELECT holder, held, number, ttl, ends_at, note FROM _quorate_locks_claims
    WHERE name = ?1 AND held = ?2 ORDER BY number";
const COUNT_BEFORE: &str = "SELECT count(*) FROM _quorate_locks_claims WHERE name = ?1 AND held = 0 AND number < ?2";
const ADD_CLAIM: &str = "INSERT INTO _quorate_locks_claims (name, holder, held, number, ttl, ends_at, note)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const UPDATE_CLAIM: &str = "UPDATE _quorate_locks_claims SET held = ?3, number = ?4, ttl = ?5, ends_at = ?6, note = ?7
    WHERE name = ?1 AND holder = ?2";
const REMOVE_CLAIM: &str = "DELETE FROM _quorate_locks_claims WHERE name = ?1 AND holder = ?2";

type Done<T> = Result<T, Ended<LocksError>>;

/// The seed of topics of locks; those of keys have the numbers of their spaces.
const TOPICS: u64 = 1 << 32;

/// The topic of a holder of a lock, or of who waits for it: touched when an entry of another grants or ends what is
/// theirs.
pub fn topic(name: &[u8], holder: &[u8]) -> Topic {
    Topic(xxh3_64_with_seed(holder, xxh3_64_with_seed(name, TOPICS)))
}

/// The tables of locks in the database of a connection.
pub(crate) struct LockTables<'a, N> {
    database: &'a mut Database<N>,
    /// The earliest time at which something ends that was written here.
    earliest_due: u64,
}

impl<'a, N> LockTables<'a, N> {
    pub(crate) fn of(database: &'a mut Database<N>) -> Self {
        Self { database, earliest_due: u64::MAX }
    }

    /// Returns the earliest time at which something ends that was written here; `u64::MAX` if nothing was.
    pub(crate) fn earliest_due(&self) -> u64 {
        self.earliest_due
    }

    /// Returns how many leases and waits there are, for metrics.
    pub(crate) fn counts(&mut self) -> Result<[u64; 2], Ended> {
        let counted = self.database.first_row(COUNT, [COUNTED_MAX], |row| -> Result<_, Ended> {
            Ok([unsigned(row, 0)?, unsigned(row, 1)?])
        })?;
        Ok(counted.unwrap_or_default())
    }

    fn put_lock(&mut self, sql: &'static str, name: &Bytes, row: &LockRow) -> Done<()> {
        self.earliest_due = self.earliest_due.min(row.due);
        let [permits, held, waiting, due] = [row.permits, row.held, row.waiting, row.due].map(u64::cast_signed);
        Ok(self.database.change(sql, params![name.as_ref(), permits, held, waiting, due])?)
    }

    fn put_claim(&mut self, sql: &'static str, name: &Bytes, row: &ClaimRow) -> Done<()> {
        let [number, ttl, ends_at] = [row.number.0, row.ttl, row.ends_at].map(u64::cast_signed);
        let (holder, note) = (row.holder.as_ref(), row.note.as_ref());
        Ok(self.database.change(sql, params![name.as_ref(), holder, row.held, number, ttl, ends_at, note])?)
    }
}

impl<N> Tables for LockTables<'_, N> {
    type Error = Ended<LocksError>;

    fn last_token(&mut self) -> Done<Token> {
        Ok(Token(self.database.first_row(LAST_TOKEN, [], |row| unsigned(row, 0))?.unwrap_or_default()))
    }

    fn set_last_token(&mut self, token: Token) -> Done<()> {
        Ok(self.database.change(SET_LAST_TOKEN, params![token.0.cast_signed()])?)
    }

    fn lock(&mut self, name: &[u8]) -> Done<Option<LockRow>> {
        self.database.first_row(LOCK, params![name], |row| {
            let [permits, held, waiting, due] =
                [unsigned(row, 0)?, unsigned(row, 1)?, unsigned(row, 2)?, unsigned(row, 3)?];
            Ok(LockRow { permits, held, waiting, due })
        })
    }

    fn add_lock(&mut self, name: &Bytes, row: &LockRow) -> Done<()> {
        self.put_lock(ADD_LOCK, name, row)
    }

    fn update_lock(&mut self, name: &Bytes, row: &LockRow) -> Done<()> {
        self.put_lock(UPDATE_LOCK, name, row)
    }

    fn remove_lock(&mut self, name: &[u8]) -> Done<()> {
        Ok(self.database.change(REMOVE_LOCK, params![name])?)
    }

    fn names(&mut self, names: &Span, visit: Visit<'_, Bytes>) -> Done<()> {
        let read = |row: &Row<'_>| blob(row, 0);
        match &names.to {
            Some(to) => self.database.visit_rows(NAMES_BELOW, params![names.from.as_ref(), to.as_ref()], read, visit),
            None => self.database.visit_rows(NAMES, params![names.from.as_ref()], read, visit),
        }
    }

    fn first_due(&mut self) -> Done<Option<(u64, Bytes)>> {
        self.database.first_row(FIRST_DUE, [], |row| Ok((unsigned(row, 0)?, blob(row, 1)?)))
    }

    fn claim(&mut self, name: &[u8], holder: &[u8]) -> Done<Option<ClaimRow>> {
        self.database.first_row(CLAIM, params![name, holder], claim_row)
    }

    fn lease(&mut self, name: &[u8], token: Token) -> Done<Option<ClaimRow>> {
        self.database.first_row(LEASE, params![name, token.0.cast_signed()], claim_row)
    }

    fn first_end(&mut self, name: &[u8]) -> Done<Option<ClaimRow>> {
        self.database.first_row(FIRST_END, params![name], claim_row)
    }

    fn claims(&mut self, name: &[u8], held: bool, visit: Visit<'_, ClaimRow>) -> Done<()> {
        self.database.visit_rows(CLAIMS, params![name, held], claim_row, visit)
    }

    fn count_before(&mut self, name: &[u8], number: Token) -> Done<u64> {
        let count =
            self.database.first_row(COUNT_BEFORE, params![name, number.0.cast_signed()], |row| unsigned(row, 0));
        count.map(Option::unwrap_or_default)
    }

    fn add_claim(&mut self, name: &Bytes, row: &ClaimRow) -> Done<()> {
        self.put_claim(ADD_CLAIM, name, row)
    }

    fn update_claim(&mut self, name: &Bytes, row: &ClaimRow) -> Done<()> {
        self.put_claim(UPDATE_CLAIM, name, row)
    }

    fn remove_claim(&mut self, name: &[u8], holder: &[u8]) -> Done<()> {
        Ok(self.database.change(REMOVE_CLAIM, params![name, holder])?)
    }
}

fn claim_row(row: &Row<'_>) -> Done<ClaimRow> {
    Ok(ClaimRow {
        holder: blob(row, 0)?,
        held: row.get(1)?,
        number: Token(unsigned(row, 2)?),
        ttl: unsigned(row, 3)?,
        ends_at: unsigned(row, 4)?,
        note: blob(row, 5)?,
    })
}
