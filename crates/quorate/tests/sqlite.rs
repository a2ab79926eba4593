//! SQLite's features work on three nodes, and the nodes stay equal.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use quorate::{ClientConfig, Level, Rows, Value, verify};
use support::{Cluster, run, secret};

/// Writes, and queries after them with their expected results.
type Case = (&'static [&'static str], &'static [(&'static str, &'static str)]);

const CASES: &[Case] = &[
    (
        &[
            "CREATE VIRTUAL TABLE docs USING fts5(title, body, tokenize = 'porter')",
            "INSERT INTO docs VALUES ('one', 'the running fox'), ('two', 'a sleeping dog'), ('three', 'foxes run')",
            "UPDATE docs SET body = 'dogs run' WHERE title = 'two'",
            "INSERT INTO docs (docs) VALUES ('optimize')",
        ],
        &[
            ("SELECT title FROM docs WHERE docs MATCH 'run' ORDER BY title", "one three two"),
            (
                "SELECT highlight(docs, 1, '<', '>') FROM docs WHERE docs MATCH 'fox' ORDER BY rank LIMIT 1",
                "<foxes> run",
            ),
        ],
    ),
    (
        &[
            "CREATE VIRTUAL TABLE boxes USING rtree(id, x0, x1, y0, y1)",
            "INSERT INTO boxes VALUES (1, 0, 1, 0, 1), (2, 5, 9, 5, 9), (3, 0.5, 6, 0.5, 6)",
            "DELETE FROM boxes WHERE id = 1",
        ],
        &[("SELECT id FROM boxes WHERE x0 < 1 AND y1 > 2", "3")],
    ),
    (
        &[
            "CREATE TABLE things (id INTEGER PRIMARY KEY, data TEXT CHECK (json_valid(data)),
                 kind TEXT AS (data ->> 'kind') STORED, size REAL AS (json_extract(data, '$.area') / 2)) STRICT",
            "CREATE INDEX things_by_kind ON things (kind) WHERE kind IS NOT NULL",
            "CREATE INDEX things_by_len ON things (length(data))",
            "INSERT INTO things (data) VALUES ('{\"kind\":\"a\",\"area\":9}'), ('{\"area\":2.25}'),
                 (jsonb_patch('{}', '{\"kind\":\"b\"}') ->> '$')",
        ],
        &[
            ("SELECT id, kind, size FROM things ORDER BY id", "1 a 4.0 2 NULL 1.125 3 b NULL"),
            ("SELECT group_concat(value, '+') FROM json_each('[1, 2, 3]')", "1+2+3"),
        ],
    ),
    (
        &[
            "CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT UNIQUE, n INTEGER DEFAULT 0)",
            "CREATE TABLE child (parent INTEGER REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, what)",
            "CREATE TABLE note (parent INTEGER REFERENCES parent ON DELETE SET NULL)",
            "CREATE TRIGGER counted AFTER INSERT ON child BEGIN UPDATE parent SET n = n + 1 WHERE id = new.parent; END",
            "CREATE VIEW counts AS SELECT name, n FROM parent ORDER BY name",
            "CREATE TRIGGER through INSTEAD OF INSERT ON counts BEGIN
                 INSERT INTO parent (name, n) VALUES (new.name, new.n); END",
            "INSERT INTO parent (name) VALUES ('a'), ('b') ON CONFLICT (name) DO NOTHING",
            "INSERT INTO child VALUES (1, 'x'), (1, 'y'), (2, 'z')",
            "INSERT INTO note VALUES (2)",
            "INSERT INTO parent (name, n) VALUES ('a', 5) ON CONFLICT (name) DO UPDATE SET n = n + excluded.n",
            "INSERT INTO counts VALUES ('c', 7)",
            "UPDATE parent SET id = 10 WHERE name = 'a'",
            "DELETE FROM parent WHERE name = 'b'",
        ],
        &[
            ("SELECT * FROM counts", "a 7 c 7"),
            ("SELECT parent, what FROM child ORDER BY what", "10 x 10 y"),
            ("SELECT parent FROM note", "NULL"),
        ],
    ),
    (
        &[
            "CREATE TABLE sales (day INTEGER, amount INTEGER)",
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 4)
                 INSERT INTO sales SELECT i, i * i FROM n",
            "UPDATE sales SET amount = amount + d.more FROM (SELECT 4 AS day, 100 AS more) AS d
                 WHERE sales.day = d.day",
        ],
        &[
            ("SELECT sum(amount) OVER (ORDER BY day ROWS 1 PRECEDING) FROM sales", "1 5 13 125"),
            ("SELECT day FROM sales ORDER BY rank() OVER (ORDER BY amount DESC) LIMIT 1", "4"),
        ],
    ),
    (
        &[
            "CREATE TABLE circles (r REAL CHECK (sqrt(r) < 10), area REAL AS (pi() * pow(r, 2)) STORED)",
            "CREATE INDEX circles_by_log ON circles (ln(r))",
            "INSERT INTO circles VALUES (1), (0.5), (ceil(2.1))",
        ],
        &[
            (
                "SELECT r, area FROM circles ORDER BY ln(r)",
                "0.5 0.7853981633974483 1.0 3.141592653589793 3.0 28.274333882308138",
            ),
            ("SELECT log(2, 8), mod(7, 4), sqrt(-1)", "3.0 3.0 NULL"),
        ],
    ),
    (
        &[
            "CREATE TABLE plain (a TEXT COLLATE NOCASE PRIMARY KEY, b BLOB) WITHOUT ROWID",
            "INSERT INTO plain VALUES ('Zoë', x'00ff'), ('adam', NULL)",
            "ANALYZE",
            "REINDEX",
            "VACUUM",
            "REPLACE INTO plain VALUES ('ADAM', 7.5)",
        ],
        &[("SELECT a, typeof(b) FROM plain", "ADAM real Zoë blob")],
    ),
];

/// Joins the values.
fn flat(rows: &Rows) -> String {
    let shown = |value: &Value| if let Value::Text(text) = value { text.clone() } else { value.to_string() };
    rows.iter().flat_map(|row| row.values()).map(shown).collect::<Vec<_>>().join(" ")
}

#[test]
fn sqlite_features_work_on_every_node() {
    run(async {
        let mut cluster = Cluster::start().await;
        let names = ["a", "b", "c"];
        for (number, (writes, queries)) in CASES.iter().enumerate() {
            let mut level = Level::Linearizable;
            for write in *writes {
                let written = cluster.sql(names[number % 3]).execute(*write, ()).await;
                level = Level::AtLeast(written.unwrap_or_else(|error| panic!("{write}: {error}")).position);
            }
            for ((query, expected), name) in queries.iter().flat_map(|case| names.map(|name| (case, name))) {
                let found = cluster.sql(name).at(level).query(*query, ()).await.unwrap();
                assert_eq!(flat(&found), *expected, "{query} on {name}");
            }
        }
        let verification = verify(ClientConfig::new(cluster.addrs(), secret())).await.unwrap();
        assert!(verification.is_sound(), "{:?}", verification.differences());
        cluster.stop_all().await;
    });
}
