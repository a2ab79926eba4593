//! Another connection changes the schema between two reads.

use super::*;

/// A schema change by another connection, and a query that is valid only after it.
const SHAPES: [(&str, &str); 14] = [
    ("ALTER TABLE t ADD COLUMN b", "SELECT * FROM t ORDER BY 3"),
    ("ALTER TABLE t ADD COLUMN b", "SELECT * FROM t GROUP BY 3"),
    ("ALTER TABLE t ADD COLUMN b", "SELECT b FROM t"),
    ("ALTER TABLE t ADD COLUMN b", "SELECT * FROM t UNION SELECT 1, 2, 3"),
    ("ALTER TABLE t ADD COLUMN b", "SELECT 1 WHERE (1, 2, 3) IN (SELECT * FROM t)"),
    ("ALTER TABLE t ADD COLUMN b", "SELECT (1, 2, 3) IN (TABLE_OF_THREE) FROM t"),
    ("ALTER TABLE t ADD COLUMN b", "WITH c(x, y, z) AS (SELECT * FROM t) SELECT z FROM c"),
    ("ALTER TABLE t ADD COLUMN b", "SELECT (1, 2, 3) = (SELECT * FROM t)"),
    ("ALTER TABLE t DROP COLUMN name", "SELECT 1 IN (SELECT * FROM t)"),
    ("ALTER TABLE t DROP COLUMN name", "SELECT (SELECT * FROM t)"),
    ("ALTER TABLE t RENAME TO u; CREATE VIEW t AS SELECT 1 AS b", "SELECT b FROM t"),
    ("CREATE INDEX by_name ON t (name)", "SELECT * FROM t INDEXED BY by_name WHERE name = 'x'"),
    ("DROP VIEW v; CREATE VIEW v AS SELECT 1 AS a, 2 AS b", "SELECT * FROM v ORDER BY 2"),
    ("ALTER TABLE r RENAME COLUMN id TO other", "SELECT id FROM t, r"),
];

#[test]
fn a_query_runs_under_the_present_schema() {
    let mut failed = Vec::new();
    for (change, sql) in SHAPES {
        let fixture = fixture();
        fixture.writer.execute_batch("CREATE VIEW v AS SELECT 1 AS a; CREATE TABLE r (id)").unwrap();
        let sql = sql.replace("TABLE_OF_THREE", "SELECT * FROM t");
        fixture.one::<i64>("SELECT count(*) FROM t, v");
        fixture.writer.execute_batch(change).unwrap();
        if let Err(error) = fixture.try_query(&sql, &ReadLimits::default()) {
            failed.push(format!("{sql}: {error}"));
        }
        fixture.assert_usable();
    }
    assert_eq!(failed, Vec::<String>::new());
}

#[test]
fn a_snapshot_keeps_its_schema() {
    let fixture = fixture();
    let sql = statement("SELECT * FROM t ORDER BY 3");
    let query = |snapshot: &Snapshot| snapshot.query_blocking(&sql, &ReadLimits::default());
    let before = fixture.readers.snapshot_blocking().unwrap();
    fixture.writer.execute_batch("ALTER TABLE t ADD COLUMN b").unwrap();
    assert!(matches!(query(&before), Err(ReadError::Failed(_))));
    drop(before);
    assert_eq!(query(&fixture.readers.snapshot_blocking().unwrap()).unwrap().len(), 10);
    let mut stream = fixture.readers.stream_blocking(sql, ReadLimits::default()).unwrap();
    assert_eq!(stream.next_blocking().unwrap().unwrap().len(), 10);
}

#[test]
fn a_wrong_query_fails_under_the_present_schema() {
    let fixture = fixture();
    fixture.one::<i64>("SELECT count(*) FROM t");
    fixture.writer.execute_batch("ALTER TABLE t ADD COLUMN b").unwrap();
    let wrong = fixture.try_query("SELECT * FROM t ORDER BY 4", &ReadLimits::default()).unwrap_err();
    assert!(wrong.to_string().contains("should be between 1 and 3"), "{wrong}");
    fixture.assert_usable();
}
