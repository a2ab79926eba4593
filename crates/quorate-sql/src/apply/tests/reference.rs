//! What plain SQLite does: a connection of its own for each entry, one transaction, and the same stamp and seed.

use std::sync::Arc;

use quorate_model::Stamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::*;
use crate::determinism::Determinism;
use crate::vfs::{self, clock};

/// A file that plain SQLite works on.
pub(super) struct Plain {
    dir: tempfile::TempDir,
}

/// What an entry did: of each statement the changes, the last rowid and the rows; or SQLite's primary code.
pub(super) type Seen = Result<Vec<(u64, i64, Vec<Vec<Value>>)>, i32>;

impl Plain {
    pub(super) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(super) fn connect(&self) -> Connection {
        let vfs = vfs::over(None).unwrap();
        let conn = Connection::open_with_flags_and_vfs(self.dir.path().join("db"), OpenFlags::default(), vfs.as_str())
            .unwrap();
        conn.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF").unwrap();
        crate::ffi::control::disable_stat4(&conn);
        conn
    }

    pub(super) fn run(&self, stamp: Stamp, statements: &[Statement]) -> Seen {
        let conn = self.connect();
        // Only for random(): all else is as it is on a new connection.
        let determinism = Arc::new(Determinism::install(&conn).unwrap());
        determinism.begin(&conn, stamp.seed, u64::MAX);
        clock::set(Some(stamp.now));
        conn.execute_batch("BEGIN").unwrap();
        let done: rusqlite::Result<Vec<_>> = statements.iter().map(|statement| one(&conn, statement)).collect();
        let done = done.and_then(|seen| conn.execute_batch("COMMIT").map(|()| seen));
        if !conn.is_autocommit() {
            conn.execute_batch("ROLLBACK").unwrap();
        }
        clock::set(None);
        done.map_err(|error| error.sqlite_error().map_or(1, |code| code.extended_code & 0xff))
    }
}

fn one(conn: &Connection, statement: &Statement) -> rusqlite::Result<(u64, i64, Vec<Vec<Value>>)> {
    let mut prepared = conn.prepare(&statement.sql)?;
    let columns = prepared.column_count();
    let params: Vec<_> = statement
        .params
        .iter()
        .map(|value| match value {
            Value::Integer(value) => *value,
            other => panic!("{other:?}"),
        })
        .collect();
    let mut rows = prepared.query(params_from_iter(params))?;
    let mut seen = Vec::new();
    while let Some(row) = rows.next()? {
        seen.push((0..columns).map(|column| value(row.get_ref(column).unwrap())).collect());
    }
    let is = |verbs: &[&str]| verbs.iter().any(|verb| statement.sql.starts_with(verb));
    let writes = is(&["INSERT", "REPLACE", "UPDATE", "DELETE"]);
    let changes = if writes { conn.changes() } else { 0 };
    let inserts = is(&["INSERT", "REPLACE"]);
    Ok((changes, if changes > 0 && inserts { conn.last_insert_rowid() } else { 0 }, seen))
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => value.into(),
        ValueRef::Real(value) => value.into(),
        ValueRef::Text(text) => std::str::from_utf8(text).unwrap().into(),
        ValueRef::Blob(bytes) => bytes.into(),
    }
}

/// An outcome of ours in the same form.
pub(super) fn seen(outcome: &Outcome) -> Seen {
    let reply = outcome.as_ref().map_err(|failure| failure.sqlite_code & 0xff)?;
    Ok(reply
        .results
        .iter()
        .map(|result| match result {
            CommandResult::Statement(result) => (result.changes, result.last_insert_rowid, result.rows.clone()),
            other => panic!("{other:?}"),
        })
        .collect())
}
