//! Generates odd names: keywords, empty, very long, with quotes and NUL, those of SQLite and of Quorate.

use super::Draft;
use crate::harness::dice::Dice;

#[allow(dead_code, reason = "the prompt asks it more than this")]
#[path = "../../../../../quorate-shell/src/keywords.rs"]
mod keywords;

/// Words that have a meaning for SQLite in some places.
const WORDS: [&str; 13] = [
    "TRUE", "FALSE", "STORED", "HIDDEN", "STRICT", "ROWID", "RANK", "EXCLUDED", "NEW", "OLD", "BINARY", "NOCASE", "ANY",
];
/// Names that are not words.
const ODD: [&str; 24] = [
    "",
    " ",
    "a b",
    "a\"b",
    "a'b",
    "a]b",
    "a`b",
    "a.b",
    "a;b",
    "a\nb",
    "a\0b",
    "\u{0}",
    "\u{1F980}",
    "é",
    "\u{202e}abc",
    "--",
    "/*",
    "1",
    "1e5",
    "$a",
    "a%n%s",
    "\\",
    "\u{feff}",
    "?1",
];
/// Names that exist already, or are reserved.
const OWNED: [&str; 22] = [
    "_quorate_x",
    "_quorate_applied",
    "_quorate_sessions",
    "_QUORATE_Y",
    "sqlite_x",
    "sqlite_master",
    "sqlite_schema",
    "sqlite_sequence",
    "sqlite_stat1",
    "sqlite_temp_schema",
    "SQLITE_z",
    "main",
    "temp",
    "rowid",
    "oid",
    "_rowid_",
    "ft_data",
    "ft_config",
    "rt_node",
    "json_each",
    "pragma_table_info",
    "fx_content",
];

/// Returns a name, with or without quotes.
pub fn name(dice: &Dice) -> String {
    let raw = match dice.below(100) {
        0..55 => dice.one(keywords::KEYWORDS).to_owned(),
        55..60 => dice.one(&WORDS).to_owned(),
        60..76 => dice.one(&ODD).to_owned(),
        76..90 => dice.one(&OWNED).to_owned(),
        90..94 => "n".repeat(usize::try_from(dice.one(&[255, 4096, 65_536, 400_000])).unwrap_or(255)),
        _ => dice.one(&["t1", "t2", "ft", "rt", "v1", "i1", "tr1", "a", "b"]).to_owned(),
    };
    let plain = raw.chars().all(|c| c.is_alphanumeric() || c == '_') && !raw.is_empty();
    match dice.below(10) {
        0..5 if plain => raw,
        5 => format!("'{}'", raw.replace('\'', "''")),
        6 => format!("[{raw}]"),
        7 => format!("`{}`", raw.replace('`', "``")),
        8 if plain => raw.to_lowercase(),
        _ => quote(&raw),
    }
}

/// Returns a name in the quotes of standard SQL.
pub fn quote(raw: &str) -> String {
    format!("\"{}\"", raw.replace('"', "\"\""))
}

/// Returns a statement that has an odd name in it.
pub fn statement(dice: &Dice) -> Draft {
    let n = name(dice);
    let m = if dice.chance(50) { n.clone() } else { name(dice) };
    let exists = if dice.chance(40) { "IF NOT EXISTS " } else { "" };
    let gone = if dice.chance(40) { "IF EXISTS " } else { "" };
    match dice.below(10) {
        0..4 => create(dice, exists, &n, &m),
        4..6 => alter(dice, gone, &n, &m),
        6 | 7 => rows(dice, &n, &m),
        _ => read(dice, &n, &m),
    }
}

fn create(dice: &Dice, exists: &str, n: &str, m: &str) -> Draft {
    Draft::write(match dice.below(17) {
        0 => format!("CREATE TABLE {exists}{n} ({m})"),
        1 => format!("CREATE TABLE {exists}{n} ({m} {m} PRIMARY KEY, b REFERENCES {n} ({m})) WITHOUT ROWID"),
        2 => format!("CREATE TABLE {exists}{n} AS SELECT 1 AS {m}, 2 AS {m}"),
        3 => format!("CREATE TABLE {exists}{n} (a CONSTRAINT {m} NOT NULL COLLATE {m} CONSTRAINT {n} CHECK (a > {m}))"),
        4 => format!("CREATE VIEW {exists}{n} AS SELECT null"),
        5 => format!("CREATE VIEW {exists}{n} ({m}) AS SELECT {m} FROM {n}"),
        6 => format!("CREATE INDEX {exists}{n} ON t1 (b)"),
        7 => format!("CREATE UNIQUE INDEX {exists}{n} ON {m} ({m} COLLATE {n}) WHERE {m} IS NOT NULL"),
        8 => format!("CREATE TRIGGER {exists}{n} AFTER INSERT ON pad BEGIN SELECT 1; END"),
        9 => format!("CREATE TRIGGER {exists}{n} BEFORE UPDATE OF {m} ON t1 BEGIN DELETE FROM {m}; END"),
        10 => format!("CREATE TRIGGER {exists}{n} INSTEAD OF DELETE ON v1 WHEN old.{m} BEGIN SELECT {m}; END"),
        11 => format!("CREATE VIRTUAL TABLE {exists}{n} USING fts5 ({m})"),
        12 => format!("CREATE VIRTUAL TABLE {exists}{n} USING rtree ({m}, {n}, b)"),
        13 => format!("CREATE VIRTUAL TABLE {exists}{n} USING {m} ({n})"),
        14 => format!("CREATE VIRTUAL TABLE {exists}{n} USING fts5 (a, content = {m}, prefix = {n}, tokenize = {m})"),
        15 => format!("CREATE TABLE {exists}{m}.{n} (a)"),
        _ => format!("CREATE TABLE {exists}{n} (a, {m} AS (a + 1), FOREIGN KEY (a) REFERENCES {m} ON DELETE SET NULL)"),
    })
}

fn alter(dice: &Dice, gone: &str, n: &str, m: &str) -> Draft {
    let table = dice.one(&["t1", "t2", "t3", "ft", "rt", "v1", "tree"]);
    Draft::write(match dice.below(12) {
        0 => format!("ALTER TABLE {table} RENAME TO {n}"),
        1 => format!("ALTER TABLE {table} RENAME COLUMN a TO {n}"),
        2 => format!("ALTER TABLE {table} ADD COLUMN {n} {m}"),
        3 => format!("ALTER TABLE {n} ADD COLUMN {m} DEFAULT 1"),
        4 => format!("ALTER TABLE {table} DROP COLUMN {n}"),
        5 => format!("ALTER TABLE {n} RENAME TO {m}"),
        6 => format!("DROP TABLE {gone}{n}"),
        7 => format!("DROP VIEW {gone}{n}"),
        8 => format!("DROP INDEX {gone}{n}"),
        9 => format!("DROP TRIGGER {gone}{n}"),
        10 => format!("REINDEX {n}"),
        _ => format!("ANALYZE {n}"),
    })
}

fn rows(dice: &Dice, n: &str, m: &str) -> Draft {
    Draft::write(match dice.below(10) {
        0 => format!("INSERT INTO {n} VALUES (1)"),
        1 => format!("INSERT INTO {n} ({m}) VALUES (1)"),
        2 => format!("INSERT INTO t1 AS {n} (b) VALUES (1) ON CONFLICT (a) DO UPDATE SET b = {n}.b || excluded.{m}"),
        3 => format!("UPDATE {n} SET {m} = 1"),
        4 => format!("UPDATE t1 SET b = {n} FROM t2 AS {m} WHERE {m}.a = t1.a"),
        5 => format!("DELETE FROM {n} WHERE {m} = 1"),
        6 => format!("INSERT INTO pad VALUES (1) RETURNING b AS {n}, {m}"),
        7 => format!("SAVEPOINT {n}"),
        8 => format!("ATTACH 'x.db' AS {n}"),
        _ => format!("INSERT INTO {n} ({n}) VALUES ('rebuild')"),
    })
}

fn read(dice: &Dice, n: &str, m: &str) -> Draft {
    Draft::read(match dice.below(12) {
        0 => format!("SELECT * FROM {n}"),
        1 => format!("SELECT {n} FROM t1"),
        2 => format!("SELECT a AS {n} FROM t1 AS {m} ORDER BY {n}"),
        3 => format!("SELECT {m}.a FROM t1 AS {n}"),
        4 => format!("WITH {n} ({m}) AS (SELECT 1) SELECT * FROM {n}"),
        5 => format!(
            "WITH RECURSIVE {n} ({m}) AS (SELECT 1 UNION ALL SELECT {m} + 1 FROM {n} LIMIT 5) SELECT {m} FROM {n}"
        ),
        6 => format!("SELECT b COLLATE {n} FROM t1"),
        7 => format!("SELECT {n}(1), {m}(a) FROM t1"),
        8 => format!("SELECT sum(a) OVER {n} FROM t1 WINDOW {n} AS (ORDER BY a), {m} AS ({n})"),
        9 => format!("SELECT CAST(a AS {n}) FROM t1 INDEXED BY {m}"),
        10 => format!("PRAGMA table_info({n})"),
        _ => format!("SELECT * FROM {m}.{n}"),
    })
}
