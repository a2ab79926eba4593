//! How lines are parsed, and the messages for those that are wrong.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use proptest::prelude::*;

use super::*;

fn said(line: &str) -> String {
    parse(line).unwrap_err()
}

#[test]
fn every_command_is_parsed() {
    let text = |text: &str| Some(text.to_owned());
    for (line, command) in [
        (".quit", Command::Exit),
        (".EXIT  ", Command::Exit),
        (".tables", Command::Tables(None)),
        (".tables %a%", Command::Tables(text("%a%"))),
        (".schema \"my table\"", Command::Schema(text("my table"))),
        (".indexes 'it''s'", Command::Indexes(text("it's"))),
        (".mode csv", Command::Mode(Some(Mode::Csv))),
        (".mode", Command::Mode(None)),
        (".mode insert 'my table'", Command::Mode(Some(Mode::Insert("my table".into())))),
        (".dump", Command::Dump(vec![])),
        (".dump a b", Command::Dump(vec!["a".into(), "b".into()])),
        (".timer on", Command::Timer(Some(true))),
        (".headers off", Command::Headers(Some(false))),
        (".eqp", Command::Eqp(None)),
        (".explain SELECT 'a  b';", Command::Explain("SELECT 'a  b'".into())),
        (".level local", Command::Level(Some(Level::Local))),
        (".nullvalue ''", Command::NullValue(text(""))),
        (".width 5 -8 0", Command::Width(vec![5, -8, 0])),
        (".width", Command::Width(vec![])),
        (".output out/x", Command::Output(Some("out/x".into()))),
        (".output off", Command::Output(None)),
        (".output", Command::Output(None)),
        (".read 'a b.sql'", Command::Read("a b.sql".into())),
        (".import a.csv t", Command::Import { file: "a.csv".into(), table: "t".into() }),
        (".status", Command::Status),
        (".edit", Command::Edit),
        ("\\e", Command::Edit),
        (".pager", Command::Pager(None)),
        (".pager off", Command::Pager(text("off"))),
        (".pager less  '-P a'", Command::Pager(text("less  '-P a'"))),
        (".hel", Command::Help(None)),
        ("\\q", Command::Exit),
        ("\\dt %x%", Command::Tables(text("%x%"))),
        ("\\d t", Command::Schema(text("t"))),
        ("\\x", Command::Expanded(None)),
        (".expanded off", Command::Expanded(Some(false))),
    ] {
        assert_eq!(parse(line), Ok(command), "{line}");
    }
    assert!(matches!(parse(".help mode"), Ok(Command::Help(Some(spec))) if spec.name == ".mode"));
}

#[test]
fn an_unknown_command_names_the_nearest() {
    assert_eq!(said(".tabels"), ".tabels is not known; the nearest is .tables; .help lists all");
    assert_eq!(said(".scehma x"), ".scehma is not known; the nearest is .schema; .help lists all");
    assert!(said(".he").contains(".headers or .help"));
    assert!(said("\\foo").contains(".help"));
    assert!(said(".").contains("not known"));
}

#[test]
fn a_wrong_argument_is_refused_with_the_right_ones() {
    for (line, expected) in [
        (".timer maybe", ".timer: on or off, not maybe"),
        (".level strong", ".level: local or linearizable, not strong"),
        (".read", ".read: it takes FILE"),
        (".import a.csv", ".import: it takes FILE TABLE"),
        (".import a b c", ".import: it takes FILE TABLE, not c"),
        (".explain", ".explain: it takes QUERY"),
        (".explain ;", ".explain: it takes QUERY"),
        (".schema 'a", ".schema: a ' is not closed"),
        (".width x", ".width: a whole number"),
        (".status now", ".status: it takes nothing, not now"),
        (".mode tabel", ".mode: there is no mode tabel; there are table,"),
        (".help foo", ".help: .foo is not known; the nearest is"),
    ] {
        let said = said(line).replace("a width is ", "");
        assert!(said.starts_with(expected), "{line}: {said}");
    }
}

#[test]
fn help_lists_every_command() {
    let all = help(None);
    for spec in COMMANDS {
        assert!(all.contains(&format!("{} {}", spec.name, spec.takes)), "{}", spec.name);
        assert!(help(Some(spec)).contains(spec.does), "{}", spec.name);
    }
    assert!(all.lines().all(|line| line.len() < 100), "{all}");
    assert!(help(find(".mode").ok()).contains("ndjson"));
    assert!(COMMANDS.is_sorted_by_key(|spec| spec.name));
}

proptest! {
    #[test]
    fn no_line_makes_the_parser_panic(line in "[.\\\\][a-z]{0,8}( .{0,20})?") {
        let _ = parse(&line);
    }

    #[test]
    fn quoted_words_come_back(texts in prop::collection::vec(any::<String>(), 0..4)) {
        let line: Vec<String> = texts.iter().map(|text| format!("'{}'", text.replace('\'', "''"))).collect();
        prop_assert_eq!(words(&line.join(" ")), Ok(texts));
    }
}
