//! The prompt of `quorate sql`, at a terminal: history, Tab, Ctrl-C and Ctrl-D.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use support::terminal::{CTRL_C, CTRL_D, Terminal, UP};
use support::{Dev, processor_time, succeeded, wait_until};

/// Never ends by itself.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n;";

#[test]
fn the_prompt_edits_completes_and_keeps_history() {
    let dev = Dev::start(1);
    succeeded(
        &dev.sql(&[], "CREATE TABLE animals (zebra TEXT); INSERT INTO animals VALUES (char(27) || '[31mstripes')"),
    );
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open(&dev, home.path(), &[]);
    let greeting = "connected by the cluster's secret to 1 node, led by '1' at ";
    assert!(terminal.greeting.contains(greeting), "{}", terminal.greeting);
    terminal.knows("animals");
    terminal.runs("SELECT 6 * 7 AS n;", "42");
    terminal.types("SELECT\r");
    terminal.wait_for("   ...> ");
    terminal.types("'a;\r");
    terminal.wait_for("  '...> ");
    terminal.runs("b' AS two;", "a;\\nb");
    // A keyword is completed with the space after it.
    terminal.types("SELECT zeb\t FRO\tanim\t;\r");
    let shown = terminal.wait_for("(1 row)");
    assert!(shown.contains("\\u{1b}[31mstripes") && !shown.contains("\x1b[31m"), "{shown:?}");
    terminal.runs(".tab\t", "animals");
    terminal.runs("BEGIN;", "each statement shows");
    terminal.runs("INSERT INTO animals VALUES ('x');", "quorate*");
    terminal.runs("ROLLBACK;", "nothing was written");
    terminal.runs("SELECT wrong;", "error: no such column: wrong");
    terminal.runs("SELECT * FROM anmials;", "hint: did you mean animals?");
    terminal.runs("SELECT * FROM elsewhere;", "hint: .tables lists the tables");
    terminal.runs(".tabels", "the nearest is .tables");
    terminal.types(CTRL_D);
    assert!(terminal.ends().success());

    let mut again = Terminal::open(&dev, home.path(), &["--mode", "csv"]);
    // The history holds the statement of three lines as one entry.
    again.types(&UP.repeat(11));
    again.types("\r");
    again.wait_for("two\r\n\"a;\r\nb\"");
    again.runs("quit", "");
    assert!(again.ends().success());
}

#[test]
fn tab_knows_the_whole_statement() {
    let dev = Dev::start(1);
    succeeded(
        &dev.sql(
            &[],
            "CREATE TABLE animals (zebra, zero); CREATE TABLE plants (zinnia); INSERT INTO plants VALUES (7)",
        ),
    );
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open(&dev, home.path(), &[]);
    terminal.knows("animals");
    terminal.types("SELECT p.zinnia\r");
    terminal.wait_for("   ...> ");
    terminal.types("FROM pla\t AS p WHE\tcoales\tzi\t, 3) = 7 OR\r");
    terminal.wait_for("   ...> ");
    // Only the table of the alias has one column with this letter.
    terminal.runs("p.z\t;", "(1 row)");
    terminal.types(CTRL_D);
    assert!(terminal.ends().success());
}

#[test]
fn the_pragmas_that_tab_lists_are_permitted() {
    let dev = Dev::start(1);
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open(&dev, home.path(), &[]);
    terminal.types("PRAGMA \t\t");
    let listed = terminal.wait_for("quorate> PRAGMA ");
    let pragmas: Vec<&str> = listed.split_whitespace().filter(|word| word.contains('_')).collect();
    assert!(pragmas.len() > 15, "{listed:?}");
    for pragma in pragmas {
        succeeded(&dev.sql(&[], &format!("PRAGMA {pragma}")));
    }
}

#[test]
fn a_transaction_at_the_prompt_reads_what_it_writes() {
    let dev = Dev::start(1);
    succeeded(&dev.sql(&[], "CREATE TABLE t (a UNIQUE)"));
    let count = || succeeded(&dev.sql(&["--format", "csv"], "SELECT 'rows', count(*) FROM t"));
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open(&dev, home.path(), &["--mode", "csv"]);
    terminal.runs(".param set a 7", "");
    terminal.runs("BEGIN;", "what COMMIT will write");
    terminal.runs("INSERT INTO t VALUES (:a);", "1 row changed; COMMIT writes it");
    terminal.runs("INSERT INTO t VALUES (:a);", "error: UNIQUE constraint failed");
    terminal.runs("SELECT 'seen', a FROM t;", "seen,7");
    assert!(count().contains("rows,0"), "nothing is written before COMMIT");
    terminal.types("COMMIT;\r");
    // The prompt of no transaction.
    terminal.wait_for("quorate> ");
    assert!(count().contains("rows,1"));

    terminal.runs("BEGIN;", "what COMMIT will write");
    terminal.runs("SELECT 'rows', count(*) FROM t;", "rows,1");
    succeeded(&dev.sql(&[], "INSERT INTO t VALUES (8)"));
    terminal.runs("UPDATE t SET a = a + 1 WHERE a = 7;", "statement 1 of the transaction gives another result now");
    terminal.runs("COMMIT;", "error: no transaction was begun");
    terminal.runs("SELECT a FORM t;", "         ^");
    terminal.types(CTRL_D);
    assert!(terminal.ends().success());
}

#[test]
fn ctrl_c_ends_the_statement_not_the_shell() {
    let dev = Dev::start(1);
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open(&dev, home.path(), &[]);
    terminal.types(&format!("SELECT 'now' || ' it runs'; {ENDLESS} SELECT 'never' || ' seen';\r"));
    terminal.wait_for("now it runs");
    terminal.types(CTRL_C);
    let seen = terminal.wait_for("error: cancelled\r\n");
    assert!(!seen.contains("never seen"), "{seen:?}");
    terminal.wait_for("quorate> ");
    terminal.runs("SELECT 'still' || ' alive';", "still alive");
    // Ctrl-C discards the typed text, in the first line and in a later one.
    terminal.types("SELECT 'never");
    terminal.types(CTRL_C);
    terminal.wait_for("quorate> ");
    terminal.types("SELECT\r");
    terminal.wait_for("   ...> ");
    terminal.types(CTRL_C);
    terminal.wait_for("quorate> ");
    terminal.runs("SELECT 'and' || ' again';", "and again");
    terminal.types(CTRL_C);
    terminal.wait_for("Ctrl-D or .quit leaves");
    terminal.wait_for("quorate> ");
    terminal.types(CTRL_C);
    assert!(terminal.ends().success());
}

#[test]
fn a_cancelled_write_says_that_its_outcome_is_unknown() {
    let dev = Dev::start(1);
    let home = tempfile::tempdir().unwrap();
    // The default budget ends the write within half a second.
    let mut terminal = Terminal::open(&dev, home.path(), &["--budget", "300000000"]);
    terminal.runs("CREATE TABLE t (a);", "OK");
    let long = ENDLESS.replace("FROM n)", "FROM n WHERE i < 30000000)");
    let before = processor_time(dev.pid(1));
    terminal.types(&format!("SELECT 'now' || ' it runs'; INSERT INTO t {long}\r"));
    terminal.wait_for("now it runs");
    wait_until("the write runs", || processor_time(dev.pid(1)) > before + 30);
    terminal.types(CTRL_C);
    terminal.wait_for("error: cancelled; the write may have been done");
    terminal.wait_for("quorate> ");
    terminal.types(CTRL_D);
    assert!(terminal.ends().success());
}
