//! The programs of the user that the prompt of `quorate sql` runs: the pager and the editor.

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

/// A pager or an editor that is this script.
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

#[test]
fn a_statement_is_written_with_the_editor() {
    let dev = Dev::start(1);
    let home = tempfile::tempdir().unwrap();
    let seen = home.path().join("seen");
    // An editor that saves a text, and then does something else.
    let edits_to = |text: &str, then: &str| {
        let seen = seen.display();
        let look =
            format!("[ \"$1\" = --wait ] && cat \"$2\" > '{seen}'; ls -l \"$2\" >> '{seen}'; echo \"$2\" >> '{seen}'");
        program(home.path(), &format!("{look}; printf '%s' '{text}' > \"$2\"; {then}")) + " --wait"
    };
    let editor = edits_to("SELECT 40 + 2;", "");
    let mut terminal = Terminal::open_with(&dev, home.path(), &[], &[("QUORATE_EDITOR", &editor), ("VISUAL", "false")]);
    terminal.types("SELECT 1\r");
    terminal.wait_for("   ...> ");
    terminal.runs("+ 2 \\e", "42\r");
    let text = read_to_string(&seen).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(matches!(lines.as_slice(), ["SELECT 1", "+ 2", list, _] if list.starts_with("-rw-------")), "{text}");
    assert!(!Path::new(lines[3]).exists() && !Path::new(lines[3]).parent().unwrap().exists(), "it was removed");

    // The last statement, which stays as it is; then one that is not complete.
    terminal.runs(".edit", "it left the text unchanged; nothing was run");
    assert!(read_to_string(&seen).unwrap().starts_with("SELECT 40 + 2;\n"));
    edits_to("SELECT 70", "");
    terminal.types("\\e\r");
    terminal.wait_for("   ...> ");
    terminal.runs("+ 7;", "77\r");
    // Ctrl-C in the editor is for the editor.
    edits_to("SELECT 90 + 9;", "trap '' INT; echo 'now' editing; read key < /dev/tty");
    terminal.types("\\e\r");
    terminal.wait_for("now editing");
    terminal.types(CTRL_C);
    terminal.runs("q", "99\r");

    edits_to("", "");
    terminal.runs("\\e", "it saved an empty text; nothing was run");
    edits_to("SELECT 50 + 5;", "exit 3");
    let shown = terminal.runs("\\e", "it failed with exit status: 3; nothing was run");
    assert!(!shown.contains("55"), "{shown:?}");
    let shown = terminal.runs("SELECT 60 + 6; \\e", "nothing was run");
    assert!(!shown.contains("66"), "{shown:?}");
    // A statement that has run is not edited with the next one.
    edits_to("SELECT 80 + 8;", "");
    terminal.types("SELECT 1; SELECT\r");
    terminal.wait_for("   ...> ");
    terminal.runs("\\e", "88\r");
    assert!(read_to_string(&seen).unwrap().starts_with("SELECT\n"));
    // In a literal it is text.
    terminal.types("SELECT '\\e\r");
    terminal.wait_for("  '...> ");
    terminal.runs("' AS text;", "(1 row)");
    terminal.types(CTRL_D);
    assert!(terminal.ends().success());
}
