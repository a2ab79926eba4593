//! `quorate sql`: what it prints, and how it fails.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use support::{Dev, failed, succeeded};

#[test]
fn results_print_in_each_format() {
    let dev = Dev::start(1);
    let made = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, data BLOB);
                INSERT INTO t VALUES (1, 'Ada', x'00ff'), (2, 'with, \"comma\"', NULL);";
    let printed = succeeded(&dev.sql(&[], made));
    assert!(printed.starts_with("OK, 0 rows changed"), "{printed}");
    assert!(printed.contains("OK, 2 rows changed, position 1.1."), "{printed}");

    let all = "SELECT * FROM t ORDER BY id";
    let table = "\
id  name           data
──  ─────────────  ───────
 1  Ada            X'00FF'
 2  with, \"comma\"  NULL
(2 rows)
";
    assert_eq!(succeeded(&dev.sql(&[], all)), table);
    let csv = "id,name,data\n1,Ada,X'00FF'\n2,\"with, \"\"comma\"\"\",\n";
    assert_eq!(succeeded(&dev.sql(&["--format", "csv"], all)), csv);
    let json = r#"[{"id":1,"name":"Ada","data":{"hex":"00ff"}},
{"id":2,"name":"with, \"comma\"","data":null}]
"#;
    assert_eq!(succeeded(&dev.sql(&["--format", "json"], all)), json);

    let returning = "INSERT INTO t (name) VALUES ('x') RETURNING id, name";
    assert_eq!(succeeded(&dev.sql(&["--format", "csv"], returning)), "id,name\n3,x\n");
    let local = succeeded(&dev.sql(&["--format", "csv", "--level", "local"], "SELECT count(*) AS n FROM t"));
    assert_eq!(local, "n\n3\n");
}

#[test]
fn a_failed_statement_says_why_and_ends_the_script() {
    let dev = Dev::start(1);
    succeeded(&dev.sql(&[], "CREATE TABLE t (id INTEGER PRIMARY KEY)"));
    for (sql, expected) in [
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM missing", "no such table: missing"),
        ("INSERT INTO t VALUES (1), (1)", "UNIQUE constraint failed: t.id"),
        ("BEGIN", "not committed"),
        ("ATTACH 'x' AS y", "ATTACH"),
        ("SELECT 1 WHERE ?", "parameter"),
    ] {
        let error = failed(&dev.sql(&[], sql));
        assert!(error.to_lowercase().contains(&expected.to_lowercase()), "{sql}: {error}");
    }
    failed(&dev.sql(&[], "INSERT INTO t VALUES (5); SELECT wrong; INSERT INTO t VALUES (6)"));
    assert_eq!(dev.value(None, "SELECT group_concat(id) FROM t"), "5");
}
