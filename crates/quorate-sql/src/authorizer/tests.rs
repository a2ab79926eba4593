//! Tests of what a reader refuses. The tests of apply cover what commands are refused.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "tests")]

use super::*;

fn reader() -> (Connection, Arc<Gate>) {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(
        "CREATE TABLE t (a); CREATE VIRTUAL TABLE f USING fts5(body); CREATE TABLE _quorate_applied (a);
         CREATE TABLE _quorate_users (name, user)",
    )
    .unwrap();
    let gate = install_reader(&conn).unwrap();
    (conn, gate)
}

#[test]
fn a_reader_reads_everything_and_changes_no_schema() {
    let (conn, gate) = reader();
    let run = |sql: &str| {
        gate.enter(Mode::Query);
        conn.prepare(sql)?.query([])?.next().map(|_| ())
    };
    for sql in [
        "SELECT * FROM t",
        "SELECT * FROM _quorate_applied",
        "SELECT rootpage FROM sqlite_schema",
        "SELECT * FROM f WHERE f MATCH 'one'",
        "SELECT count(*) FROM f_data",
        "PRAGMA table_info(t)",
        "SELECT * FROM pragma_table_list",
        "PRAGMA user_version",
        "PRAGMA integrity_check",
        "PRAGMA read_uncommitted",
        "EXPLAIN QUERY PLAN SELECT * FROM t",
        "SELECT sqlite_version()",
    ] {
        run(sql).unwrap();
    }
    for (sql, reason) in [
        ("DROP TABLE t", "can't write"),
        ("CREATE TEMP TABLE x (a)", "temporary objects"),
        ("BEGIN", "batch"),
        ("ATTACH '/tmp/x' AS x", "not replicated"),
        ("PRAGMA user_version = 1", "not allowed"),
        ("PRAGMA read_uncommitted = 1", "not allowed"),
        ("PRAGMA wal_checkpoint", "not allowed"),
        ("PRAGMA journal_mode", "not allowed"),
        ("SELECT load_extension('x')", "depends on the node"),
        ("SELECT user FROM _Quorate_Users", "hashes of passwords"),
        ("SELECT count(*) FROM _quorate_users", "hashes of passwords"),
        ("SELECT (SELECT max(user) FROM _quorate_users) FROM t", "hashes of passwords"),
    ] {
        run(sql).unwrap_err();
        let refusal = gate.take_refusal().unwrap_or_default();
        assert!(refusal.contains(reason), "{sql}: {refusal}");
    }
}

#[test]
fn names_that_are_not_utf8_are_refused() {
    let (conn, gate) = reader();
    let read = |sql: &str| conn.query_row(sql, [], |_| Ok(()));
    read("SELECT * FROM pragma_table_info(CAST(x'ff' AS TEXT))").unwrap_err();
    assert!(gate.take_refusal().unwrap().contains("UTF-8"));
}

#[test]
fn statements_of_the_store_are_not_restricted() {
    let (conn, gate) = reader();
    gate.enter(Mode::Own);
    conn.execute_batch("BEGIN; INSERT INTO _quorate_applied VALUES (1); PRAGMA user_version = 3; COMMIT").unwrap();
}
