//! Statements end where SQLite ends them, however the text arrives.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use proptest::prelude::*;

use super::*;

fn split_lines(text: &str) -> (Vec<Statement>, Option<Statement>) {
    let (mut splitter, mut complete) = (Splitter::default(), Vec::new());
    for line in text.split_inclusive('\n') {
        splitter.push(line);
        complete.extend(std::iter::from_fn(|| splitter.next()));
    }
    (complete, splitter.rest())
}

fn split(text: &str) -> (Vec<String>, Option<String>) {
    let (complete, rest) = split_lines(text);
    (complete.into_iter().map(|statement| statement.text).collect(), rest.map(|statement| statement.text))
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn whole(text: &str) {
    assert_eq!(split(&format!("{text};")), (texts(&[text]), None));
}

#[test]
fn semicolons_end_statements() {
    assert_eq!(split("SELECT 1; SELECT 2 ;\n"), (texts(&["SELECT 1", "SELECT 2"]), None));
    assert_eq!(split("SELECT 1; SELECT"), (texts(&["SELECT 1"]), Some("SELECT".to_owned())));
    assert_eq!(split(" ;; -- nothing\n /* at all */ ;"), (vec![], None));
    assert_eq!(split("\u{FEFF}-- a file\n"), (vec![], None));
    assert_eq!(split(""), (vec![], None));
}

#[test]
fn semicolons_in_literals_and_comments_do_not() {
    for text in [
        "SELECT ';'",
        "SELECT 'it''s;'",
        "SELECT \";\"",
        "SELECT [;], `;`",
        "SELECT 1 -- ;\n + 1",
        "SELECT /*;*/ 1",
        "SELECT '\n;\n', \"\n;\" /* ;\n * / ; */ + 1",
    ] {
        whole(text);
    }
    for text in ["SELECT 'a;", "SELECT /* ;", "SELECT 1 -- ;"] {
        assert_eq!(split(text), (vec![], Some(text.to_owned())));
    }
}

#[test]
fn a_trigger_ends_with_its_end() {
    let trigger = "CREATE TEMP TRIGGER t AFTER INSERT ON a BEGIN SELECT CASE 1 WHEN 1 THEN 2 END; SELECT 'é'; END";
    assert_eq!(split(&format!("{trigger}; SELECT 1;")), (texts(&[trigger, "SELECT 1"]), None));
    whole(&format!("EXPLAIN QUERY PLAN {trigger}"));
    let open = "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1;";
    assert_eq!(split(open), (vec![], Some(open.to_owned())));
    let table = "CREATE TABLE trigger_(x)";
    assert_eq!(split(&format!("{table}; SELECT 1")), (texts(&[table]), Some("SELECT 1".to_owned())));
}

#[test]
fn statements_know_their_lines() {
    let text = "-- one\nSELECT\n1; SELECT 'a\nb';\n\n  /* x\n */ SELECT 3;\nSELECT 4";
    let (complete, rest) = split_lines(text);
    let lines: Vec<u64> = complete.iter().chain(&rest).map(|statement| statement.line).collect();
    assert_eq!(lines, [2, 3, 7, 8]);
}

#[test]
fn an_open_literal_or_comment_is_reported() {
    for (text, open) in [
        ("SELECT 'a\n", Some("'")),
        ("SELECT \"a''\n", Some("\"")),
        ("SELECT [a\n", Some("[")),
        ("SELECT /* ' \n", Some("/*")),
        ("SELECT 'a' -- '\n", None),
    ] {
        let mut splitter = Splitter::default();
        splitter.push(text);
        assert_eq!((splitter.next(), splitter.open(), splitter.is_unfinished()), (None, open, true), "{text}");
    }
}

#[test]
fn words_outside_of_literals_know_their_depth() {
    let found: Vec<_> = words("WITH a AS (SELECT 'x y', (z)) /* no */ INSERT -- no\n INTO [b c]").collect();
    let expected = [("WITH", 0), ("a", 0), ("AS", 0), ("SELECT", 1), ("z", 2), ("INSERT", 0), ("INTO", 0)];
    assert_eq!(found, expected);
}

/// Pieces whose sequences often have quotes, comments and triggers next to semicolons.
const PIECES: [&str; 20] = [
    ";",
    ";",
    "\n",
    "\n",
    "SELECT 1",
    "'",
    "\"",
    "`",
    "[",
    "]",
    "--",
    "/*",
    "*/",
    "EXPLAIN ",
    "CREATE TRIGGER t ",
    "BEGIN",
    "END",
    " é",
    "x",
    "-",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// A text gives the same statements in one piece and line by line, and contains each of them at its line.
    #[test]
    fn lines_make_no_difference(picks in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..14)) {
        let text = picks.concat();
        let mut splitter = Splitter::default();
        splitter.push(&text);
        let complete: Vec<Statement> = std::iter::from_fn(|| splitter.next()).collect();
        let rest = splitter.rest();
        for statement in complete.iter().chain(&rest) {
            let line = usize::try_from(statement.line - 1).unwrap();
            let from: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
            prop_assert!(text[from..].contains(&statement.text));
        }
        prop_assert_eq!(split_lines(&text), (complete, rest));
    }
}
