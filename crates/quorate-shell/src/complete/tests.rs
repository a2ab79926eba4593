//! What Tab offers after a text.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use super::*;
use crate::names::Names;

fn names() -> Names {
    let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let tables = [
        ("users", columns(&["id", "name", "Über uns"])),
        ("order", columns(&["id", "user_id"])),
        ("notes", columns(&["note", "order"])),
    ];
    let functions = ["count", "coalesce", "upper", "replace"];
    Names {
        tables: tables.into_iter().map(|(table, columns)| (table.to_owned(), columns)).collect(),
        functions: functions.into_iter().map(str::to_owned).collect(),
    }
}

/// What is offered at the `|` in a text. The lines before its last were typed earlier.
fn offered(text: &str) -> Vec<String> {
    let at = text.find('|').unwrap();
    let begin = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let (earlier, line) = (&text[..begin], text[begin..].replacen('|', "", 1));
    let pos = at - begin;
    let before = &line[..pos];
    let pairs = match wanted(before, !earlier.is_empty()) {
        Wanted::Sql(from) => {
            in_statement(earlier, &line, from, pos, |place| place.candidates(&names())).unwrap_or_default().1
        }
        Wanted::Words(start, words) => pairs(before, start, words),
        Wanted::Table(start) => {
            pairs(before, start, names().tables.into_keys().map(|name| literal::name(&name)).collect())
        }
        Wanted::File => vec![Pair { display: "a file".to_owned(), replacement: String::new() }],
        Wanted::Nothing => Vec::new(),
    };
    pairs.into_iter().map(|pair| pair.display).collect()
}

fn offers(cases: &[(&str, &str)]) {
    let wrong = |(text, expected): &(&str, &str)| {
        let offered = offered(text).join(", ");
        (offered != *expected).then(|| format!("{text}: {offered}, not {expected}"))
    };
    let wrong: Vec<String> = cases.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Checks that some words are among those that are offered, and that others are not.
fn offers_some(cases: &[(&str, &str, &str)]) {
    for (text, some, others) in cases {
        let offered = offered(text);
        let is_offered = |word: &str| offered.iter().any(|offered| offered == word);
        assert!(some.split(", ").all(is_offered), "{text}: {some}: {offered:?}");
        assert!(!others.split(", ").any(is_offered), "{text}: {others}: {offered:?}");
    }
}

#[test]
fn commands_and_their_arguments_are_completed() {
    offers(&[
        (".ta|", ".tables"),
        ("  .q|", ".quit"),
        (".timer o|", "on, off"),
        (".mode nd|", "ndjson"),
        (".mode insert u|", "users"),
        (".level l|", "local, linearizable"),
        (".schema u|", "users"),
        (".dump users o|", "\"order\""),
        (".help .q|", ".quit"),
        (".explain SELECT nam|", "name"),
        (".explain SELECT i| FROM \"order\"", "id"),
        (".quit x|", ""),
        (".read dir/f|", "a file"),
        (".import |", "a file"),
        (".import a.csv us|", "users"),
    ]);
}

#[test]
fn a_statement_begins_with_a_verb() {
    offers_some(&[
        ("|", "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, PRAGMA, WITH, EXPLAIN", "id, users, FROM, count("),
        ("SELECT 1; |", "SELECT, INSERT", "id, users"),
        ("-- SELECT\n|", "SELECT, INSERT", "id"),
    ]);
    offers(&[
        ("sel|", "select"),
        ("Sel|", "SELECT"),
        ("nam|", ""),
        ("us|", ""),
        ("CREATE |", "INDEX, TABLE, TRIGGER, UNIQUE INDEX, VIEW, VIRTUAL TABLE"),
        ("create u|", "unique index"),
        ("CREATE UNIQUE |", "INDEX"),
        ("CREATE TABLE |", "IF NOT EXISTS"),
        ("CREATE TABLE IF |", "NOT EXISTS"),
        ("CREATE TABLE us|", ""),
        ("CREATE INDEX i ON |", "notes, \"order\", users"),
        ("CREATE INDEX IF NOT EXISTS i ON us|", "users"),
        ("CREATE INDEX i ON users (na|", "name"),
        ("CREATE VIEW v |", "AS"),
        ("CREATE VIEW v AS |", "SELECT, VALUES, WITH"),
        ("CREATE TRIGGER t AFTER INSERT ON u|", "users"),
        ("CREATE TRIGGER t AFTER INSERT ON users BEGIN |", "DELETE, INSERT, SELECT, UPDATE"),
        ("CREATE TRIGGER t AFTER INSERT ON users BEGIN DELETE FROM notes; UPDATE u|", "users"),
        ("CREATE TABLE t (a TEXT NOT |", "NULL"),
        ("CREATE TABLE t (a TEXT PRIM|", "PRIMARY KEY"),
        ("CREATE TABLE t (a REFERENCES |", "notes, \"order\", users"),
        ("CREATE TABLE t (a REFERENCES users (|", "id, name, \"Über uns\""),
        ("CREATE TABLE t (a REFERENCES users (id), U|", "UNIQUE"),
        ("DROP |", "INDEX, TABLE, TRIGGER, VIEW"),
        ("DROP TABLE |", "notes, \"order\", users, IF EXISTS"),
        ("DROP TABLE IF EXISTS u|", "users"),
        ("ALTER |", "TABLE"),
        ("ALTER TABLE n|", "notes"),
        ("ALTER TABLE users |", "ADD COLUMN, DROP COLUMN, RENAME COLUMN, RENAME TO"),
        ("ALTER TABLE users RENAME |", "COLUMN, TO"),
        ("ALTER TABLE users DROP COLUMN |", "id, name, \"Über uns\""),
        ("ALTER TABLE users RENAME COLUMN name |", "TO"),
        ("PRAGMA table_i|", "table_info"),
        ("PRAGMA table_info(|", "notes, \"order\", users"),
        ("PRAGMA table_info(u|", "users"),
        ("PRAGMA journal|", ""),
    ]);
}

#[test]
fn a_write_names_its_table_and_then_its_columns() {
    offers(&[
        ("INSERT |", "INTO, OR IGNORE INTO, OR REPLACE INTO"),
        ("INSERT OR REPLACE |", "INTO"),
        ("INSERT INTO |", "notes, \"order\", users"),
        ("insert into NO|", "notes"),
        ("INSERT INTO sel|", ""),
        ("INSERT INTO notes |", "(, AS, DEFAULT VALUES, SELECT, VALUES, WITH"),
        ("INSERT INTO notes DEFAULT |", "VALUES"),
        ("INSERT INTO main.notes V|", "VALUES"),
        ("INSERT INTO notes (|", "note, \"order\""),
        ("INSERT INTO notes (note, o|", "\"order\""),
        ("INSERT INTO notes (note) V|", "VALUES"),
        ("INSERT INTO notes VALUES (up|", "upper("),
        ("INSERT INTO notes VALUES (1) ON |", "CONFLICT"),
        ("INSERT INTO notes VALUES (1) ON CONFLICT (note) DO |", "NOTHING, UPDATE SET"),
        ("INSERT INTO notes VALUES (1) ON CONFLICT (note) DO UPDATE SET no|", "note, not"),
        ("UPDATE us|", "users"),
        ("UPDATE users S|", "SET"),
        ("UPDATE users SET na|", "name"),
        ("UPDATE users SET name = 1, i|", "id"),
        ("UPDATE users SET name = 1 WH|", "WHERE"),
        ("DELETE |", "FROM"),
        ("DELETE FROM us|", "users"),
        ("DELETE FROM users WHERE na|", "name"),
    ]);
}

#[test]
fn a_query_offers_the_columns_of_its_tables() {
    offers(&[
        ("SELECT * FR|", "FROM"),
        ("SELECT * FROM us|", "users"),
        ("SELECT * FROM sel|", ""),
        ("SELECT * FROM ord|", "\"order\""),
        ("SELECT * FROM users u JOIN n|", "notes"),
        ("SELECT * FROM users, |", "notes, \"order\", users"),
        ("SELECT | FROM users", "id, name, \"Über uns\""),
        ("SELECT i|, name FROM users; SELECT note FROM notes", "id"),
        // Without a table of its own, and if none of its columns fits, all are offered.
        ("SELECT not|", "note, not"),
        ("SELECT us| FROM users", "user_id"),
        ("SELECT * FROM \"order\" WHERE us|", "user_id"),
        ("SELECT id FROM users WHERE name = 'x' AND na|", "name"),
        ("SELECT * FROM users u JOIN \"order\" o ON o.|", "id, user_id"),
        ("SELECT u.n| FROM users AS u", "name"),
        ("SELECT users.na|", "name"),
        ("SELECT [users].na|", "name"),
        ("SELECT * FROM main.u|", "users"),
        ("SELECT z.user|", "user_id"),
        ("SELECT \"Ü|", "\"Über uns\""),
        ("SELECT \"na|", "name"),
        ("SELECT co|", "coalesce(, count("),
        ("SELECT count(na| FROM users", "name"),
        ("SELECT coalesce(id, na| FROM users", "name"),
        ("SELECT coalesce(id, name) F| FROM users", "FROM"),
        ("SELECT id FROM users WHERE coalesce(id, na|", "name"),
        ("SELECT id FROM users WHERE id IN (SEL|", "SELECT"),
        ("SELECT id FROM users WHERE id IN (SELECT user_id FROM o|", "\"order\""),
        ("SELECT id FROM users WHERE id IN (SELECT 1) OR|", "OR, ORDER BY"),
        ("SELECT id FROM users ORDER |", "BY"),
        ("SELECT id FROM users ORDER BY n|", "name, not, null"),
        ("SELECT id FROM users ORDER BY name D|", "DESC"),
        ("SELECT id FROM users LEFT |", "JOIN"),
        ("SELECT id FROM users GROUP BY name H|", "HAVING"),
        ("SELECT id FROM users WHERE name IS |", "NOT NULL, NULL"),
        ("SELECT id FROM users WHERE name IS NOT |", "NULL"),
        ("SELECT CASE WHEN id T|", "THEN"),
        ("SELECT CASE WHEN id THEN 1 EN|", "END"),
        ("SELECT CASE WHEN id THEN 1 END FR|", "FROM"),
        ("SELECT id AS n|", ""),
        ("SELECT 2 * i| FROM users", "id"),
        ("SELECT :na|", ""),
        ("WITH a AS (|", "SELECT, VALUES, WITH"),
        ("WITH a AS (SELECT 1) SEL|", "SELECT"),
        // A keyword that no rule knows is offered if nothing else fits.
        ("SELECT sum(id) OVER (ORDER BY id ROWS UNB|", "UNBOUNDED"),
    ]);
    offers_some(&[
        ("SELECT |", "id, name, note, user_id", "users, count(, FROM"),
        ("SELECT id FROM users |", "WHERE, JOIN, LEFT JOIN, GROUP BY, ORDER BY", "id, users"),
        ("SELECT id FROM users WHERE id |", "AND, OR, IS NULL, ORDER BY", "id, users, FROM"),
        ("select id from users w|", "where", "WHERE"),
        ("select id from users |", "where", "WHERE"),
    ]);
}

#[test]
fn all_lines_of_a_statement_count() {
    offers(&[
        ("SELECT id\nFROM users\nWHERE na|", "name"),
        ("SELECT id FROM\nus|", "users"),
        ("INSERT INTO notes\n(|", "note, \"order\""),
        ("SELECT\n.5 + na|", "name"),
        ("SELECT id /* FROM\n*/ FR|", "FROM"),
    ]);
}

#[test]
fn literals_and_comments_are_not_completed() {
    offers(&[
        ("SELECT 'sel|", ""),
        ("SELECT 'it''s na|", ""),
        ("SELECT 'a\nna|", ""),
        ("SELECT 1 -- na|", ""),
        ("SELECT /* na|", ""),
        ("SELECT /* a\nna|", ""),
        ("SELECT \"a\nna|", ""),
        ("SELECT '--' , na|", "name"),
    ]);
}
