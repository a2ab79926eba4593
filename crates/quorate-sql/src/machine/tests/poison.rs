//! Entries that must not stop, block or split a cluster: each has an outcome, and the store goes on.

use quorate_model::limits::{RETURNED_BYTES_MAX, SQL_BYTES_MAX, VALUE_BYTES_MAX};

use super::*;

fn node() -> Node {
    Node::with(&["CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE)", "INSERT INTO t VALUES (1, 'one')"])
}

/// Checks that the statement fails with this kind, changes nothing, and that the store goes on.
fn fails(node: &mut Node, sql: &str, kind: FailureKind) -> Failure {
    let before = logical_hash::user(node.conn()).unwrap();
    let failure = node.fails(sql);
    assert_eq!(failure.kind, kind, "{sql}: {failure:?}");
    assert_eq!(logical_hash::user(node.conn()).unwrap(), before, "{sql}");
    assert!(node.conn().is_autocommit());
    assert_eq!(node.value("SELECT count(*) FROM t WHERE a = 'one'"), Value::Integer(1));
    failure
}

#[test]
fn invalid_sql_fails() {
    let mut node = node();
    for sql in [
        "",
        " ; ",
        "-- nothing",
        "SELEC 1",
        "SELECT * FROM nowhere",
        "SELECT 1 +",
        "INSERT INTO t VALUES (1)",
        "SELECT json('{')",
    ] {
        fails(&mut node, sql, FailureKind::Sql);
    }
    fails(&mut node, "SELECT 1; SELECT 2", FailureKind::Refused);
    fails(&mut node, &"SELECT 1;".repeat(100_000), FailureKind::Refused);
    assert_eq!(node.ok("SELECT 1; -- one statement").rows.len(), 1);
}

#[test]
fn statements_about_the_node_are_refused() {
    let mut node = node();
    for (sql, reason) in [
        ("BEGIN", "batch"),
        ("COMMIT", "batch"),
        ("ROLLBACK", "batch"),
        ("SAVEPOINT entry", "batch"),
        ("RELEASE entry", "batch"),
        ("ATTACH '/tmp/other' AS other", "not replicated"),
        ("DETACH main", "not replicated"),
        ("VACUUM", "VACUUM"),
        ("VACUUM INTO '/tmp/copy'", "VACUUM"),
        ("PRAGMA journal_mode = DELETE", "settings"),
        ("PRAGMA foreign_keys = OFF", "settings"),
        ("PRAGMA defer_foreign_keys = ON", "settings"),
        ("PRAGMA optimize", "settings"),
        ("PRAGMA writable_schema = ON", "settings"),
        ("SELECT * FROM pragma_page_count", "one node"),
        ("SELECT count(*) FROM pragma_database_list", "one node"),
        ("SELECT * FROM dbstat", "one node"),
        ("SELECT rootpage FROM sqlite_schema", "differs between nodes"),
        ("SELECT * FROM sqlite_master", "differs between nodes"),
        ("CREATE TABLE c AS SELECT rootpage FROM sqlite_schema", "differs between nodes"),
        ("SELECT load_extension('x')", "depends on the node"),
        ("SELECT sqlite_version()", "depends on the node"),
        ("CREATE TEMP TABLE x (a)", "one node"),
        ("CREATE TEMP TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END", "one node"),
        ("CREATE VIRTUAL TABLE v USING dbstat", "fts5"),
        ("CREATE VIRTUAL TABLE v USING fts4(a)", "fts5"),
        ("EXPLAIN SELECT 1", "query"),
        ("EXPLAIN QUERY PLAN SELECT 1", "query"),
        ("SELECT * FROM _quorate_applied", "belong to the store"),
        ("UPDATE _QUORATE_applied SET now = 0", "belong to the store"),
        ("DELETE FROM _quorate_sessions", "belong to the store"),
        ("DROP TABLE _quorate_outcomes", "belong to the store"),
        ("DELETE FROM _quorate_requests", "belong to the store"),
        ("CREATE TABLE _Quorate_x (a)", "belong to the store"),
        ("CREATE INDEX i ON _quorate_sessions (used)", "belong to the store"),
        ("CREATE TRIGGER g AFTER INSERT ON _quorate_sessions BEGIN SELECT 1; END", "belong to the store"),
        ("ALTER TABLE t RENAME TO _quorate_t", "belong to the store"),
        ("CREATE TABLE c (a REFERENCES _quorate_applied)", "belong to the store"),
        ("CREATE VIEW v AS SELECT * FROM \"_QUORATE_sessions\"", "belong to the store"),
        ("CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM _quorate_applied; END", "belong to the store"),
    ] {
        let failure = fails(&mut node, sql, FailureKind::Refused);
        assert!(failure.message.contains(reason), "{sql}: {failure:?}");
    }
}

#[test]
fn refused_access_in_triggers_and_views_is_refused() {
    let mut node = node();
    node.ok("CREATE TABLE u (a)");
    // Earlier versions allowed such a trigger.
    node.conn().execute_batch("CREATE TRIGGER g AFTER INSERT ON u BEGIN DELETE FROM _quorate_applied; END").unwrap();
    node.restart();
    node.ok("CREATE VIEW v AS SELECT rootpage FROM sqlite_schema");
    fails(&mut node, "INSERT INTO u VALUES (1)", FailureKind::Refused);
    fails(&mut node, "SELECT * FROM v", FailureKind::Refused);
}

#[test]
fn schema_pragmas_can_be_read_and_user_version_set() {
    let mut node = node();
    assert_eq!(node.ok("PRAGMA table_info(t)").rows.len(), 2);
    assert_eq!(node.ok("SELECT name FROM pragma_table_info('t')").rows.len(), 2);
    node.ok("PRAGMA user_version = 5");
    assert_eq!(node.value("PRAGMA user_version"), Value::Integer(5));
    assert_eq!(node.ok("SELECT name, sql FROM sqlite_schema WHERE name = 't'").rows.len(), 1);
}

#[test]
fn local_time_fails() {
    let mut node = node();
    for sql in ["SELECT datetime('now', 'localtime')", "SELECT datetime(0, 'unixepoch', 'utc')"] {
        assert!(fails(&mut node, sql, FailureKind::Sql).message.contains("local time"));
    }
    assert_eq!(node.ok("SELECT datetime('now', 'utc')").rows.len(), 1);
}

#[test]
fn violated_constraints_fail_with_any_conflict_clause() {
    let mut node = node();
    node.ok("CREATE TABLE r (a UNIQUE ON CONFLICT ROLLBACK)");
    node.ok("INSERT INTO r VALUES (1)");
    node.ok("CREATE TRIGGER g BEFORE DELETE ON r BEGIN SELECT RAISE(ROLLBACK, 'kept'); END");
    node.ok("CREATE TABLE c (p REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)");
    let constraint = FailureKind::Constraint;
    for sql in [
        "INSERT INTO t VALUES (2, 'two'), (3, 'one')",
        "INSERT OR FAIL INTO t VALUES (2, 'two'), (3, 'one')",
        "INSERT OR ROLLBACK INTO t VALUES (2, 'two'), (3, 'one')",
        "INSERT INTO r VALUES (2), (1)",
        "DELETE FROM r",
    ] {
        let failure = fails(&mut node, sql, constraint);
        assert_eq!(failure.sqlite_code & 0xff, rusqlite::ffi::SQLITE_CONSTRAINT);
    }
    fails(&mut node, "INSERT INTO c VALUES (99)", FailureKind::ForeignKey);
}

#[test]
fn a_failed_statement_undoes_those_before_it() {
    let mut node = node();
    for last in ["INSERT INTO t VALUES (9, 'one')", "INSERT OR ROLLBACK INTO t VALUES (9, 'one')", "BEGIN"] {
        let statements = ["INSERT INTO t VALUES (2, 'two')", "CREATE TABLE x (a)", "INSERT INTO x VALUES (1)", last];
        let failure = node.run(statements.map(|sql| statement(sql, vec![])).into()).unwrap_err();
        assert_eq!(failure.command, Some(3));
        assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(1));
        assert_eq!(node.fails("SELECT * FROM x").kind, FailureKind::Sql);
    }
}

#[test]
fn rowids_never_become_random() {
    let mut node = node();
    let exhausted = FailureKind::RowidExhausted;
    node.ok("CREATE TABLE s (id INTEGER PRIMARY KEY AUTOINCREMENT)");
    fails(&mut node, "INSERT INTO t (id) VALUES (9223372036854775807)", exhausted);
    fails(&mut node, "UPDATE t SET id = 9223372036854775807", exhausted);
    fails(&mut node, "INSERT INTO t SELECT 9223372036854775807, 'x'", exhausted);
    node.ok("INSERT INTO s VALUES (9223372036854775805)");
    node.ok("UPDATE sqlite_sequence SET seq = 9223372036854775807");
    let full = fails(&mut node, "INSERT INTO s VALUES (NULL)", exhausted);
    assert_eq!(full.sqlite_code, rusqlite::ffi::SQLITE_FULL);
}

#[test]
fn column_names_never_become_random() {
    let mut node = node();
    let columns = |count: usize| vec!["1 AS a"; count].join(", ");
    node.ok(&format!("CREATE TABLE five AS SELECT {}", columns(5)));
    for sql in [
        format!("CREATE TABLE six AS SELECT {}", columns(7)),
        format!("CREATE VIEW six AS SELECT {}", columns(7)),
        format!("SELECT * FROM (SELECT {})", columns(7)),
    ] {
        assert!(fails(&mut node, &sql, FailureKind::Refused).message.contains("called a"));
    }
    assert_eq!(node.ok(&format!("SELECT {}", columns(7))).columns, vec!["a"; 7]);
}

#[test]
fn values_that_are_too_large_fail() {
    let mut node = node();
    let too_big = FailureKind::TooBig;
    fails(&mut node, &format!("SELECT zeroblob({})", VALUE_BYTES_MAX + 1), too_big);
    fails(&mut node, &format!("SELECT randomblob({})", i64::MAX), too_big);
    fails(&mut node, &format!("SELECT '{}'", "x".repeat(SQL_BYTES_MAX)), too_big);
    let rows = format!("SELECT zeroblob(1000000) FROM json_each('[{}1]')", "1,".repeat(RETURNED_BYTES_MAX / 1_000_000));
    fails(&mut node, &rows, too_big);
    let sql = "x".repeat(100 << 20);
    let huge = single(&sql);
    assert_eq!(huge.check_limits().unwrap_err().kind, too_big);
}

#[test]
fn shadow_tables_of_virtual_tables_are_hidden() {
    let mut node = node();
    node.ok("CREATE VIRTUAL TABLE f USING fts5(body)");
    node.ok("INSERT INTO f VALUES ('one two'), ('two three')");
    let refused = FailureKind::Refused;
    for restart in [false, true] {
        if restart {
            node.restart();
        }
        assert_eq!(node.ok("SELECT rowid FROM f WHERE f MATCH 'two' ORDER BY rank").rows.len(), 2);
        fails(&mut node, "SELECT * FROM f_data", refused);
        fails(&mut node, "SELECT count(*) FROM F_Content", refused);
        fails(&mut node, "CREATE INDEX i ON f_docsize (sz)", refused);
        fails(&mut node, "CREATE TABLE c (a REFERENCES f_data)", refused);
        fails(&mut node, "CREATE VIRTUAL TABLE g USING fts5(block, content='f_data', content_rowid='id')", refused);
        fails(&mut node, "CREATE VIRTUAL TABLE g USING fts5(rootpage, content='sqlite_master')", refused);
        fails(
            &mut node,
            "CREATE VIRTUAL TABLE g USING fts5(now, content='_Quorate_applied', content_rowid='id')",
            refused,
        );
    }
}

#[test]
fn an_error_in_a_virtual_table_fails_its_statement() {
    let mut node = node();
    node.ok("CREATE TABLE content (id INTEGER PRIMARY KEY, body)");
    node.ok("CREATE VIRTUAL TABLE f USING fts5(body, content='content', content_rowid='id')");
    node.ok("INSERT INTO content VALUES (1, 'one')");
    node.ok("INSERT INTO f (rowid, body) VALUES (1, 'one')");
    node.ok("DELETE FROM content");
    let failure = fails(&mut node, "INSERT INTO f (f, rank) VALUES ('integrity-check', 1)", FailureKind::Sql);
    assert_eq!(failure.sqlite_code, rusqlite::ffi::SQLITE_CORRUPT_VTAB);
    node.ok("INSERT INTO f (f) VALUES ('rebuild')");
    node.ok("DROP TABLE f");
}

#[test]
fn a_statement_failed_by_a_trigger_leaves_nothing() {
    let mut node = Node::with(&[
        "CREATE TABLE t (a)",
        "CREATE TABLE u (a UNIQUE)",
        "CREATE TRIGGER g BEFORE INSERT ON t BEGIN
            INSERT OR FAIL INTO u SELECT value FROM json_each('[1, 2, 1]'); END",
    ]);
    for _ in 0..3 {
        assert_eq!(node.fails("INSERT INTO t VALUES (1)").kind, FailureKind::Constraint);
        assert_eq!(node.value("SELECT count(*) FROM u"), Value::Integer(0));
    }
}

#[test]
fn uncounted_changes_over_budget_are_undone() {
    let mut node = Node::with(&["CREATE TABLE s (id INTEGER PRIMARY KEY AUTOINCREMENT, a)"]);
    let insert = Command::Sql(SqlCommand::Statement(statement("INSERT INTO s (a) SELECT 1 WHERE ?1", vec![0.into()])));
    for _ in 0..3 {
        let failure = node.propose(&Proposal { budget: 1, ..Proposal::new(None, vec![insert.clone()]) }).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Budget);
        assert_eq!(node.value("SELECT count(*) FROM sqlite_sequence"), Value::Integer(0));
    }
    node.propose(&Proposal::new(None, vec![insert])).unwrap();
    assert_eq!(node.value("SELECT count(*) FROM sqlite_sequence"), Value::Integer(1));
}
