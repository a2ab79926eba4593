//! The tables that statements use. They are created before the first statement, and again from time to time, because
//! statements change and drop them.

/// A table, a view or a virtual table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    pub name: &'static str,
    /// Columns that statements may write.
    pub columns: &'static [&'static str],
    /// Whether rows can be written into it.
    pub writable: bool,
}

const fn table(name: &'static str, columns: &'static [&'static str]) -> Table {
    Table { name, columns, writable: true }
}

const fn view(name: &'static str, columns: &'static [&'static str]) -> Table {
    Table { name, columns, writable: false }
}

/// The tables that statements choose from.
pub const TABLES: &[Table] = &[
    table("t1", &["a", "b", "c", "d", "e"]),
    table("t2", &["id", "a", "b", "n"]),
    table("t3", &["k", "v"]),
    table("t4", &["x", "y", "z"]),
    table("tree", &["id", "parent"]),
    table("chain", &["n"]),
    table("pad", &["b"]),
    table("ft", &["title", "body"]),
    table("fx", &["b"]),
    table("rt", &["id", "x0", "x1", "y0", "y1"]),
    view("v1", &["a", "b"]),
    view("v2", &["a", "n"]),
    view("v3", &["n", "s"]),
];

/// The collations that the tables use.
pub const COLLATIONS: &[&str] = &["BINARY", "NOCASE", "RTRIM"];

/// Creates the tables. Each statement is a separate entry.
pub const SCHEMA: &[&str] = &[
    "CREATE TABLE pad (b)",
    "CREATE TABLE t1 (a INTEGER PRIMARY KEY, b TEXT, c REAL, d BLOB, e)",
    "CREATE TABLE t2 (id INTEGER PRIMARY KEY AUTOINCREMENT, a INT REFERENCES t1 (a) ON DELETE CASCADE ON UPDATE CASCADE,
     b TEXT COLLATE NOCASE, n INT NOT NULL DEFAULT 0 CHECK (n > -1000000), UNIQUE (a, b))",
    "CREATE TABLE t3 (k TEXT PRIMARY KEY, v) WITHOUT ROWID",
    "CREATE TABLE t4 (x ANY, y INT, z TEXT, g INT AS (y * 2) VIRTUAL, h TEXT AS (z || 'h') STORED) STRICT",
    "CREATE TABLE tree (id INTEGER PRIMARY KEY, parent INT REFERENCES tree (id) ON DELETE CASCADE)",
    "CREATE TABLE chain (n INTEGER)",
    "CREATE VIRTUAL TABLE ft USING fts5 (title, body)",
    "CREATE VIRTUAL TABLE fx USING fts5 (b, content = 't1', content_rowid = 'a')",
    "CREATE VIRTUAL TABLE rt USING rtree (id, x0, x1, y0, y1)",
    "CREATE INDEX i1 ON t1 (b, lower(b) DESC)",
    "CREATE UNIQUE INDEX i2 ON t2 (n, id) WHERE n > 3",
    "CREATE INDEX i4 ON t4 (g, h COLLATE RTRIM)",
    "CREATE INDEX itree ON tree (parent)",
    "CREATE VIEW v1 AS SELECT a, b FROM t1 WHERE c IS NOT NULL",
    "CREATE VIEW v2 AS SELECT t1.a, n FROM t1 LEFT JOIN t2 USING (a)",
    "CREATE VIEW v3 (n, s) AS SELECT n, sum(n) OVER (ORDER BY n) FROM t2 UNION ALL SELECT id, parent FROM tree",
    "CREATE TRIGGER tr1 AFTER INSERT ON t1 WHEN new.a > 10 BEGIN
     INSERT INTO t3 VALUES (new.a, new.b) ON CONFLICT (k) DO UPDATE SET v = excluded.v || 1; END",
    "CREATE TRIGGER tr2 INSTEAD OF INSERT ON v1 BEGIN INSERT INTO t1 (a, b) VALUES (new.a, new.b); END",
    "CREATE TRIGGER tr3 AFTER INSERT ON chain WHEN new.n > 0 BEGIN INSERT INTO chain VALUES (new.n - 1); END",
    "INSERT INTO t1 (a, b, c, d, e) WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 40)
     SELECT x, 'row ' || x, x / 3.0, CAST(x AS BLOB), CASE x % 3 WHEN 0 THEN NULL WHEN 1 THEN x ELSE '{\"a\":[1,2]}' END
     FROM n",
    "INSERT INTO t2 (a, b, n) SELECT a, 'b' || a, a % 7 FROM t1",
    "INSERT INTO t4 (x, y, z) SELECT e, a, b FROM t1",
    "INSERT INTO tree WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 900)
     SELECT x, nullif(x - 1, 0) FROM n",
    "INSERT INTO ft SELECT b, 'the quick brown fox ' || a FROM t1",
    "INSERT INTO fx (fx) VALUES ('rebuild')",
    "INSERT INTO rt SELECT a, a, a + 1, -a, 1 - a FROM t1",
];
