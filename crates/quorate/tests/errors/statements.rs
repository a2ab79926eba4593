//! Errors of statements that fail, are not allowed, or exceed a limit.

use quorate::{Error, Params, Sql, Step, named, params};

use crate::support::on_both;
use crate::{error_of, fails};

const SETUP: [&str; 6] = [
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE, n INTEGER NOT NULL DEFAULT 0 CHECK (n >= 0)) STRICT",
    "CREATE TABLE child (parent INTEGER REFERENCES t)",
    "CREATE TABLE later (parent INTEGER REFERENCES t DEFERRABLE INITIALLY DEFERRED)",
    "CREATE VIRTUAL TABLE docs USING fts5(body)",
    "CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT)",
    "INSERT INTO t (id, a) VALUES (1, 'one')",
];

/// Writes with SQLite's own errors.
const OF_SQLITE: [(&str, &str); 16] = [
    ("SELEC 1", "near \"SELEC\": syntax error"),
    ("INSERT INTO t (a) VALUES ('x'", "incomplete input"),
    ("INSERT INTO nowhere VALUES (1)", "no such table: nowhere"),
    ("INSERT INTO t (b) VALUES (1)", "table t has no column named b"),
    ("UPDATE t SET a = b", "no such column: b"),
    ("INSERT INTO t (a) VALUES (root(4))", "no such function: root"),
    ("CREATE TABLE t (a)", "table t already exists"),
    ("INSERT INTO t (a) VALUES ('one')", "UNIQUE constraint failed: t.a"),
    ("INSERT INTO t (n) VALUES (NULL)", "NOT NULL constraint failed: t.n"),
    ("INSERT INTO t (n) VALUES (-1)", "CHECK constraint failed: n >= 0"),
    ("INSERT INTO t (n) VALUES ('x')", "cannot store TEXT value in INTEGER column t.n"),
    ("INSERT INTO child VALUES (7)", "FOREIGN KEY constraint failed"),
    ("INSERT INTO t (a) VALUES (json('{'))", "malformed JSON"),
    ("INSERT INTO t (id) VALUES ('x')", "datatype mismatch"),
    ("UPDATE t SET n = abs(-9223372036854775807 - 1)", "integer overflow"),
    (
        "INSERT INTO t (a) VALUES (zeroblob(17000000))",
        "string or blob too big: the limit of a value and of a row is 16777216 bytes; keep it in pieces",
    ),
];

/// Writes that are not allowed, and the advice in their errors.
const REFUSED: [(&str, &str); 37] = [
    ("", "the text holds no statement; give it one"),
    ("-- nothing", "the text holds no statement; give it one"),
    ("DELETE FROM t; DELETE FROM t", "several statements in one text; send them one by one, or together as a batch"),
    ("DELETE FROM t WHERE a = '\0'", "a statement can't hold a zero byte; pass such text as a parameter"),
    ("SELECT * FROM t", "this statement only reads, so there is nothing to replicate; use `query` for it"),
    ("EXPLAIN DELETE FROM t", "EXPLAIN describes only this node; run it as a query"),
    ("BEGIN", TRANSACTION),
    ("COMMIT", TRANSACTION),
    ("ROLLBACK", TRANSACTION),
    ("SAVEPOINT a", TRANSACTION),
    ("ATTACH 'x' AS x", ATTACH),
    ("DETACH x", ATTACH),
    ("VACUUM INTO 'copy'", "only VACUUM of the whole store is allowed; for a copy of it take a backup"),
    (
        "PRAGMA journal_mode = DELETE",
        "PRAGMA journal_mode is not allowed here: settings belong to the store and must be equal on all \
         nodes; leave it out",
    ),
    ("PRAGMA integrity_check", "PRAGMA integrity_check describes only one node; use it in a query"),
    ("PRAGMA page_count", "PRAGMA page_count describes only one node; use it in a query"),
    ("CREATE TEMP TABLE x (a)", TEMPORARY),
    ("CREATE TEMP TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END", TEMPORARY),
    ("CREATE TABLE _quorate_x (a)", "_quorate_x: names that begin with _quorate_ belong to the store; choose another"),
    (
        "DELETE FROM _quorate_sessions",
        "_quorate_sessions: names that begin with _quorate_ belong to the store; choose another",
    ),
    (
        "CREATE TABLE x AS SELECT * FROM _quorate_applied",
        "_quorate_applied: names that begin with _quorate_ belong to the store; read it in a query",
    ),
    ("ALTER TABLE t RENAME TO _quorate_t", IN_SCHEMA),
    ("CREATE TABLE x (a REFERENCES _quorate_applied)", IN_SCHEMA),
    (
        "CREATE VIRTUAL TABLE x USING fts5(sql, content = 'sqlite_schema')",
        "x: a virtual table can't refer to tables of SQLite or of the store, or to shadow tables; \
         copy what it needs into a table of your own",
    ),
    ("CREATE VIRTUAL TABLE x USING fts4(a)", "the module fts4 is not allowed; use one of fts5, rtree, rtree_i32"),
    (
        "CREATE VIEW x AS SELECT 1 AS a, 2 AS a, 3 AS a, 4 AS a, 5 AS a, 6 AS a",
        "6 columns are called a; give them names of their own (AS)",
    ),
    (
        "INSERT INTO docs_data VALUES (1, 2)",
        "docs_data is a shadow table, which only its virtual table may change; write to the virtual table",
    ),
    (
        "INSERT INTO t (n) SELECT count(*) FROM docs_data",
        "docs_data is a shadow table of a virtual table and differs between nodes; read it in a query",
    ),
    ("INSERT INTO t (n) SELECT count(*) FROM dbstat", "dbstat describes only one node; read it in a query"),
    (
        "INSERT INTO t (n) SELECT page_count FROM pragma_page_count",
        "pragma_page_count describes only one node; read it in a query",
    ),
    (
        "INSERT INTO t (n) SELECT rootpage FROM sqlite_schema",
        "sqlite_master.rootpage differs between nodes; name the columns that you need",
    ),
    (
        "INSERT INTO t (a) VALUES (sqlite_version())",
        "sqlite_version() is not allowed: what it does or returns depends on the node; call it in a query, \
         and pass the result",
    ),
    (
        "INSERT INTO sqlite_stat1 VALUES ('t', NULL, '1')",
        "only ANALYZE may write to sqlite_stat1, so that plans are equal on all nodes; run it instead",
    ),
    (
        "INSERT INTO later VALUES (7)",
        "a deferred foreign key refers to a row that does not exist; write that too, in the same transaction",
    ),
    (
        "INSERT INTO t (id) VALUES (9223372036854775807)",
        "a row has the largest rowid, after which SQLite would choose rowids at random; use a smaller one",
    ),
    (
        "INSERT INTO counted DEFAULT VALUES",
        "the table has given out the largest rowid; make a new table, or give each row a rowid of its own \
         (SQLite: database or disk is full)",
    ),
    (
        "INSERT INTO t (a) VALUES (hex(zeroblob(4500000))), ('x' || hex(zeroblob(4500000))) RETURNING a",
        "the entry returns more than 16777216 bytes; return less, or query afterwards",
    ),
];

const IN_SCHEMA: &str = "names that begin with _quorate_ belong to the store; leave them out of the schema";
const TRANSACTION: &str =
    "BEGIN, COMMIT, ROLLBACK and SAVEPOINT are not allowed: send statements that belong together as a batch";
const ATTACH: &str =
    "ATTACH and DETACH are not allowed: other files are not replicated; copy what you need into this database";
const TEMPORARY: &str = "temporary objects live on one node only; use an ordinary table, or WITH for one statement";

/// Queries that are not allowed.
const QUERIES: [(&str, &str); 14] = [
    ("SELECT missing", "no such column: missing"),
    ("SELECT 1; SELECT 2", "several statements in one text; send them one by one, or together as a batch"),
    ("", "the text holds no statement; give it one"),
    ("DELETE FROM t", "this statement writes, which a query can't; execute it instead"),
    ("DROP TABLE t", "this statement writes, which a query can't; execute it instead"),
    ("BEGIN", TRANSACTION),
    ("ATTACH 'x' AS x", ATTACH),
    ("CREATE TEMP TABLE x (a)", TEMPORARY),
    (
        "PRAGMA wal_checkpoint",
        "PRAGMA wal_checkpoint is not allowed here: settings belong to the store and must be equal on all \
         nodes; leave it out",
    ),
    ("PRAGMA user_version = 7", "PRAGMA user_version is not allowed in a query with a value; use `execute`"),
    (
        "SELECT load_extension('x')",
        "load_extension() is not allowed: what it does or returns depends on the node; leave it out",
    ),
    ("SELECT ?", "the statement has 1 parameters, 0 are given"),
    ("SELECT json('{')", "malformed JSON"),
    ("VACUUM", "this statement writes, which a query can't; execute it instead"),
];

async fn setup(sql: &Sql) -> Result<(), Error> {
    sql.batch(SETUP).await?;
    sql.execute("ANALYZE", ()).await?;
    sql.execute("INSERT INTO counted VALUES (1)", ()).await?;
    sql.execute("UPDATE sqlite_sequence SET seq = 9223372036854775807", ()).await.map(drop)
}

/// Checks all cases, and lists those that differ.
#[track_caller]
fn all_say(found: &[(&str, (String, bool))], expected: &[(&str, &str)]) {
    let expected = expected.iter().map(|(sql, text)| (*sql, ((*text).to_owned(), false)));
    let wrong: Vec<_> = found.iter().cloned().zip(expected).filter(|(found, expected)| found != expected).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn writes_that_fail() {
    on_both(async |sql| {
        setup(&sql).await?;
        for cases in [&OF_SQLITE[..], &REFUSED] {
            let mut found = Vec::new();
            for (statement, _) in cases {
                found.push((*statement, error_of(sql.execute(*statement, ()).await)));
            }
            all_say(&found, cases);
        }
        Ok(())
    });
}

#[test]
fn queries_that_fail() {
    on_both(async |sql| {
        setup(&sql).await?;
        let mut found = Vec::new();
        for (query, _) in QUERIES {
            found.push((query, error_of(sql.query(query, ()).await)));
        }
        all_say(&found, &QUERIES);
        Ok(())
    });
}

#[test]
fn parameters_that_do_not_fit() {
    on_both(async |sql| {
        setup(&sql).await?;
        let insert = "INSERT INTO t (a, n) VALUES (:a, :n)";
        let cases: [(Params, &str); 4] = [
            (params![1], "the statement has 2 parameters, 1 are given"),
            (params![1, 2, 3], "the statement has 2 parameters, 3 are given"),
            (named! { a: 1, b: 2 }, "the statement has no parameter :b"),
            (named! { a: 1, ":a": 2 }, "parameter :a is given twice"),
        ];
        for (params, text) in cases {
            fails(sql.execute(insert, params.clone()).await, text);
            fails(sql.query("SELECT :a, :n", params).await, text);
        }
        let step = "what a step returned can be a parameter only of a later statement of the same batch";
        fails(sql.query("SELECT ?", (Step(0).column("id"),)).await, step);
        let insert = ("INSERT INTO t (n) VALUES (?)", params![1]);
        let of = |step: Step| ("INSERT INTO t (n) VALUES (?)", params![step.column("id")]);
        let returned = "statement 2: a parameter refers to the column id of statement";
        let cases = [
            (of(Step(0)), "1, which returned 0 rows: it must return exactly one row, with RETURNING"),
            (of(Step(1)), "2, which does not come before it in its batch: refer to an earlier one"),
        ];
        for (second, text) in cases {
            fails(sql.batch([insert.clone(), second]).await, &format!("{returned} {text}"));
        }
        let returns = ("INSERT INTO t (n) VALUES (?) RETURNING n", params![1]);
        fails(sql.batch([returns, of(Step(0))]).await, &format!("{returned} 1, which returned only the columns n"));
        Ok(())
    });
}

#[test]
fn steps_and_rows_that_fail_are_counted() {
    on_both(async |sql| {
        setup(&sql).await?;
        fails(sql.batch(Vec::<String>::new()).await, "the batch holds no statement; give it at least one");
        let twice = sql.batch(["INSERT INTO t (a) VALUES ('two')", "INSERT INTO t (a) VALUES ('one')"]).await;
        fails(twice, "statement 2: UNIQUE constraint failed: t.a");
        let alone = "VACUUM can't be combined with other statements; run it by itself";
        fails(sql.batch(["DELETE FROM t", "VACUUM"]).await, alone);
        let insert = "INSERT INTO t (a) VALUES (?)";
        let none: [(i64,); 0] = [];
        fails(sql.execute_many(insert, none).await, "there is no row of parameters; give at least one");
        fails(sql.execute_many(insert, ["two", "one"].map(|a| (a,))).await, "row 2: UNIQUE constraint failed: t.a");
        let ragged = sql.execute_many(insert, [params![1, 2], params![3]]).await;
        fails(ragged, "row 2: it has 1 values, the first row has 2: give every row the same number");
        let named = sql.execute_many(insert, [named! { a: 1 }]).await;
        fails(named, "row 1: the parameters of many rows are given by position, at least one for each row");
        let returns = sql.execute_many("INSERT INTO t (a) VALUES (?) RETURNING id", [("x",)]).await;
        let only = "only a statement that writes rows, and returns none, can be run for many rows of parameters";
        fails(returns, &format!("{only}; use a batch"));
        let both = sql.execute_many(insert, [("x", 1)]).await;
        fails(both, "the statement has 1 parameters, 2 are given");
        Ok(())
    });
}

#[test]
fn statements_beyond_a_limit() {
    on_both(async |sql| {
        setup(&sql).await?;
        let insert = "INSERT INTO t (a) VALUES (?)";
        let long = format!("DELETE FROM t -- {}", "x".repeat(1 << 20));
        let values = "1048593 bytes of a statement: the limit is 1048576; pass its values as parameters";
        fails(sql.execute(long.clone(), ()).await, values);
        let pieces = "16777217 bytes of a value: the limit is 16777216; store it in pieces";
        let large = || "x".repeat((16 << 20) + 1);
        fails(sql.execute(insert, (large(),)).await, pieces);
        fails(sql.execute_many(insert, [(large(),)]).await, pieces);
        let many = "32767 parameters of a statement: the limit is 32766; split it, or pass them as one JSON";
        fails(sql.execute(insert, vec![1; 32_767]).await, many);
        let split = "65537 statements of a transaction: the limit is 65536; split it, or run one statement for many \
                     rows of parameters";
        fails(sql.batch(vec!["DELETE FROM t"; 65_537]).await, split);
        let rows = "1048577 rows of a statement: the limit is 1048576; pass fewer rows at a time";
        fails(sql.execute_many(insert, (0..(1 << 20) + 1).map(|n| (n,))).await, rows);
        let megabytes = || "x".repeat(9 << 20);
        let four = (0..4).map(|_| (insert, params![megabytes()]));
        let whole = error_of(sql.batch(four).await).0;
        assert!(whole.ends_with(" bytes of a transaction, encoded: the limit is 33554432; split it"), "{whole}");
        Ok(())
    });
}

/// Writes that violate a constraint. For each: which of the questions unique, foreign key, not null and check are
/// answered by yes, and the name of the constraint.
const OF_CONSTRAINTS: [(&str, [bool; 4], Option<&str>); 10] = [
    ("INSERT INTO t (a) VALUES ('one')", [true, false, false, false], Some("t.a")),
    ("INSERT INTO t (id) VALUES (1)", [true, false, false, false], Some("t.id")),
    ("INSERT INTO two VALUES (1, 2, 0), (1, 2, 0)", [true, false, false, false], Some("two.a, two.b")),
    ("INSERT INTO square VALUES (1), (-1)", [true, false, false, false], Some("index 'squares'")),
    ("INSERT INTO child VALUES (7)", [false, true, false, false], None),
    ("INSERT INTO later VALUES (7)", [false, true, false, false], None),
    ("INSERT INTO t (n) VALUES (NULL)", [false, false, true, false], Some("t.n")),
    ("INSERT INTO t (n) VALUES (-1)", [false, false, false, true], Some("n >= 0")),
    ("INSERT INTO two VALUES (1, 2, 9)", [false, false, false, true], Some("small")),
    ("INSERT INTO nowhere VALUES (1)", [false; 4], None),
];

#[test]
fn a_failure_says_which_constraint_does_not_hold() {
    on_both(async |sql| {
        setup(&sql).await?;
        sql.execute("CREATE TABLE two (a, b, c, CONSTRAINT small CHECK (c < 9), PRIMARY KEY (a, b))", ()).await?;
        sql.batch(["CREATE TABLE square (a)", "CREATE UNIQUE INDEX squares ON square (a * a)"]).await?;
        for (statement, answers, constraint) in OF_CONSTRAINTS {
            let Err(Error::Failed(failure)) = sql.execute(statement, ()).await else { panic!("{statement}") };
            let unique = failure.is_unique_violation();
            let (key, null) = (failure.is_foreign_key_violation(), failure.is_not_null_violation());
            assert_eq!([unique, key, null, failure.is_check_violation()], answers, "{statement}: {failure:?}");
            assert_eq!(failure.constraint(), constraint, "{statement}: {failure:?}");
        }
        Ok(())
    });
}
