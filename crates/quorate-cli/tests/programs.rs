//! The programs of the user that the prompt of `quorate sql` runs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::fs::{read_to_string, write};
use std::path::Path;

use support::Dev;
use support::terminal::{CTRL_C, CTRL_D, Terminal};

/// A query with so many rows, each of which begins with `row`.
fn rows(count: u64) -> String {
    let numbers = format!("n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {count})");
    format!("WITH RECURSIVE {numbers} SELECT 'row' || i AS x FROM n;")
}

/// A program that is this script.
fn program(home: &Path, script: &str) -> String {
    let file = home.join("program");
    write(&file, script).unwrap();
    format!("sh '{}'", file.display())
}

#[test]
fn a_long_result_goes_to_the_pager() {
    let dev = Dev::start(1);
    let home = tempfile::tempdir().unwrap();
    let paged = home.path().join("paged");
    let pager = program(
        home.path(),
        &format!("cat > '{0}'; echo \"LESS=$LESS\" >> '{0}'; echo 'it was' paged", paged.display()),
    );
    let variables = [("QUORATE_PAGER", pager.as_str()), ("PAGER", "false"), ("LESS", "S")];
    let mut terminal = Terminal::open_with(&dev, home.path(), &[], &variables);
    terminal.runs(&rows(40), "row40");
    assert!(!paged.exists(), "40 rows fit on the terminal");

    terminal.runs(".timer on", "");
    // The first result is fetched whole, the second is streamed.
    for count in [50, 60_000] {
        let shown = terminal.runs(&rows(count), "it was paged");
        assert!(!shown.contains(&format!("row{count}")), "{shown:?}");
        let text = read_to_string(&paged).unwrap();
        assert_eq!(text.lines().filter(|line| line.starts_with("row")).count() as u64, count);
        assert!(text.contains(&format!("({count} rows)\nTime: ")) && text.ends_with("LESS=S\n"), "the end is missing");
        std::fs::remove_file(&paged).unwrap();
    }
    let script = home.path().join("script.sql");
    write(&script, rows(70)).unwrap();
    terminal.runs(&format!(".read '{}'", script.display()), "(70 rows)");
    terminal.runs(".pager", "pager: sh ");
    terminal.runs(".pager off", "");
    terminal.runs(&rows(80), "(80 rows)");
    terminal.runs(".pager", "pager: off");
    assert!(!paged.exists(), "a script and what follows .pager off are not paged");
    terminal.runs(".pager on", "");
    terminal.runs(&rows(90), "it was paged");
    terminal.types(CTRL_D);
    assert!(terminal.ends().success());
}

#[test]
fn a_pager_that_ends_early_or_is_missing_is_no_error() {
    let dev = Dev::start(1);
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open_with(&dev, home.path(), &[], &[("QUORATE_PAGER", "true")]);
    // The query has no end: it stops because nobody reads on.
    for count in [100, u64::from(u32::MAX)] {
        terminal.types(&format!("{}\r", rows(count)));
        // The line editor sends this when it begins to read a line.
        let shown = terminal.wait_for("\x1b[?2004h");
        terminal.wait_for("quorate> ");
        assert!(!shown.contains("error") && !shown.contains("row1\r"), "{shown:?}");
    }
    terminal.runs(".pager 'no such pager'", "");
    let shown = terminal.runs(&rows(100), "(100 rows)");
    assert!(shown.contains("note: cannot start the pager 'no such pager': ") && shown.contains("row1\r"), "{shown:?}");
    let shown = terminal.runs(&rows(100), "(100 rows)");
    assert!(!shown.contains("note"), "{shown:?}");
    terminal.types(CTRL_D);
    assert!(terminal.ends().success());
}

#[test]
fn ctrl_c_in_the_pager_is_for_the_pager() {
    let dev = Dev::start(1);
    let home = tempfile::tempdir().unwrap();
    let script = "trap '' INT; cat > /dev/null; echo 'now' paging; read key < /dev/tty; echo \"left by $key\"";
    let pager = program(home.path(), script);
    let mut terminal = Terminal::open_with(&dev, home.path(), &[], &[("PAGER", &pager), ("QUORATE_PAGER", &pager)]);
    terminal.types(&format!("{}\r", rows(100)));
    terminal.wait_for("now paging");
    terminal.types(CTRL_C);
    terminal.types(CTRL_C);
    let shown = terminal.runs("q", "left by q");
    assert!(!shown.contains("cancelled"), "{shown:?}");
    terminal.runs("SELECT 'still' || ' alive';", "still alive");
    // While the result arrives, Ctrl-C ends the query too, but the user stays in the pager.
    program(home.path(), &script.replace("cat", "head -n 1; cat").replace("'now' paging", "'all' read"));
    terminal.types(&format!("{}\r", rows(u64::from(u32::MAX))));
    terminal.wait_for("\r\nx\r\n");
    terminal.types(CTRL_C);
    terminal.wait_for("all read");
    terminal.runs("q", "error: cancelled");
    terminal.runs("SELECT 'and' || ' again';", "and again");
    terminal.types(CTRL_D);
    assert!(terminal.ends().success());
}
