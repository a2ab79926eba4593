//! Readers refuse everything but reading, with an error that says so.

use super::*;

#[test]
fn writes_are_refused_as_such() {
    let fixture = fixture();
    let writes = [
        "INSERT INTO t (name) VALUES ('x')",
        "INSERT INTO t (name) VALUES ('x') RETURNING id",
        "REPLACE INTO t VALUES (1, 'x')",
        "UPDATE t SET name = 'x'",
        "DELETE FROM t",
        "DELETE FROM _quorate_applied",
        "WITH a AS (SELECT 1) INSERT INTO t (id) SELECT * FROM a",
        "CREATE TABLE u (a)",
        "CREATE INDEX i ON t (name)",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN DELETE FROM t; END",
        "CREATE VIRTUAL TABLE f USING fts5(a)",
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN a",
        "ALTER TABLE t RENAME TO u",
        "ANALYZE",
        "VACUUM",
    ];
    for sql in writes {
        for _ in 0..2 {
            assert_eq!(fixture.try_query(sql, &ReadLimits::default()), Err(ReadError::Writes), "{sql}");
        }
    }
    fixture.assert_usable();
    assert_eq!(fixture.one::<i64>("SELECT count(*) FROM t"), 10);
}

#[test]
fn non_reading_statements_are_refused_with_a_reason() {
    let fixture = fixture();
    let hostile = [
        "CREATE TEMP TABLE x (a)",
        "CREATE TEMP VIEW x AS SELECT 1",
        "ATTACH ':memory:' AS other",
        "DETACH main",
        "BEGIN",
        "BEGIN IMMEDIATE",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT a",
        "RELEASE a",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA query_only = 0",
        "PRAGMA wal_autocheckpoint = 1000",
        "PRAGMA user_version = 7",
        "PRAGMA optimize",
        "PRAGMA temp_store = 1",
        "PRAGMA writable_schema = 1",
        "SELECT * FROM pragma_wal_checkpoint",
        "SELECT load_extension('x')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT 1; DELETE FROM t",
        "",
        "-- nothing",
        "SELECT 1\0; DELETE FROM t",
        "SELECT",
        "SELECT * FROM missing",
        "SELECT * FROM pragma_table_info(CAST(x'ff' AS TEXT))",
    ];
    for sql in hostile {
        for _ in 0..2 {
            let error = fixture.try_query(sql, &ReadLimits::default()).expect_err(sql);
            let ReadError::Failed(failure) = &error else { panic!("{sql}: {error}") };
            assert!(failure.message.len() > 10 && !error.is_retryable(), "{sql}: {error}");
        }
        let snapshot = fixture.readers.snapshot_blocking().unwrap();
        assert!(snapshot.query_blocking(&statement(sql), &ReadLimits::default()).is_err(), "{sql}");
        assert_eq!(count(&snapshot), 10, "{sql}");
    }
    fixture.assert_usable();
}

fn count(snapshot: &Snapshot) -> i64 {
    snapshot.query_blocking(&statement("SELECT count(*) FROM t"), &ReadLimits::default()).unwrap().one().unwrap()
}

#[test]
fn schema_and_plans_can_be_read() {
    let fixture = fixture();
    for sql in [
        "PRAGMA table_info(t)",
        "SELECT name FROM sqlite_schema",
        "EXPLAIN QUERY PLAN SELECT * FROM t",
        "EXPLAIN QUERY PLAN DELETE FROM t WHERE id = 1",
        "EXPLAIN INSERT INTO t (name) SELECT name FROM t RETURNING id",
    ] {
        assert!(!fixture.try_query(sql, &ReadLimits::default()).unwrap().is_empty(), "{sql}");
    }
    assert_eq!(fixture.one::<i64>("SELECT count(*) FROM t"), 10);
}

/// Some modules prepare writes when one of their tables is first read.
#[test]
fn virtual_tables_of_every_module_are_read() {
    let fixture = fixture();
    for (table, module) in [("f", "fts5(a)"), ("r", "rtree(a, b, c)"), ("i", "rtree_i32(a, b, c)")] {
        fixture.writer.execute_batch(&format!("CREATE VIRTUAL TABLE {table} USING {module}")).unwrap();
        fixture.writer.execute_batch(&format!("INSERT INTO {table} (a) VALUES (1)")).unwrap();
        assert_eq!(fixture.one::<i64>(&format!("SELECT a FROM {table}")), 1, "{module}");
        for sql in [format!("INSERT INTO {table} (a) VALUES (2)"), format!("DELETE FROM {table}")] {
            assert_eq!(fixture.try_query(&sql, &ReadLimits::default()), Err(ReadError::Writes), "{sql}");
        }
    }
}

/// The reader's own statements run under other rules, so a caller with the same text must not get the prepared ones.
#[test]
fn callers_do_not_get_the_reader_s_own_statements() {
    let fixture = fixture_with(ReaderOptions { readers: 1, ..ReaderOptions::default() });
    drop(fixture.readers.snapshot_blocking().unwrap());
    for sql in ["BEGIN", "ROLLBACK"] {
        assert!(fixture.try_query(sql, &ReadLimits::default()).is_err());
    }
    fixture.assert_usable();
}

#[test]
fn a_text_of_very_many_statements_is_refused() {
    let fixture = fixture();
    assert!(fixture.try_query(&"SELECT 1;".repeat(100_000), &ReadLimits::default()).is_err());
}
