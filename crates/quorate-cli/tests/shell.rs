//! The shell of `quorate sql`: scripts, transactions, dot commands and exit codes, through the real binary.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::process::Output;

use support::{Dev, ended_with, failed, quorate, succeeded};

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_script_stops_at_the_first_error_and_says_where() {
    let dev = Dev::start(1);
    let script =
        "CREATE TABLE t (a INTEGER PRIMARY KEY);\nINSERT INTO t VALUES (1);\n\n-- twice\nINSERT INTO t\n  VALUES (1);
INSERT INTO t VALUES (2);\n";
    let output = dev.script(&[], script);
    let error = failed(&output);
    assert_eq!(error, "quorate: stdin:5: UNIQUE constraint failed: t.a\n");
    assert_eq!(dev.value(None, "SELECT group_concat(a) FROM t"), "1");

    let file = dev.dir.path().join("more.sql");
    std::fs::write(&file, "SELECT x;\nINSERT INTO t VALUES (3);\n.tabels\nINSERT INTO t VALUES (4)").unwrap();
    let file = file.to_str().unwrap();
    let error = failed(&quorate(&dev.sql_options(&["-f", file])));
    assert!(error.starts_with(&format!("quorate: {file}:1: no such column: x")), "{error}");
    let error = failed(&quorate(&dev.sql_options(&["-f", file, "--keep-going"])));
    let lines: Vec<&str> = error.lines().collect();
    assert!(
        lines[0].contains(":1: no such column")
            && lines[1].contains(":3: .tabels is not known; the nearest is .tables")
    );
    assert_eq!(lines[2], "quorate: 2 statements failed");
    assert_eq!(dev.value(None, "SELECT group_concat(a, ' ') FROM t"), "1 3 4");

    let error = failed(&dev.sql(&[], &format!(".read '{file}'")));
    assert!(error.contains("more.sql:1: no such column"), "{error}");
    let endless = dev.dir.path().join("endless.sql");
    std::fs::write(&endless, format!(".read {}", endless.display())).unwrap();
    let error = failed(&dev.sql(&[], &format!(".read {}", endless.display())));
    assert!(error.contains("16 deep"), "{error}");
}

#[test]
fn exit_codes_show_what_went_wrong() {
    let elsewhere = tempfile::tempdir().unwrap();
    let dir = elsewhere.path().to_str().unwrap();
    let wrong = [["sql", "--format", "tabel"].as_slice(), &["sql", "-f", "x", "SELECT 1"], &["sql", "--level", "x"]];
    for wrong in wrong {
        let error = ended_with(2, &quorate(wrong));
        assert!(error.contains("--help"), "{error}");
    }
    let error = ended_with(3, &quorate(&["sql", "--data-dir", dir, "SELECT 1"]));
    assert!(error.contains("start one with `quorate dev`"), "{error}");
    let error = ended_with(1, &quorate(&["sql", "--data-dir", dir, "-f", "missing.sql"]));
    assert!(error.contains("missing.sql"), "{error}");
    let help = succeeded(&quorate(&["sql", "--help"]));
    assert!(help.contains("Examples:") && help.contains("Exit code:") && help.contains("--mode"), "{help}");

    let dev = Dev::start(1);
    let addr = dev.addr(1);
    let secret = dev.dir.path().join("secret");
    let pinned = ["sql", "--node", &addr, "--secret-file", secret.to_str().unwrap()];
    succeeded(&quorate(&[&pinned, ["CREATE TABLE t (a)"].as_slice()].concat()));
    dev.kill(1);
    let error = ended_with(3, &quorate(&[&pinned, ["SELECT 1"].as_slice()].concat()));
    assert!(error.contains(&addr), "{error}");
}

#[test]
fn a_transaction_is_done_whole_or_not_at_all() {
    let dev = Dev::start(1);
    let done = "CREATE TABLE t (a INTEGER PRIMARY KEY, b); BEGIN; INSERT INTO t VALUES (1, 'x');
        CREATE TRIGGER tr AFTER INSERT ON t BEGIN UPDATE t SET b = 'y'; END;
        INSERT INTO t (a) VALUES (2) RETURNING a; COMMIT;";
    let printed = succeeded(&dev.sql(&[], done));
    assert!(printed.contains("BEGIN: statements are collected"), "{printed}");
    assert!(printed.ends_with("a\n─\n2\n(1 row)\n"), "{printed}");
    assert_eq!(dev.value(None, "SELECT group_concat(a || b) FROM t"), "\"1y,2y\"");

    let script = "BEGIN;\nINSERT INTO t (a) VALUES (3);\nINSERT INTO t (a) VALUES\n  (1);\nEND;\n";
    let error = failed(&dev.script(&[], script));
    assert!(error.starts_with("quorate: stdin:5: COMMIT: nothing was written: stdin:3: INSERT INTO t"), "{error}");
    assert!(error.contains("UNIQUE constraint failed: t.a"), "{error}");

    for (script, why) in [
        ("BEGIN;\nINSERT INTO t (a) VALUES (3);\n", "stdin:1: a transaction was begun and not committed"),
        ("BEGIN; SELECT 1; COMMIT", "it can't read"),
        ("BEGIN; WITH x AS (SELECT 1) SELECT * FROM x; COMMIT", "it can't read"),
        ("BEGIN; BEGIN", "begun already"),
        ("COMMIT", "no transaction was begun"),
        ("SAVEPOINT x", "savepoints are not supported"),
    ] {
        let error = failed(&dev.script(&[], script));
        assert!(error.contains(why), "{script}: {error}");
    }
    succeeded(&dev.sql(&[], "BEGIN; INSERT INTO t (a) VALUES (3); ROLLBACK; BEGIN; COMMIT"));
    assert_eq!(dev.value(None, "SELECT count(*) FROM t"), "2");
}

#[test]
fn dot_commands_print_and_set() {
    let dev = Dev::start(1);
    succeeded(&dev.sql(
        &[],
        "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE); CREATE INDEX by_name ON users (name DESC);
         CREATE VIEW names AS SELECT name FROM users; CREATE VIRTUAL TABLE notes USING fts5(text);
         INSERT INTO users VALUES (1, NULL), (2, ''), (3, 'NULL'), (4, char(27) || '[31mred')",
    ));
    let run = |lines: &str| succeeded(&dev.script(&[], lines));
    assert_eq!(run(".tables"), "names\nnotes\nusers\n");
    assert_eq!(run(".tables %s%r%"), "users\n");
    assert_eq!(run(".indexes users"), "by_name\nsqlite_autoindex_users_1\n");
    assert_eq!(run("\\dt us%\n\\di names"), "users\n");
    let made =
        "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE);\nCREATE INDEX by_name ON users (name DESC);\n";
    assert_eq!(run(".schema users"), made);
    assert!(run(".schema").ends_with("CREATE VIRTUAL TABLE notes USING fts5(text);\n"));
    assert_eq!(
        run(".explain SELECT * FROM users ORDER BY name + 1"),
        "QUERY PLAN\n├─ SCAN users\n└─ USE TEMP B-TREE FOR ORDER BY\n"
    );
    assert_eq!(run(".eqp on\nSELECT count(*) FROM names WHERE name = 'x';").lines().next(), Some("QUERY PLAN"));
    assert!(run("EXPLAIN QUERY PLAN SELECT 1").starts_with("QUERY PLAN\n└─ SCAN CONSTANT ROW"));
    assert_eq!(
        run(".explain DELETE FROM users WHERE id = 1"),
        "QUERY PLAN\n└─ SEARCH users USING INTEGER PRIMARY KEY (rowid=?)\n"
    );
    assert!(failed(&dev.sql(&[], ".explain DROP TABLE users")).contains("EXPLAIN is a query"));
    assert_eq!(run("SELECT name FROM users WHERE id < 4"), "name\n──────\nNULL\n\n'NULL'\n(3 rows)\n");
    assert_eq!(run(".nullvalue -\n.headers off\nSELECT name FROM users WHERE id < 4"), "-\n\nNULL\n(3 rows)\n");
    assert!(run("SELECT name FROM users WHERE id = 4").contains("\\u{1b}[31mred"));
    assert_eq!(
        run(".width 4 -6\nSELECT 'abcdef' AS a, 'x' AS b"),
        "a          b\n────  ──────\nabcd       x\nef\n(1 row)\n"
    );
    assert!(run(".status").contains("node 1 leads"));
    assert_eq!(run(".mode json\n.mode\n.level local\n.level"), "mode: json\nlevel: local\n");
    assert!(run(".help").contains(".tables [PATTERN]"));
    assert!(run(".help .mode").contains("ndjson"));
    assert!(run(".timer on\nSELECT 1").contains("Time: "));
    assert_eq!(run("SELECT 1 AS a;\n.quit\nSELECT 2"), "a\n─\n1\n(1 row)\n");
    let error = failed(&dev.sql(&[], ".schema missing"));
    assert!(error.contains("nothing like missing; .tables lists"), "{error}");
    let csv = dev.dir.path().join("moons.csv");
    std::fs::write(&csv, "planet,moons\nMars,2\nSaturn,many,274\nVenus,0\n").unwrap();
    let import = format!(".import {} moons", csv.display());
    assert!(failed(&dev.sql(&[], &import)).contains("a bad line of"));
    assert_eq!(run("SELECT * FROM moons"), "planet  moons\n──────  ─────\nMars        2\nVenus       0\n(2 rows)\n");
    assert!(failed(&dev.sql(&[], ".import - users")).contains("`quorate import` reads the standard input"));

    let file = dev.dir.path().join("out.csv");
    let lines =
        format!(".mode csv\n.output {}\nSELECT id FROM users LIMIT 2;\n.output off\nSELECT 7 AS x", file.display());
    assert_eq!(run(&lines), "x\n7\n");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "id\n1\n2\n");
    let output = dev.script(&[], "PRAGMA foreign_keys=OFF;\nSELECT 1");
    assert!(said(&output).contains("foreign keys are always enforced") && output.status.success());
}

/// The results are larger than one reply, and longer than what a table reads to choose its widths.
#[test]
fn results_have_any_size() {
    let dev = Dev::start(1);
    let many = |rows, width| {
        format!(
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             SELECT i, printf('%{width}s', i) AS text FROM n"
        )
    };
    let printed = succeeded(&dev.sql(&["--mode", "ndjson"], &many(20_000, 2000)));
    assert!(printed.lines().count() == 20_000 && printed.len() > 36 << 20);
    let printed = succeeded(&dev.sql(&[], &many(3000, 20)));
    assert!(printed.lines().count() == 3003 && printed.ends_with("\n(3000 rows)\n"));
}

#[test]
fn expanded_output_switches_on_and_off() {
    let dev = Dev::start(1);
    let script = ".mode csv\n\\x\nSELECT 1 AS a, 2 AS b;\n\\x\nSELECT 3 AS a, 4 AS b;\n.expanded on\n.expanded on
SELECT 5 AS a;\n.expanded off\nSELECT 6 AS a;\n";
    let printed = succeeded(&dev.script(&[], script));
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let plain = lines.iter().filter(|line| ["a,b", "3,4", "a", "6"].contains(line)).count();
    assert!(
        plain == 4 && printed.contains("a = 1") && printed.contains("b = 2") && printed.contains("a = 5"),
        "{printed}"
    );
}
