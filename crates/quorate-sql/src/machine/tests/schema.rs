//! The cached schema has no visible effect: a live connection behaves like one that was just opened.

use super::*;

const PLAN: &str = "SELECT id FROM e WHERE a = 1 AND b > 5 LIMIT 1";

/// Rows for which statistics change the order in which a query finds them.
fn node() -> Node {
    Node::with(&[
        "CREATE TABLE e (id INTEGER PRIMARY KEY, a, b)",
        "CREATE INDEX ea ON e (a)",
        "CREATE INDEX eb ON e (b)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
         INSERT INTO e (a, b) SELECT 1, 1000 - i FROM n",
    ])
}

fn plan(node: &Node) -> String {
    let read = |row: &rusqlite::Row<'_>| row.get::<_, String>(3);
    node.conn().query_row(&format!("EXPLAIN QUERY PLAN {PLAN}"), [], read).unwrap()
}

/// The plan of the live connection, after checking that a newly opened one has the same.
fn plan_live_and_fresh(node: &mut Node) -> String {
    let (live, found) = (plan(node), node.ok(PLAN));
    node.restart();
    assert_eq!((plan(node), node.ok(PLAN)), (live.clone(), found));
    live
}

#[test]
fn plans_match_those_of_a_new_connection() {
    let mut node = node();
    let without = plan_live_and_fresh(&mut node);
    node.ok(PLAN);
    node.ok("ANALYZE");
    let with = plan_live_and_fresh(&mut node);
    assert_ne!(with, without, "the test needs statistics that matter");
    // Roll back the statistics with their entry, and with their batch.
    node.ok("DELETE FROM sqlite_stat1");
    assert_eq!(plan_live_and_fresh(&mut node), without);
    node.run(["ANALYZE", PLAN, "SELECT * FROM nowhere"].map(|sql| statement(sql, vec![])).into()).unwrap_err();
    assert_eq!(plan_live_and_fresh(&mut node), without);
    node.ok("CREATE TABLE r (a UNIQUE ON CONFLICT ROLLBACK)");
    let statements = ["ANALYZE", "INSERT INTO r VALUES (1), (1)"];
    node.run(statements.map(|sql| statement(sql, vec![])).into()).unwrap_err();
    assert_eq!(plan_live_and_fresh(&mut node), without);
    node.ok("ANALYZE");
    assert_eq!(plan_live_and_fresh(&mut node), with);
    for sql in ["UPDATE sqlite_stat1 SET stat = '1 1'", "INSERT INTO sqlite_stat1 VALUES ('e', 'ea', '1 1')"] {
        assert_eq!(node.fails(sql).kind, FailureKind::Refused);
    }
}

#[test]
fn statistics_leave_out_what_differs_between_nodes() {
    let mut node = node();
    node.ok("CREATE VIRTUAL TABLE f USING fts5(body)");
    node.ok("INSERT INTO f VALUES ('one')");
    node.propose(&open_session()).unwrap();
    node.ok("ANALYZE");
    let rows = node.ok("SELECT DISTINCT tbl FROM sqlite_stat1").rows;
    assert_eq!(rows, [[Value::from("e")]]);
}

#[test]
fn a_statement_sees_earlier_changes_of_its_entry() {
    let mut node = Node::new();
    let statements = [
        "CREATE TABLE t (a)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD COLUMN b DEFAULT 2",
        "CREATE VIRTUAL TABLE f USING fts5(body)",
        "INSERT INTO f VALUES ('one')",
        "SELECT b, (SELECT count(*) FROM f WHERE f MATCH 'one') FROM t",
    ];
    let reply = node.run(statements.map(|sql| statement(sql, vec![])).into()).unwrap();
    let Some(CommandResult::Sql(SqlReply::Statement(last))) = reply.results.last() else { panic!("{reply:?}") };
    assert_eq!(last.rows, [[Value::Integer(2), Value::Integer(1)]]);
    let inside = ["DROP TABLE f", "CREATE VIRTUAL TABLE g USING fts5(body)", "SELECT * FROM g_data"];
    assert_eq!(node.run(inside.map(|sql| statement(sql, vec![])).into()).unwrap_err().kind, FailureKind::Refused);
}

#[test]
fn tables_of_every_kind_can_be_altered() {
    let columns =
        ["", "DEFAULT 7", "NOT NULL DEFAULT 1", "DEFAULT 1 CHECK (b > 0)", "AS (a + 1)", "REFERENCES parent (id)"];
    for (column, kind) in
        columns.into_iter().flat_map(|column| ["", "STRICT", "WITHOUT ROWID"].map(|kind| (column, kind)))
    {
        let mut node = Node::new();
        node.ok("CREATE TABLE parent (id INTEGER PRIMARY KEY)");
        node.ok(&format!("CREATE TABLE t (a INTEGER PRIMARY KEY, c TEXT) {kind}"));
        node.ok("INSERT INTO t VALUES (1, 'x'), (2, 'y')");
        node.ok("CREATE INDEX t_c ON t (c)");
        node.ok("CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET c = new.c || '!' WHERE a = new.a; END");
        node.ok("CREATE VIEW v AS SELECT c FROM t");
        for sql in [
            &format!("ALTER TABLE t ADD COLUMN b INTEGER {column}"),
            "ALTER TABLE t RENAME COLUMN c TO d",
            "INSERT INTO t (a, d) VALUES (3, 'z')",
            "ALTER TABLE t RENAME TO u",
            "ALTER TABLE u DROP COLUMN b",
        ] {
            // The column can be dropped together with a CHECK or a reference of its own.
            assert_eq!(node.sql(sql).map(drop), Ok(()), "{sql}, {kind}");
        }
        assert_eq!(node.ok("SELECT d FROM v ORDER BY d").rows.concat(), ["x", "y", "z!"].map(Value::from));
    }
}

#[test]
fn a_column_that_the_rows_violate_is_refused() {
    let mut node = node();
    for (sql, expected) in [
        ("ALTER TABLE e ADD COLUMN c CHECK (a > 1)", "CHECK constraint failed"),
        ("ALTER TABLE e ADD COLUMN c NOT NULL", "Cannot add a NOT NULL column with default value NULL"),
        ("ALTER TABLE e ADD COLUMN c GENERATED ALWAYS AS (nullif(a, 1)) NOT NULL", "NOT NULL constraint failed"),
        ("CREATE TABLE x AS SELECT * FROM pragma_quick_check", "describes only one node"),
        ("SELECT * FROM pragma_quick_check", "describes only one node"),
        ("PRAGMA quick_check", "describes only one node; use it in a query"),
    ] {
        let failure = node.fails(sql);
        assert!(failure.message.contains(expected), "{sql}: {failure:?}");
    }
}

#[test]
fn schema_changes_of_every_kind_work() {
    let mut node = node();
    for sql in [
        "CREATE VIEW v AS SELECT a FROM e",
        "CREATE TRIGGER g AFTER DELETE ON e BEGIN SELECT 1; END",
        "CREATE TABLE s (id INTEGER PRIMARY KEY AUTOINCREMENT, e REFERENCES e (id))",
        "CREATE TABLE c AS SELECT a, b FROM e",
        "CREATE VIRTUAL TABLE r USING rtree(id, x0, x1)",
        "INSERT INTO r VALUES (1, 0.5, 2)",
        "ANALYZE e",
        "REINDEX",
        "ALTER TABLE e RENAME TO e2",
        "ALTER TABLE e2 RENAME COLUMN a TO z",
        "ALTER TABLE e2 DROP COLUMN b",
        "DROP INDEX ea",
    ] {
        let outcome = node.sql(sql);
        // The dropped column has an index.
        assert_eq!(outcome.is_err(), sql.contains("DROP COLUMN"), "{sql}: {outcome:?}");
    }
    for sql in ["DROP TABLE r", "DROP TABLE s", "DROP VIEW v", "DROP TRIGGER g", "DROP TABLE e2", "DROP TABLE c"] {
        node.ok(sql);
    }
    let left = "SELECT name FROM sqlite_schema WHERE name NOT GLOB '*quorate_*' AND name NOT GLOB 'sqlite_*'";
    assert_eq!(node.ok(left).rows, Vec::<Vec<Value>>::new());
}

#[test]
fn the_text_of_a_table_is_limited_to_a_mebibyte() {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    let add = |name: &str| format!("ALTER TABLE t ADD COLUMN {name} DEFAULT '{}'", "x".repeat(600_000));
    node.ok(&add("b"));
    let failure = node.fails(&add("c"));
    assert!(failure.message.contains("string or blob too big"), "{failure}");
    node.restart();
    node.ok("INSERT INTO t (a) VALUES (1)");
    assert_eq!(node.ok("SELECT name FROM pragma_table_info('t')").rows.len(), 2);
}
