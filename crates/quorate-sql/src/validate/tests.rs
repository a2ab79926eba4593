//! Tests of which statements may be proposed.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "a test measures time")]

use std::time::Instant;

use quorate_env::Env;
use quorate_model::Value;
use quorate_model::limits::{PARAMETERS_MAX, SQL_BYTES_MAX, VALUE_BYTES_MAX};

use super::*;
use crate::extensions::Extensions;

struct Fixture {
    validator: Validator,
    writer: rusqlite::Connection,
    _dir: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let generations = Arc::new(Generations::open(Env::real().disk(), dir.path(), 4096, Extensions::default()).unwrap());
    let writer = connection::open_writer(&generations.current(), CACHE_BYTES).unwrap();
    writer.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)").unwrap();
    Fixture { validator: Validator::new(generations), writer, _dir: dir }
}

impl Fixture {
    fn kind(&self, sql: &str, params: usize) -> Result<StatementKind, Failure> {
        self.validator.check(&Statement {
            sql: sql.to_owned().into(),
            params: vec![Value::Null.into(); params],
            names: vec![],
        })
    }

    fn failure(&self, sql: &str) -> FailureKind {
        self.kind(sql, 0).expect_err(sql).kind
    }
}

#[test]
fn each_kind_is_recognised_and_cached() {
    use StatementKind::{Ddl, Read, Unknown, Vacuum, Write};
    let fixture = fixture();
    let cases = [
        ("SELECT * FROM t WHERE id = ?", 1, Read),
        ("WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT * FROM n", 0, Read),
        ("INSERT INTO t (name) VALUES (?) RETURNING id", 1, Write),
        ("UPDATE t SET name = ?2 WHERE id = ?1;", 2, Write),
        ("DELETE FROM t -- all", 0, Write),
        ("CREATE TABLE u (a)", 0, Ddl),
        ("ALTER TABLE t ADD COLUMN age INTEGER", 0, Ddl),
        ("CREATE INDEX t_name ON t (name)", 0, Ddl),
        ("ANALYZE", 0, Ddl),
        ("VACUUM", 0, Vacuum),
        ("INSERT INTO missing VALUES (?)", 1, Unknown),
        ("INSERT INTO missing VALUES (?)", 7, Unknown),
        ("SELECT missing FROM t", 0, Unknown),
        ("SELECT missing(1)", 0, Unknown),
        ("DROP TABLE missing", 0, Unknown),
        ("DROP INDEX missing", 0, Unknown),
        ("CREATE TABLE t (already)", 0, Unknown),
        ("INSERT INTO t VALUES (1, 2, 3)", 0, Unknown),
        ("CREATE TRIGGER a AFTER INSERT ON missing BEGIN DELETE FROM t; END", 0, Unknown),
    ];
    for (sql, params, kind) in cases {
        for _ in 0..2 {
            assert_eq!(fixture.kind(sql, params), Ok(kind), "{sql}");
        }
    }
}

#[test]
fn statements_that_can_never_work_are_refused() {
    let fixture = fixture();
    for sql in ["", "SELEC 1", "SELECT (1", "SELECT 'open", "SELECT ?99999", "INSERT INTO t VALUES (1,)", "SELECT 1\0"]
    {
        assert_eq!(fixture.failure(sql), FailureKind::Sql, "{sql}");
    }
    let refused = [
        "SELECT 1; SELECT 2",
        "BEGIN",
        "COMMIT",
        "SAVEPOINT a",
        "ATTACH 'x' AS y",
        "PRAGMA journal_mode = DELETE",
        "CREATE TEMP TABLE x (a)",
        "CREATE TABLE _quorate_x (a)",
        "VACUUM INTO 'copy'",
        "SELECT load_extension('x')",
    ];
    for sql in refused {
        let failure = fixture.kind(sql, 0).expect_err(sql);
        assert_eq!(failure.kind, FailureKind::Refused, "{sql}");
        assert!(failure.message.len() > 20, "{sql}: {}", failure.message);
    }
}

#[test]
fn parameters_of_a_cached_text_are_checked() {
    let fixture = fixture();
    let sql = "INSERT INTO t VALUES (?, ?)";
    for _ in 0..2 {
        assert!(fixture.kind(sql, 2).is_ok());
        for wrong in [0, 1, 3] {
            assert_eq!(fixture.kind(sql, wrong).unwrap_err().kind, FailureKind::Sql);
        }
    }
    let named = |name: &str| Statement { sql: "SELECT :a".into(), params: vec![1.into()], names: vec![name.into()] };
    assert!(fixture.validator.check(&named(":a")).is_ok());
    assert!(fixture.validator.check(&named(":b")).is_err());
}

#[test]
fn size_limits_are_exact() {
    let fixture = fixture();
    let text = |len: usize| format!("SELECT 1 {}", "-".repeat(len - "SELECT 1 ".len()));
    assert!(fixture.kind(&text(SQL_BYTES_MAX), 0).is_ok());
    assert_eq!(fixture.failure(&text(SQL_BYTES_MAX + 1)), FailureKind::TooBig);
    let value =
        |len| Statement { sql: "SELECT ?".into(), params: vec![Value::from(vec![0; len]).into()], names: vec![] };
    assert!(fixture.validator.check(&value(VALUE_BYTES_MAX)).is_ok());
    assert_eq!(fixture.validator.check(&value(VALUE_BYTES_MAX + 1)).unwrap_err().kind, FailureKind::TooBig);
    let last = format!("SELECT ?{PARAMETERS_MAX}");
    assert!(fixture.kind(&last, PARAMETERS_MAX).is_ok());
    assert_eq!(fixture.kind(&last, PARAMETERS_MAX + 1).unwrap_err().kind, FailureKind::TooBig);
}

/// Checking a text with many statements must not nest a call for each of them.
#[test]
fn many_statements_do_not_exhaust_the_stack() {
    let fixture = fixture();
    assert_eq!(fixture.failure(&"SELECT 1;".repeat(100_000)), FailureKind::Refused);
}

#[test]
fn a_column_that_is_added_later_is_found() {
    let fixture = fixture();
    let sql = "SELECT * FROM t ORDER BY 3";
    assert_eq!(fixture.kind(sql, 0), Ok(StatementKind::Unknown));
    fixture.writer.execute_batch("ALTER TABLE t ADD COLUMN age").unwrap();
    assert_eq!(fixture.kind(sql, 0), Ok(StatementKind::Read));
    assert_eq!(fixture.kind("DELETE FROM t WHERE (1, 2, 3) IN (SELECT * FROM t)", 0), Ok(StatementKind::Write));
}

#[test]
fn a_table_that_is_created_later_is_found() {
    let fixture = fixture();
    let sql = "INSERT INTO later VALUES (?)";
    assert_eq!(fixture.kind(sql, 1), Ok(StatementKind::Unknown));
    let generation = fixture.validator.generations.current();
    let writer = connection::open_writer(&generation, CACHE_BYTES).unwrap();
    writer.execute_batch("CREATE TABLE later (a)").unwrap();
    assert_eq!(fixture.kind(sql, 1), Ok(StatementKind::Write));
    assert!(fixture.kind(sql, 2).is_err());
}

/// Prints a measurement, and checks no limit: `cargo test --release -- --nocapture hit_cost`.
#[test]
fn hit_cost() {
    let fixture = fixture();
    let sql = "INSERT INTO t (id, name) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET name = excluded.name";
    let statement = Statement { sql: sql.into(), params: vec![1.into(), "Ada".into()], names: vec![] };
    fixture.validator.check(&statement).unwrap();
    let (rounds, start) = (100_000, Instant::now());
    for _ in 0..rounds {
        assert_eq!(fixture.validator.check(std::hint::black_box(&statement)), Ok(StatementKind::Write));
    }
    println!("a second check costs {:?}", start.elapsed() / rounds);
}

#[test]
fn hostile_statements_do_not_end_the_caller() {
    let fixture = fixture();
    let check = move || {
        for sql in crate::hostile::deep() {
            let _ = fixture.kind(&format!("INSERT INTO t (id) SELECT 1 FROM ({sql})"), 0);
        }
        assert_eq!(
            fixture.failure(&format!("INSERT INTO t (id) {}", crate::hostile::doubling())),
            FailureKind::Refused
        );
        assert_eq!(fixture.kind("INSERT INTO t (id) VALUES (1)", 0), Ok(StatementKind::Write));
    };
    std::thread::Builder::new().stack_size(512 << 10).spawn(check).unwrap().join().unwrap();
}
