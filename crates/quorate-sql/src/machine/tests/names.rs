//! Names and texts that SQLite can't read back from the schema: the statement fails, and the database stays intact.

use quorate_model::StoreFault;

use super::*;

/// The text that SQLite stores for these begins with words that it parses differently when it reads the schema.
const UNREADABLE: &[&str] = &[
    "CREATE VIEW IF NOT EXISTS IF AS SELECT null",
    "CREATE TABLE IF NOT EXISTS IF (a)",
    "CREATE INDEX IF NOT EXISTS IF ON t (a)",
    "CREATE TRIGGER IF NOT EXISTS IF AFTER INSERT ON t BEGIN SELECT 1; END",
    "CREATE VIRTUAL TABLE IF NOT EXISTS IF USING fts5 (a)",
];

/// SQL keywords that can be names, and some that can't.
const WORDS: &[&str] = &[
    "abort",
    "action",
    "after",
    "all",
    "always",
    "analyze",
    "as",
    "asc",
    "attach",
    "before",
    "begin",
    "by",
    "cascade",
    "case",
    "cast",
    "column",
    "conflict",
    "cross",
    "current",
    "current_date",
    "database",
    "deferred",
    "desc",
    "detach",
    "do",
    "each",
    "end",
    "exclude",
    "explain",
    "fail",
    "filter",
    "first",
    "following",
    "for",
    "full",
    "generated",
    "glob",
    "groups",
    "if",
    "ignore",
    "immediate",
    "indexed",
    "initially",
    "inner",
    "instead",
    "key",
    "last",
    "left",
    "like",
    "match",
    "materialized",
    "natural",
    "no",
    "nulls",
    "of",
    "offset",
    "others",
    "outer",
    "over",
    "partition",
    "plan",
    "pragma",
    "preceding",
    "query",
    "raise",
    "range",
    "recursive",
    "regexp",
    "reindex",
    "release",
    "rename",
    "replace",
    "restrict",
    "right",
    "rollback",
    "row",
    "rows",
    "savepoint",
    "select",
    "temp",
    "temporary",
    "ties",
    "trigger",
    "unbounded",
    "vacuum",
    "view",
    "virtual",
    "window",
    "with",
    "without",
    "rowid",
    "strict",
    "true",
    "oid",
    "\"\"",
    "[]",
    "\"a\"\"b\"",
    "'x'",
    "\"%\"",
    "\"\u{1F600}\"",
    "\"\n\"",
    "\"--\"",
];

const SHAPES: &[&str] = &[
    "CREATE TABLE @ (a)",
    "CREATE TABLE IF NOT EXISTS @ (a, b REFERENCES @)",
    "CREATE TABLE k (@)",
    "CREATE TABLE k (a @)",
    "CREATE TABLE k AS SELECT 1 AS @",
    "CREATE VIEW IF NOT EXISTS @ AS SELECT 1",
    "CREATE VIEW k (@) AS SELECT 1",
    "CREATE INDEX IF NOT EXISTS @ ON t (a)",
    "CREATE TRIGGER IF NOT EXISTS @ AFTER INSERT ON t BEGIN SELECT 1; END",
    "CREATE VIRTUAL TABLE IF NOT EXISTS @ USING fts5 (a)",
    "CREATE VIRTUAL TABLE k USING fts5 (@)",
    "CREATE VIRTUAL TABLE k USING rtree (@, x, y)",
    "ALTER TABLE t RENAME TO @",
    "ALTER TABLE t RENAME COLUMN a TO @",
    "ALTER TABLE t ADD COLUMN @",
    "ALTER TABLE t ADD COLUMN k @",
    "ALTER TABLE t ADD COLUMN k DEFAULT @",
];

const SETUP: &[&str] = &[
    "CREATE TABLE t (a, b)",
    "CREATE INDEX i ON t (a) WHERE b > 0",
    "CREATE VIEW v AS SELECT a, b AS c FROM t",
    "CREATE TRIGGER g AFTER DELETE ON t BEGIN INSERT INTO t VALUES (OLD.a, 1); END",
];

#[test]
fn an_unreadable_name_fails_its_statement() {
    for &sql in UNREADABLE {
        let mut node = Node::with(SETUP);
        let failure = node.fails(sql);
        assert_eq!(failure.kind, FailureKind::Sql, "{sql}: {failure}");
        assert!(failure.to_string().contains("use another name, or quote it"), "{failure}");
        node.ok("INSERT INTO t VALUES (1, 2)");
        node.restart();
        node.ok(&sql.replace("EXISTS IF", "EXISTS \"IF\""));
        node.ok("INSERT INTO t VALUES (1, 2)");
    }
}

#[test]
fn an_unreadable_name_undoes_only_its_entry() {
    let statements = |texts: &[&str]| {
        let commands = texts.iter().map(|sql| command(sql));
        Proposal::new(None, commands.collect())
    };
    let proposals: Vec<Proposal> = UNREADABLE
        .iter()
        .flat_map(|sql| {
            [
                statements(&["INSERT INTO t VALUES (1, 1)"]),
                statements(&["CREATE TABLE x (a)", "INSERT INTO x VALUES (1)", sql]),
                statements(&["INSERT INTO t SELECT a + 1, c FROM v LIMIT 3 RETURNING a"]),
                statements(&[sql]),
                statements(&["CREATE TABLE x (a)", "DROP TABLE x", "ANALYZE"]),
            ]
        })
        .collect();
    let run = |sizes: &[usize]| {
        let mut node = Node::with(SETUP);
        let (mut outcomes, mut left, mut sizes) = (Vec::new(), proposals.as_slice(), sizes.iter().cycle());
        while !left.is_empty() {
            let (now, later) = left.split_at((*sizes.next().unwrap()).min(left.len()));
            let entries: Vec<Entry> =
                now.iter().zip(node.next..).map(|(proposal, index)| entry(index, proposal)).collect();
            outcomes.extend(node.apply(&entries));
            left = later;
        }
        (outcomes, node.hashes())
    };
    let alone = run(&[1]);
    assert_eq!(alone.0.iter().filter(|outcome| outcome.is_err()).count(), 2 * UNREADABLE.len());
    for sizes in [&[2][..], &[3, 1], &[64], &[4, 5]] {
        assert_eq!(run(sizes), alone, "{sizes:?}");
    }
}

#[test]
fn no_word_as_a_name_is_a_fault() {
    let (mut node, mut tried) = (Node::with(SETUP), 0);
    for &shape in SHAPES {
        for &word in WORDS {
            let sql = shape.replace('@', word);
            let undone = [statement(&sql, vec![]), statement("SELECT * FROM nowhere", vec![])];
            node.run(undone.into()).unwrap_err();
            tried += 1;
            // Creating each one for good would take long.
            if tried % 16 == 0 && node.sql(&sql).is_ok() {
                node.restart();
                node = Node::with(SETUP);
            }
        }
    }
}

#[test]
fn a_damaged_schema_is_still_a_fault() {
    let mut node = Node::with(SETUP);
    // Damage the text without the store's knowledge, keeping its length.
    let conn = node.conn();
    conn.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).unwrap();
    conn.execute_batch("PRAGMA writable_schema = ON").unwrap();
    conn.execute_batch("UPDATE sqlite_schema SET sql = 'CREATE VIEW v AS SELECT a, b AS c FRQM t' WHERE name = 'v'")
        .unwrap();
    conn.execute_batch("PRAGMA writable_schema = RESET").unwrap();
    let (next, proposal) = (node.next, single("CREATE TABLE x (a)"));
    let fault = node.fault(&[entry(next, &proposal)]);
    assert!(matches!(fault, StoreFault::Damaged(_)), "{fault}");
}
