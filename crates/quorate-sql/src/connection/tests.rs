//! Tests of the settings of connections: plans, clock, limits and locks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may panic, and has threads of its own"
)]

use std::path::PathBuf;

use quorate_env::Env;
use rusqlite::Connection;

use super::*;
use crate::extensions::Extensions;
use crate::generation::Generations;
use crate::vfs::{self, clock};

mod frames;
mod locks;

struct Db {
    generations: Generations,
    _dir: tempfile::TempDir,
}

fn db() -> Db {
    let dir = tempfile::tempdir().unwrap();
    let generations = Generations::open(Env::real().disk(), dir.path(), 4096, Extensions::default()).unwrap();
    Db { generations, _dir: dir }
}

impl Db {
    fn writer(&self) -> Connection {
        open_writer(&self.generations.current(), 1 << 20).unwrap()
    }

    fn reader(&self) -> Attached {
        open_reader(&self.generations.current(), 1 << 20).unwrap()
    }

    fn path(&self) -> PathBuf {
        self.generations.current().path()
    }
}

fn text(conn: &Connection, sql: &str) -> String {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Runs `f` with the clock of this thread set.
fn at<T>(now: u64, f: impl FnOnce() -> T) -> T {
    clock::set(Some(now));
    let result = f();
    clock::set(None);
    result
}

#[test]
fn the_stamp_is_the_clock_of_one_thread() {
    let db = db();
    let writer = db.writer();
    writer
        .execute_batch(
            "CREATE TABLE t (a, at DEFAULT CURRENT_TIMESTAMP); CREATE TABLE log (at);
             CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO log VALUES (datetime('now')); END",
        )
        .unwrap();
    let second = 1_000_000_000;
    at(1_700_000_000 * second, || {
        writer.execute("INSERT INTO t (a) VALUES (1)", []).unwrap();
        assert_eq!(number(&writer, "SELECT unixepoch()"), 1_700_000_000);
        // Another thread uses the real clock.
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(number(&db.reader(), "SELECT unixepoch()") > 1_750_000_000));
        });
    });
    assert_eq!(text(&writer, "SELECT at FROM t"), "2023-11-14 22:13:20");
    assert_eq!(text(&writer, "SELECT at FROM log"), "2023-11-14 22:13:20");
    at(0, || assert_eq!(text(&writer, "SELECT datetime()"), "1970-01-01 00:00:00"));
    at(u64::MAX, || assert_eq!(text(&writer, "SELECT date()"), "2554-07-21"));
}

#[test]
fn local_time_fails_under_a_stamp_and_works_without() {
    let db = db();
    let writer = db.writer();
    let local = || writer.query_row("SELECT datetime(0, 'unixepoch', 'localtime')", [], |row| row.get::<_, String>(0));
    let error = at(1, local).unwrap_err();
    assert!(error.to_string().contains("local time unavailable"), "{error}");
    local().unwrap();
}

#[test]
fn plans_use_no_stat4_samples() {
    let db = db();
    let writer = db.writer();
    writer
        .execute_batch(
            "CREATE TABLE t (a, b); CREATE INDEX ta ON t (a); CREATE INDEX tb ON t (b);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             INSERT INTO t SELECT i % 2, i FROM n; ANALYZE",
        )
        .unwrap();
    assert_eq!(number(&writer, "SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_stat1'"), 1);
    assert_eq!(number(&writer, "SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_stat4'"), 0);
    // A connection with STAT4 enabled adds samples to the file, and gets other plans. The store's connections must not
    // use the samples.
    let plan = |conn: &Connection, sql: &str| {
        conn.query_row(&format!("EXPLAIN QUERY PLAN {sql}"), [], |row| row.get::<_, String>(3)).unwrap()
    };
    let queries = ["SELECT * FROM t WHERE a = 1 AND b > 1990", "SELECT * FROM t WHERE a = 1 AND b > 10"];
    let before: Vec<String> = queries.iter().map(|sql| plan(&writer, sql)).collect();
    let outsider = Connection::open(db.path()).unwrap();
    outsider.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    outsider.execute_batch("ANALYZE").unwrap();
    assert!(number(&outsider, "SELECT count(*) FROM sqlite_stat4") > 0);
    let theirs: Vec<String> = queries.iter().map(|sql| plan(&outsider, sql)).collect();
    assert_ne!(theirs[0], theirs[1], "with samples the plan depends on the value");
    let fresh = db.writer();
    assert_eq!(queries.iter().map(|sql| plan(&fresh, sql)).collect::<Vec<_>>(), before);
    assert_eq!(before[0], before[1]);
}

#[test]
fn every_connection_has_the_required_settings() {
    let db = db();
    let (writer, reader) = (db.writer(), db.reader());
    let checkpointer = open_checkpointer(&db.generations.current()).unwrap();
    for conn in [&writer, &reader, &checkpointer] {
        assert_eq!(number(conn, "PRAGMA wal_autocheckpoint"), 0);
        assert_eq!(number(conn, "PRAGMA synchronous"), 1);
        assert_eq!(number(conn, "PRAGMA foreign_keys"), 1);
        assert_eq!(number(conn, "PRAGMA page_size"), 4096);
        for config in [
            DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE,
            DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG,
            DbConfig::SQLITE_DBCONFIG_DEFENSIVE,
        ] {
            assert!(conn.db_config(config).unwrap(), "{config:?}");
        }
        let too_big = conn.query_row("SELECT length(zeroblob(?1))", [VALUE_BYTES_MAX as i64 + 1], |_| Ok(()));
        assert_eq!(too_big.unwrap_err().sqlite_error_code(), Some(rusqlite::ErrorCode::TooBig));
    }
    assert!(reader.execute_batch("CREATE TABLE t (a)").is_err());
}

#[test]
fn closing_all_connections_keeps_the_wal() {
    let db = db();
    db.writer().execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (7)").unwrap();
    let wal = db.generations.current().wal_file_bytes().unwrap();
    assert!(wal > 0 && wal == db.generations.current().wal_bytes());
    assert_eq!(number(&db.reader(), "SELECT a FROM t"), 7);
    // The main file alone does not contain the table.
    let alone = open_immutable(db.generations.current().vfs(), &db.path()).unwrap();
    assert_eq!(number(&alone, "SELECT count(*) FROM sqlite_schema"), 0);
}

#[test]
fn a_full_disk_is_told_from_a_full_table() {
    let db = db();
    let writer = db.writer();
    writer
        .execute_batch(
            "CREATE TABLE t (a INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO t VALUES (9223372036854775807)",
        )
        .unwrap();
    let counts = || (vfs::failed_writes(), vfs::full_writes());
    let (before, full) = (counts(), rusqlite::ffi::SQLITE_FULL);
    let insert = |sql| writer.execute_batch(sql).unwrap_err().sqlite_error().unwrap().extended_code;
    assert_eq!(insert("INSERT INTO t VALUES (NULL)"), full);
    assert_eq!(counts(), before);
    let current = db.generations.current();
    current.watched().faults.wal_writes.store(full, std::sync::atomic::Ordering::Release);
    assert_eq!(insert("INSERT INTO t VALUES (1)"), full);
    assert!(counts().0 > before.0 && counts().1 > before.1);
}
