//! A hash of a database's logical content, not of its pages: equal on all nodes that have applied the same entries.
//!
//! Tables are hashed in the order of their names, rows by rowid or primary key, columns in their order. Shadow tables
//! of virtual tables are left out, because their content depends on where transactions ended. The store's records have
//! a separate hash. Its tables of data count as those of users, but without rows they are left out, because nodes of an
//! older version do not have them yet.

use quorate_apply::Trouble;
use rusqlite::Connection;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;

pub use crate::authorizer::rules::is_bookkeeping;
use crate::authorizer::rules::is_reserved;
use crate::classify::{self, Context};
use crate::rows_hash::RowsHash;
use crate::schema_check::{COLUMNS, Schema, quoted};

const TABLES: &str = "SELECT name, wr, type FROM pragma_table_list
    WHERE schema = 'main' AND type IN ('table', 'virtual') ORDER BY name";
const SCHEMA: &str = "SELECT tbl_name, type, name, sql FROM sqlite_schema ORDER BY type, name";
const SEQUENCES: &str = "SELECT name, seq FROM sqlite_sequence ORDER BY name, seq";
const STATISTICS: &str = "SELECT tbl, idx, stat FROM sqlite_stat1 ORDER BY tbl, idx, stat";

/// The name in [`by_table`] of the schema's own hash.
const SCHEMA_NAME: &str = "sqlite_schema";

/// In [`by_table`], separates the name of a virtual table that could not be read from the reason.
pub const UNREAD: &str = " (can't be read: ";

/// A query that failed while the database was hashed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unread {
    /// The query that failed.
    pub sql: String,
    /// Why it failed.
    #[source]
    pub error: rusqlite::Error,
}

impl Unread {
    fn of(sql: &str) -> impl FnOnce(rusqlite::Error) -> Self {
        |error| Self { sql: sql.to_owned(), error }
    }
}

/// Returns the hash of everything that users can see: schema, rows, sequences, statistics, and the tables of keys and
/// locks.
///
/// It reads the whole database, so its time grows with that. Run it in a read transaction, so that all tables are of
/// the same state.
pub fn user(conn: &Connection) -> Result<u128, Unread> {
    Ok(combined(by_table(conn)?.into_iter().filter(|(name, _)| !is_bookkeeping(name))))
}

/// Returns the hash of the store's records except the applied row: mainly the sessions and their kept outcomes. It
/// includes the messages of kept failures, which may differ between versions of SQLite.
pub fn reserved(conn: &Connection) -> Result<u128, Unread> {
    let own = |name: &str| is_bookkeeping(name) && name != "_quorate_applied";
    Ok(combined(by_table(conn)?.into_iter().filter(|(name, _)| own(name))))
}

/// Returns the hash of each table by name, to show where two databases differ.
pub fn by_table(conn: &Connection) -> Result<Vec<(String, u128)>, Unread> {
    let shadows = Schema::read(conn).map_err(Unread::of(SCHEMA))?.shadows;
    let hidden = |name: &str| shadows.contains(&name.to_ascii_lowercase());
    let tables: Vec<(String, bool, String)> =
        collected(conn, TABLES, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let mut hashes = Vec::with_capacity(tables.len());
    for (name, without_rowid, kind) in tables {
        let hash = match name.as_str() {
            SCHEMA_NAME => rows(conn, SCHEMA, |table| hidden(table) || is_reserved(table))?,
            "sqlite_sequence" => rows(conn, SEQUENCES, |_| false)?,
            "sqlite_stat1" => rows(conn, STATISTICS, |table| hidden(table) || is_reserved(table))?,
            _ => match table(conn, &name, without_rowid, kind == "virtual") {
                Err(error) if kind == "virtual" && is_of_content(&error.error) => {
                    // The reason is part of the name, so that a comparison shows it.
                    hashes.push((format!("{name}{UNREAD}{})", words(&error.error)), 0));
                    continue;
                }
                hash => hash?,
            },
        };
        if hash == RowsHash::new().finish() && is_reserved(&name) && !is_bookkeeping(&name) {
            continue;
        }
        hashes.push((name, hash));
    }
    Ok(hashes)
}

/// Returns the hash of a table's rows in the order of their keys.
fn table(conn: &Connection, table: &str, without_rowid: bool, is_virtual: bool) -> Result<u128, Unread> {
    let name = quoted(table);
    if without_rowid {
        return rows(conn, &format!("SELECT * FROM {name} NOT INDEXED"), |_| false);
    }
    let columns: Vec<String> = collected(conn, COLUMNS, [table], |row| row.get(0))?;
    let free = |alias: &&str| !columns.iter().any(|column| column.eq_ignore_ascii_case(alias));
    let hint = if is_virtual { "" } else { "NOT INDEXED" };
    match ["rowid", "oid", "_rowid_"].iter().find(|alias| free(alias)) {
        // The table has as many columns as a result may have, so the rowids need a query of their own.
        Some(alias) if columns.len() >= columns_max(conn) => {
            let mut hash = RowsHash::new();
            for columns in [*alias, "*"] {
                let sql = format!("SELECT {columns} FROM {name} {hint} ORDER BY {alias}");
                hash.bytes(&rows(conn, &sql, |_| false)?.to_le_bytes());
            }
            Ok(hash.finish())
        }
        Some(alias) => rows(conn, &format!("SELECT {alias}, * FROM {name} {hint} ORDER BY {alias}"), |_| false),
        // Columns hide all three names of the rowid; a full scan is in rowid order anyway.
        None => rows(conn, &format!("SELECT * FROM {name} {hint}"), |_| false),
    }
}

/// Returns the most columns that a result may have.
fn columns_max(conn: &Connection) -> usize {
    conn.limit(Limit::SQLITE_LIMIT_COLUMN).ok().and_then(|max| usize::try_from(max).ok()).unwrap_or(0)
}

/// Returns the rows of a query.
fn collected<T>(
    conn: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Unread> {
    let rows = || conn.prepare(sql)?.query_map(params, read)?.collect::<rusqlite::Result<Vec<T>>>();
    rows().map_err(Unread::of(sql))
}

/// Returns whether an error comes from the content of a virtual table, or from what it refers to, and not from this
/// node.
fn is_of_content(error: &rusqlite::Error) -> bool {
    matches!(classify::classify(error, Context { write_failed: true, refusal: None }), Trouble::Failure(_))
}

fn words(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(words)) => words.clone(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

/// Returns the hash of a query's rows, without those for whose first column `skip` returns `true`.
///
/// A virtual table whose content table has lost rows can't be read to the end; the error's code is hashed in their
/// place.
fn rows(conn: &Connection, sql: &str, skip: impl Fn(&str) -> bool) -> Result<u128, Unread> {
    hash_of(conn, sql, skip).map_err(Unread::of(sql))
}

fn hash_of(conn: &Connection, sql: &str, skip: impl Fn(&str) -> bool) -> rusqlite::Result<u128> {
    let mut hash = RowsHash::new();
    let mut statement = conn.prepare(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(error) => match error.sqlite_error() {
                Some(code) if code.extended_code == rusqlite::ffi::SQLITE_CORRUPT_VTAB => {
                    hash.bytes(&code.extended_code.to_le_bytes());
                    break;
                }
                _ => return Err(error),
            },
        };
        if matches!(row.get_ref(0)?, ValueRef::Text(text) if std::str::from_utf8(text).is_ok_and(&skip)) {
            continue;
        }
        hash.begin_row();
        for column in 0..columns {
            hash.value(row.get_ref(column)?);
        }
    }
    Ok(hash.finish())
}

fn combined(tables: impl Iterator<Item = (String, u128)>) -> u128 {
    let mut hash = RowsHash::new();
    for (name, rows) in tables {
        hash.value(ValueRef::Text(name.as_bytes()));
        hash.bytes(&rows.to_le_bytes());
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn database(sql: &[&str]) -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        sql.iter().for_each(|sql| conn.execute_batch(sql).unwrap());
        conn
    }

    const SETUP: &str =
        "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a); CREATE TABLE w (k PRIMARY KEY, v) WITHOUT ROWID;
        CREATE TABLE odd (rowid, oid, _rowid_); CREATE VIRTUAL TABLE f USING fts5(body);
        CREATE TABLE _quorate_sessions (a);";

    fn of(sql: &str) -> u128 {
        user(&database(&[SETUP, sql])).unwrap()
    }

    #[test]
    fn the_hash_depends_on_the_content_not_on_its_history() {
        let rows = "INSERT INTO t VALUES (1, 'x'), (2, 1.5); INSERT INTO w VALUES ('b', 1), ('a', 2)";
        let other =
            "INSERT INTO w VALUES ('a', 2); INSERT INTO t VALUES (2, 1.5), (3, 0); INSERT INTO w VALUES ('b', 1);
            DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (1, 'x'); UPDATE sqlite_sequence SET seq = 2";
        assert_eq!(of(rows), of(other));
        for different in [
            "UPDATE t SET a = 'y' WHERE id = 1",
            "UPDATE t SET a = 1 WHERE id = 2",
            "UPDATE sqlite_sequence SET seq = 9",
            "CREATE INDEX i ON t (a)",
            "INSERT INTO odd VALUES (NULL, NULL, NULL)",
            "INSERT INTO f VALUES ('word')",
        ] {
            assert_ne!(of(&format!("{rows}; {different}")), of(rows), "{different}");
        }
    }

    #[test]
    fn a_table_with_the_most_columns_is_hashed_with_rowids() {
        let columns = (0..2000).map(|number| format!("c{number}")).collect::<Vec<_>>().join(", ");
        let of = |rowid: i64| {
            let insert = format!("INSERT INTO w (rowid, c7) VALUES ({rowid}, 1)");
            user(&database(&[&format!("CREATE TABLE w ({columns})"), &insert])).unwrap()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn an_unreadable_virtual_table_is_named_in_the_result() {
        let conn = database(&[
            "CREATE TABLE c (body); CREATE VIRTUAL TABLE f USING fts5(body, content='c'); DROP TABLE c",
            "CREATE TABLE t (a); INSERT INTO t VALUES (1)",
            "CREATE TABLE d (body); CREATE VIRTUAL TABLE g USING fts5(body, content='d'); INSERT INTO d VALUES ('one')",
            "INSERT INTO g (g) VALUES ('rebuild'); DELETE FROM d",
            "CREATE VIRTUAL TABLE h USING fts5(body, content=''); INSERT INTO h VALUES ('one')",
        ]);
        let names: Vec<String> = by_table(&conn).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["d", "f (can't be read: no such table: main.c)", "g", "h", "sqlite_schema", "t"]);
    }

    #[test]
    fn the_user_hash_leaves_out_shadow_and_store_tables() {
        let rows = "INSERT INTO f VALUES ('one'), ('two')";
        let optimized =
            format!("{rows}; INSERT INTO f (f) VALUES ('optimize'); INSERT INTO _quorate_sessions VALUES (1)");
        assert_eq!(of(rows), of(&optimized));
        assert_ne!(reserved(&database(&[SETUP, rows])).unwrap(), reserved(&database(&[SETUP, &optimized])).unwrap());
    }
}
