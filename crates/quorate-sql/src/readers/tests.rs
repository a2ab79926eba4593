//! Readers of a database that a plain write connection fills.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "tests run threads and measure time of their own")]

use std::sync::Arc;
use std::time::Duration;

use quorate_apply::AppliedRow;
use quorate_env::Env;
use quorate_model::{Applied, LogId, Statement, StoreIdentity, Value};
use rusqlite::Connection;

use super::*;
use crate::cluster_time::ClusterTime;
use crate::connection;
use crate::extensions::Extensions;
use crate::generation::Generations;
use crate::query::FromRowOwned;
use crate::records::applied_row;

mod figures;
mod hostile;
mod limits;
mod refused;
mod schema;
mod snapshot;
mod stream;
mod suspicion;
mod switch;
mod temp;
mod together;

/// The time limit of every wait in these tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// Counts from 1 without end.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";

struct Fixture {
    readers: Readers,
    writer: Connection,
    generations: Arc<Generations>,
    _dir: tempfile::TempDir,
}

/// A store whose read transactions end no sooner than a test.
fn fixture() -> Fixture {
    fixture_with(patient())
}

/// On a busy machine a transaction of a test may take longer than one may usually last.
fn patient() -> ReaderOptions {
    ReaderOptions { transaction: PATIENCE, ..ReaderOptions::default() }
}

/// A store with the table `t(id, name)` of ten rows, at the applied index 1.
fn fixture_with(options: ReaderOptions) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let generations = Arc::new(Generations::open(Env::real().disk(), dir.path(), 4096, Extensions::default()).unwrap());
    let writer = connection::open_writer(&generations.current(), 8 << 20).unwrap();
    fill(&writer, 10);
    Fixture {
        readers: Readers::new(
            Arc::clone(&generations),
            options,
            SlowLog::default(),
            Arc::new(ClusterTime::new(0)),
            &Signal::new(),
        ),
        writer,
        generations,
        _dir: dir,
    }
}

fn fill(writer: &Connection, rows: i64) {
    writer.execute_batch(applied_row::TABLE).unwrap();
    writer.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)").unwrap();
    fill_names(writer, rows);
    set_applied(writer, 1);
}

fn fill_names(writer: &Connection, rows: i64) {
    let names =
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i, 'name ' || i FROM n";
    writer.execute(&format!("INSERT INTO t {names}"), [rows]).unwrap();
}

fn set_applied(writer: &Connection, index: u64) {
    let log_id = Some(LogId { index, ..LogId::default() });
    let row =
        AppliedRow { applied: Applied { log_id, ..Applied::default() }, ..AppliedRow::new(StoreIdentity::default()) };
    applied_row::write(&row, |params| writer.execute(applied_row::WRITE, params)).unwrap();
}

fn statement(sql: &str) -> Statement {
    Statement { sql: sql.to_owned().into(), ..Statement::default() }
}

impl Fixture {
    fn try_query(&self, sql: &str, limits: &ReadLimits) -> Result<Rows, ReadError> {
        self.readers.query_blocking(&statement(sql), limits)
    }

    fn one<T: FromRowOwned>(&self, sql: &str) -> T {
        self.try_query(sql, &ReadLimits::default()).unwrap().one().unwrap()
    }

    /// Checks that all readers are free and work.
    fn assert_usable(&self) {
        let pool = self.readers.pool();
        assert_eq!(pool.permits.available_permits(), self.readers.0.options.readers);
        assert_eq!(self.one::<i64>("SELECT 1"), 1);
    }
}

#[test]
fn a_row_is_read_with_its_parameters() {
    let fixture = fixture();
    let mut query = statement("SELECT id, name FROM t WHERE id = :id OR name = :name ORDER BY id");
    query.params = vec!["name 3".into(), 2.into()];
    query.names = vec![":name".into(), ":id".into()];
    let rows = fixture.readers.query_blocking(&query, &ReadLimits::default()).unwrap();
    assert_eq!(rows.all::<(i64, &str)>().unwrap(), [(2, "name 2"), (3, "name 3")]);
    assert_eq!(rows.columns()[..], ["id", "name"]);
    query.params.pop();
    assert!(matches!(fixture.readers.query_blocking(&query, &ReadLimits::default()), Err(ReadError::Failed(_))));
}

#[test]
fn values_keep_their_storage_class() {
    let fixture = fixture();
    let values = [
        Value::Null,
        Value::Integer(i64::MIN),
        Value::Real(-0.5),
        Value::Text("größe\0".into()),
        Value::Text(String::new()),
        Value::from(vec![0, 255]),
        Value::from(Vec::new()),
    ];
    for value in values {
        let query = Statement { params: vec![value.clone()], ..statement("SELECT ?1, typeof(?1)") };
        let rows = fixture.readers.query_blocking(&query, &ReadLimits::default()).unwrap();
        assert_eq!(rows.one::<(Value, String)>().unwrap(), (value.clone(), value.class().to_lowercase()));
    }
}

#[test]
fn non_utf8_text_is_an_error_but_readable_as_a_blob() {
    let fixture = fixture();
    let error = fixture.try_query("SELECT CAST(x'61ff' AS TEXT) AS bad", &ReadLimits::default()).unwrap_err();
    assert!(error.to_string().contains("\"bad\" holds a text that is not UTF-8"), "{error}");
    assert_eq!(fixture.one::<Vec<u8>>("SELECT CAST(CAST(x'61ff' AS TEXT) AS BLOB)"), [0x61, 0xff]);
    fixture.assert_usable();
}

#[test]
fn columns_follow_the_schema() {
    let fixture = fixture();
    let sql = "SELECT * FROM t WHERE id = 1";
    let columns = |fixture: &Fixture| fixture.try_query(sql, &ReadLimits::default()).unwrap().columns().join(",");
    assert_eq!(columns(&fixture), "id,name");
    fixture.writer.execute_batch("ALTER TABLE t ADD COLUMN age; ALTER TABLE t RENAME COLUMN name TO called").unwrap();
    assert_eq!(columns(&fixture), "id,called,age");

    let declared = |fixture: &Fixture| {
        let rows = fixture.try_query("SELECT at, at || '' AS text FROM u", &ReadLimits::default()).unwrap();
        (rows.decltype(0).map(str::to_owned), rows.decltype(1).map(str::to_owned))
    };
    for decltype in ["DATETIME", "VARCHAR(10)"] {
        let table = format!("DROP TABLE IF EXISTS u; CREATE TABLE u (at {decltype}); INSERT INTO u VALUES (1)");
        fixture.writer.execute_batch(&table).unwrap();
        assert_eq!(declared(&fixture), (Some(decltype.to_owned()), None));
    }
}

#[test]
fn more_statements_than_are_kept_prepared_still_run() {
    let fixture = fixture();
    for number in (0..1000).chain(0..10) {
        assert_eq!(fixture.one::<i64>(&format!("SELECT {number}")), number);
    }
}

#[test]
fn checks_accept_writes_since_the_last_read() {
    let fixture = fixture();
    fixture.writer.execute_batch("CREATE VIRTUAL TABLE f USING fts5(body)").unwrap();
    for check in ["PRAGMA integrity_check", "SELECT * FROM pragma_quick_check"] {
        fixture.writer.execute_batch("INSERT INTO f VALUES ('one'); INSERT INTO f VALUES ('two')").unwrap();
        // The reader's FTS5 caches the structure of the index, which then changes.
        assert_eq!(fixture.one::<i64>("SELECT min(rowid) FROM f WHERE f MATCH 'one'"), 1);
        fixture.writer.execute_batch("INSERT INTO f (f) VALUES ('optimize')").unwrap();
        assert_eq!(fixture.one::<String>(check), "ok");
        fixture.assert_usable();
    }
}

#[test]
fn pragmas_report_the_present_schema() {
    let fixture = fixture();
    let counts = || {
        let pragmas = ["PRAGMA foreign_key_list(later)", "SELECT * FROM pragma_index_list('later')"];
        pragmas.map(|sql| fixture.try_query(sql, &ReadLimits::default()).unwrap().len())
    };
    assert_eq!(counts(), [0, 0]);
    fixture.writer.execute_batch("CREATE TABLE later (a UNIQUE, b REFERENCES t)").unwrap();
    assert_eq!(counts(), [1, 1]);
    let snapshot = fixture.readers.snapshot_blocking().unwrap();
    fixture.writer.execute_batch("DROP TABLE later").unwrap();
    let before = statement("PRAGMA foreign_key_list(later)");
    let before = snapshot.query_blocking(&before, &ReadLimits::default()).unwrap();
    assert_eq!((before.len(), counts()), (1, [0, 0]));
    drop(snapshot);
    fixture.assert_usable();
}
