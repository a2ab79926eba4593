//! `.dump`: loading it with `sqlite3` gives the same database.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use quorate::{Client, ClientConfig, SecretSource, Value};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use support::{Dev, failed, succeeded};

/// A database with everything that is hard to dump.
const DATABASE: &str = r#"
CREATE TABLE plain (a, b TEXT, c REAL, d INTEGER, e BLOB);
INSERT INTO plain VALUES (NULL, 'it''s; "so"', 0.1 + 0.2, -9223372036854775808, x'00ff'),
  (1, '', 1e999, 9223372036854775807, x''), (2.0, 'a' || char(13) || char(10) || 'b', 5, 0, zeroblob(3)),
  ('3', 'NULL', -1e-320, 1, x'27'), ('-- ;', '日本語', 1e15, 2, 'text');
INSERT INTO plain VALUES (CAST(x'61ff00c3' AS TEXT), 'a' || char(0) || 'b', 123456789.123456789, 7, CAST('t' AS BLOB));
DELETE FROM plain WHERE rowid = 2;
CREATE TABLE "order" ("group" INTEGER PRIMARY KEY AUTOINCREMENT, "a ""b""" TEXT DEFAULT 'x' -- why not
);
INSERT INTO "order" VALUES (7, 'seven'), (9, 'nine');
DELETE FROM "order" WHERE "group" = 9;
CREATE TABLE empty_sequence (id INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE keyed (k TEXT COLLATE NOCASE, n INT, v, PRIMARY KEY (k DESC, n)) WITHOUT ROWID;
INSERT INTO keyed VALUES ('b', 1, 'x'), ('a', 2, NULL), ('A', 3, 1.5);
CREATE TABLE backwards (id INTEGER PRIMARY KEY DESC, v);
INSERT INTO backwards (rowid, id, v) VALUES (5, 1, 'x'), (3, 2, 'y');
CREATE TABLE made (a INT, b AS (a * 2) STORED, c TEXT, d AS (c || '!'));
INSERT INTO made (a, c) VALUES (1, 'x'), (2, NULL);
CREATE TABLE named (rowid TEXT, _rowid_ INT);
INSERT INTO named (oid, rowid, _rowid_) VALUES (42, 'x', 1);
CREATE TABLE strict (id INTEGER PRIMARY KEY, v ANY) STRICT;
INSERT INTO strict VALUES (1, '1'), (2, 1), (3, 1.0);
CREATE TABLE child (id INTEGER PRIMARY KEY, parent REFERENCES parent (id), self REFERENCES child (id));
CREATE TABLE parent (id INTEGER PRIMARY KEY);
INSERT INTO parent VALUES (1);
INSERT INTO child VALUES (2, 1, NULL), (1, 1, 2);
CREATE INDEX by_c ON plain (c DESC, lower(b)) WHERE d > 0;
CREATE UNIQUE INDEX by_v ON made (a);
CREATE VIEW seen AS SELECT a, b FROM made WHERE a > 1;
CREATE VIEW a_view_first AS SELECT * FROM seen;
CREATE TRIGGER on_insert AFTER INSERT ON plain BEGIN INSERT INTO made (a, c) VALUES (new.d, 'triggered'); END;
CREATE TRIGGER on_view INSTEAD OF INSERT ON seen BEGIN SELECT 1; END;
CREATE VIRTUAL TABLE notes USING fts5(title, body UNINDEXED, prefix='2 3');
INSERT INTO notes (rowid, title, body) VALUES (3, 'hello world', 'it''s'), (10, 'hello again', NULL);
INSERT INTO notes (notes, rank) VALUES ('automerge', 8);
INSERT INTO notes (notes, rank) VALUES ('rank', 'bm25(10.0)');
CREATE VIRTUAL TABLE of_order USING fts5("a ""b""", content='order', content_rowid='group');
INSERT INTO of_order (of_order) VALUES ('rebuild');
CREATE VIRTUAL TABLE bare USING fts5(text, content='');
INSERT INTO bare (rowid, text) VALUES (1, 'nothing is kept'), (5, 'but the words');
CREATE VIRTUAL TABLE boxes USING rtree(id, x0, x1, +label);
INSERT INTO boxes VALUES (1, 0.1, 2.7, 'a'), (7, -3, 1e10, NULL);
ANALYZE;
PRAGMA user_version = 12;
PRAGMA application_id = -5;
"#;

/// Queries that compare virtual tables, whose shadow tables may differ.
const MATCHES: [&str; 4] = [
    "SELECT rowid FROM notes WHERE notes MATCH 'hel* world' ORDER BY rank",
    "SELECT rowid FROM of_order WHERE of_order MATCH 'seven'",
    "SELECT rowid FROM bare WHERE bare MATCH 'words OR kept' ORDER BY rowid",
    "SELECT id FROM boxes WHERE x0 <= 0.5 AND x1 >= 0.5 ORDER BY id",
];

type Cell = (&'static str, Vec<u8>);

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => ("null", vec![]),
        ValueRef::Integer(value) => ("integer", value.to_be_bytes().to_vec()),
        ValueRef::Real(value) => ("real", value.to_bits().to_be_bytes().to_vec()),
        ValueRef::Text(bytes) => ("text", bytes.to_vec()),
        ValueRef::Blob(bytes) => ("blob", bytes.to_vec()),
    }
}

fn rows(conn: &Connection, sql: &str) -> Vec<Vec<Cell>> {
    let mut statement = conn.prepare(sql).unwrap();
    let width = statement.column_count();
    let rows = statement.query_map([], |row| (0..width).map(|at| row.get_ref(at).map(cell)).collect()).unwrap();
    rows.map(Result::unwrap).collect()
}

fn texts(conn: &Connection, sql: &str) -> Vec<String> {
    conn.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Compares everything that users created, and what sqlite3 keeps about it.
fn assert_equal(original: &Connection, loaded: &Connection) {
    const MADE: &str = "SELECT type || ' ' || name || ' ' || tbl_name || ' ' || sql FROM sqlite_schema
        WHERE sql IS NOT NULL AND tbl_name NOT LIKE '!_quorate!_%' ESCAPE '!' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
        AND NOT (type = 'view' AND name LIKE 'quorate!_%' ESCAPE '!') ORDER BY 1";
    assert_eq!(texts(loaded, MADE), texts(original, MADE));
    let tables = texts(
        original,
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'virtual', 'view')
            AND name NOT LIKE '!_quorate!_%' ESCAPE '!' AND name <> 'sqlite_schema'
            AND NOT (type = 'view' AND name LIKE 'quorate!_%' ESCAPE '!')",
    );
    for table in tables {
        let rowid = ["_rowid_, ", "oid, ", ""]
            .into_iter()
            .find(|rowid| original.prepare(&format!("SELECT {rowid}1 FROM \"{table}\"")).is_ok());
        let sql = match table.starts_with("sqlite_") {
            true => format!("SELECT * FROM {table} ORDER BY 1, 2"),
            false => format!("SELECT {}* FROM \"{table}\"", rowid.unwrap()),
        };
        let (found, expected) = (rows(loaded, &sql), rows(original, &sql));
        assert_eq!(found.len(), expected.len(), "{table}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{table}");
        }
    }
    for pragma in ["user_version", "application_id"] {
        let sql = format!("PRAGMA {pragma}");
        assert_eq!(rows(loaded, &sql), rows(original, &sql));
    }
    assert_eq!(texts(loaded, "PRAGMA integrity_check"), ["ok"]);
    assert_eq!(rows(loaded, "PRAGMA foreign_key_check"), rows(original, "PRAGMA foreign_key_check"));
}

/// Stops the node and opens its database.
fn stopped(dev: Dev) -> (Connection, tempfile::TempDir) {
    let (_, dir) = dev.end(Signal::INT);
    let path = dir.path().join("node-1/db/00000001/quorate.db");
    (Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap(), dir)
}

/// Loads a dump with rusqlite, and with the `sqlite3` of this machine, if there is one.
fn loaded(dump: &str, dir: &Path) -> Vec<Connection> {
    let path = dir.join("by-rusqlite.db");
    Connection::open(&path).unwrap().execute_batch(dump).unwrap();
    let mut paths: Vec<PathBuf> = vec![path];
    let by_shell = dir.join("by-sqlite3.db");
    let shell =
        Command::new("sqlite3").arg("-bail").arg(&by_shell).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    match shell {
        Ok(mut shell) => {
            std::io::Write::write_all(&mut shell.stdin.take().unwrap(), dump.as_bytes()).unwrap();
            let output = shell.wait_with_output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            paths.push(by_shell);
        }
        Err(error) => eprintln!("not compared with sqlite3: {error}"),
    }
    paths.into_iter().map(|path| Connection::open(path).unwrap()).collect()
}

#[test]
fn sqlite3_loads_a_dump_as_the_same_database() {
    let dev = Dev::start(1);
    succeeded(&dev.script(&[], DATABASE));
    let dump = succeeded(&dev.sql(&[], ".dump"));
    assert!(dump.starts_with("-- quorate dump, position 1.1.") && dump.ends_with("COMMIT;\n"), "{dump}");
    assert!(!dump.contains("_quorate_") && !dump.contains("writable_schema"), "{dump}");
    let file = dev.dir.path().join("dump.sql");
    succeeded(&dev.sql(&[], &format!(".output {}\n.dump", file.display())));
    // The first line has the position, which the cluster's own entries change.
    let body = |dump: &str| dump.split_once('\n').unwrap().1.to_owned();
    assert_eq!(body(&std::fs::read_to_string(file).unwrap()), body(&dump));

    let one = succeeded(&dev.sql(&[], ".dump made notes"));
    assert!(one.contains("INSERT INTO made(rowid,a,c) VALUES(1,1,'x');\n"), "{one}");
    assert!(one.contains("by_v") && one.contains("fts5") && !one.contains("on_view") && !one.contains("user_version"));
    let error = failed(&dev.sql(&[], ".dump missing"));
    assert!(error.contains("no table or view like missing; .tables lists them"), "{error}");

    let (original, dir) = stopped(dev);
    for loaded in loaded(&dump, dir.path()) {
        assert_equal(&original, &loaded);
        for sql in MATCHES {
            let found = rows(&loaded, sql);
            assert!(!found.is_empty(), "{sql}");
            assert_eq!(found, rows(&original, sql), "{sql}");
        }
    }
}

/// A dump can be loaded into a cluster too, if it fits into one transaction.
#[test]
fn quorate_loads_a_dump_as_the_same_tables() {
    let (dev, other) = (Dev::start(1), Dev::start(1));
    // A contentless FTS5 table is dumped with its shadow tables, which a cluster does not accept, and a cluster always
    // enforces foreign keys.
    let is_left_out = |line: &&str| !["bare", "child", "parent"].iter().any(|name| line.contains(name));
    let database: Vec<&str> = DATABASE.lines().filter(is_left_out).collect();
    succeeded(&dev.script(&[], &database.join("\n")));
    let dump = succeeded(&dev.sql(&[], ".dump"));
    succeeded(&other.script(&[], &dump));
    let again = succeeded(&other.sql(&[], ".dump"));
    let body = |dump: &str| dump.split_once('\n').unwrap().1.to_owned();
    assert_eq!(body(&again), body(&dump));
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::Integer),
        any::<u64>().prop_map(f64::from_bits).prop_filter("a number", |real| !real.is_nan()).prop_map(Value::Real),
        (any::<i32>(), -20..20_i32)
            .prop_map(|(digits, exponent)| Value::Real(f64::from(digits) * 10_f64.powi(exponent))),
        any::<String>().prop_map(Value::Text),
        "[-0-9.e'\r\n\t\u{0}\u{1b}]{0,6}".prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..30).prop_map(Value::from),
    ]
}

/// Checks all values under every affinity, and texts that are not UTF-8.
#[test]
fn values_round_trip_bit_for_bit() {
    let dev = Dev::start(1);
    let columns = "a, b TEXT, c INTEGER, d REAL, e NUMERIC, f BLOB, g";
    succeeded(&dev.sql(&[], &format!("CREATE TABLE t ({columns})")));
    let secret = SecretSource::File(dev.dir.path().join("secret"));
    let config = ClientConfig::new([dev.addr(1)], secret);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sql = runtime.block_on(Client::connect(config)).unwrap().sql();
    let config = ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(values in prop::collection::vec(any_value(), 200))| {
        let insert = "INSERT INTO t VALUES (?1, ?1, ?1, ?1, ?1, ?1, CAST(CAST(?1 AS BLOB) AS TEXT))";
        let batch = values.into_iter().map(|value| (insert, vec![value]));
        runtime.block_on(sql.batch(batch)).unwrap();
    });
    let dump = succeeded(&dev.sql(&[], ".dump"));
    let (original, dir) = stopped(dev);
    for loaded in loaded(&dump, dir.path()) {
        assert_equal(&original, &loaded);
    }
}

/// A dump shows one position, although others write meanwhile.
#[test]
fn a_dump_shows_one_position() {
    let dev = Dev::start(1);
    succeeded(&dev.sql(
        &[],
        "CREATE TABLE first (n INTEGER PRIMARY KEY); CREATE TABLE filler (v); CREATE TABLE last (n INTEGER PRIMARY KEY);
         INSERT INTO filler WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
            SELECT printf('%200s', i) FROM n",
    ));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let write =
                |n: u32| format!("BEGIN; INSERT INTO first VALUES ({n}); INSERT INTO last VALUES ({n}); COMMIT;\n");
            succeeded(&dev.script(&["--format", "csv"], &(1..=400).map(write).collect::<String>()));
        });
        let mut counts = Vec::new();
        while !writing.is_finished() || counts.is_empty() {
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch(&succeeded(&dev.sql(&[], ".dump"))).unwrap();
            let both = "SELECT (SELECT count(*) FROM first), (SELECT max(n) FROM last), (SELECT count(*) FROM last)";
            let found = rows(&conn, both).remove(0);
            assert_eq!(found[0], found[2]);
            counts.push(found);
        }
        assert!(!counts.is_empty());
    });
}
