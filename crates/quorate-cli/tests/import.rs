//! `quorate import`: the contents of the table, the reports, and interruptions by kills.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use quorate_env::Rng;
use rusqlite::Connection;
use support::{Dev, failed, quorate, succeeded, wait_until};

/// Files to import into a cluster of one node.
struct Case {
    dev: Dev,
    files: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        Self { dev: Dev::start(1), files: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn command<'a>(&'a self, file: &'a str, table: &'a str, options: &[&'a str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        let access = ["import", "--data-dir", self.dev.path(), file, table];
        command.args(access).args(options).current_dir(self.files.path()).stdin(Stdio::null());
        command
    }

    fn import(&self, file: &str, table: &str, options: &[&str]) -> Output {
        self.command(file, table, options).output().unwrap()
    }

    /// Starts an import and does not wait for it.
    fn spawn(&self, file: &str, table: &str, options: &[&str]) -> Child {
        self.command(file, table, options).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Returns the result of a query, as CSV without a header.
    fn rows(&self, query: &str) -> Vec<String> {
        let all = succeeded(&self.dev.sql(&["--format", "csv"], query));
        all.lines().skip(1).map(str::to_owned).collect()
    }

    fn value(&self, query: &str) -> String {
        self.dev.value(None, query)
    }

    fn bad(&self, name: &str) -> Vec<String> {
        std::fs::read_to_string(self.path(name)).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Returns CSV with `count` different rows: a number, a text, and sometimes an empty field.
fn numbered(count: usize) -> String {
    let row = |n: usize| {
        format!("{n},\"text, {n}\",{}\n", if n.is_multiple_of(3) { String::new() } else { format!("{n}.5") })
    };
    std::iter::once("id,name,x\n".to_owned()).chain((0..count).map(row)).collect()
}

/// Returns the result of [`SUM`] for [`numbered`], which differs if a row is missing or there twice.
fn sum_of(count: usize) -> String {
    format!("{count},{count},{}", count * (count - 1) / 2)
}

const SUM: &str = "SELECT count(*) || ',' || count(DISTINCT id) || ',' || sum(id) FROM t";
const LEFTOVERS: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name LIKE 'quorate_%'";

#[test]
fn a_created_table_keeps_all_values() {
    let case = Case::new();
    let header = "id,zip,price,day,empty,mixed,big,no te\n";
    case.file("a.csv", format!("{header}1,00501,1.50,2013-01-01,,1,12345678901234567890,\"\"\n-2,10001,2,x,,b,1,NA\n"));
    let shown = succeeded(&case.import("a.csv", "t", &["--dry-run"]));
    for part in ["\"id\" INTEGER", "\"zip\" TEXT", "\"price\" REAL", "\"big\" TEXT", "\"no te\" TEXT", "INSERT INTO"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(case.value("SELECT count(*) FROM sqlite_schema WHERE name = 't'"), "0");

    let said = succeeded(&case.import("a.csv", "t", &[]));
    assert!(said.starts_with("2 rows into t in ") && said.ends_with("rows/s)\n"), "{said}");
    let rows =
        case.rows("SELECT *, typeof(id), typeof(price), typeof(\"no te\"), typeof(empty) FROM t ORDER BY id DESC");
    let first = "1,00501,1.5,2013-01-01,,1,12345678901234567890,\"\",integer,real,text,null";
    assert_eq!(rows, [first, "-2,10001,2.0,x,,b,1,NA,integer,real,text,null"]);
    assert_eq!(case.value(LEFTOVERS), "0");

    // Later values of another type are kept, or reported.
    let later: String = (0..30_000).map(|n| format!("{n}\n")).chain(["abc\n007\n1.5\n".to_owned()]).collect();
    case.file("later.csv", format!("n\n{later}"));
    assert_eq!(case.import("later.csv", "later", &[]).status.code(), Some(3));
    let types = case.rows("SELECT typeof(n), count(*) FROM later GROUP BY 1 ORDER BY 1");
    assert_eq!(types, ["integer,30000", "real,1", "text,1"]);
    let bad = case.bad("later.csv.bad");
    assert!(bad.len() == 1 && bad[0].starts_with("30003\t\"007\" would lose"), "{bad:?}");
}

#[test]
fn an_existing_table_determines_the_columns() {
    let case = Case::new();
    case.dev.sql(&[], "CREATE TABLE t (Id INTEGER PRIMARY KEY, name TEXT DEFAULT 'none', code TEXT, n NUMERIC)");
    case.file("a.csv", "CODE,id,n\n007,5,007\n8,6,x\n");
    succeeded(&case.import("a.csv", "t", &[]));
    assert_eq!(case.rows("SELECT * FROM t"), ["5,none,007,7", "6,none,8,x"]);

    case.file("b.csv", "id,nme\n1,a\n");
    let error = failed(&case.import("b.csv", "t", &[]));
    assert!(error.contains("no column \"nme\"; the nearest is \"name\""), "{error}");
    case.file("c.tsv", "9\tx\ty\tz\n");
    let error = failed(&case.import("c.tsv", "t", &["--no-header", "--columns", "id"]));
    assert!(error.contains("--columns names 1 columns, the lines have 4 fields"), "{error}");
    succeeded(&case.import("c.tsv", "t", &["--no-header", "--columns", "id,,name,", "--null", "y"]));
    assert_eq!(case.rows("SELECT * FROM t WHERE id = 9"), ["9,,,"]);
    succeeded(&case.import("c.tsv", "made", &["--no-header"]));
    assert_eq!(case.rows("SELECT c1, c4 FROM made"), ["9,z"]);
}

#[test]
fn bad_lines_are_listed_and_the_others_imported() {
    let case = Case::new();
    case.file("a.csv", b"id,name\n1,a\n2\n3,\xff\n4,\"d\nd\"\n5,e,f\n6,g\n".as_slice());
    let output = case.import("a.csv", "t", &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with("; 3 bad lines, listed in a.csv.bad\n"), "{said}");
    assert_eq!(case.value("SELECT group_concat(id) FROM t"), "\"1,4,6\"");
    let bad = ["3\t1 fields, not 2\t2", "4\tnot UTF-8 at byte 3 of the record\t3,\\xff", "7\t3 fields, not 2\t5,e,f"];
    assert_eq!(case.bad("a.csv.bad"), bad);

    let error = failed(&case.import("a.csv", "strict", &["--strict"]));
    assert!(error.contains("a line is bad (line 3: 1 fields, not 2): see a.csv.bad"), "{error}");
    let error = failed(&case.import("a.csv", "some", &["--max-bad", "2", "--bad", "told"]));
    assert!(error.contains("3 lines are bad"), "{error}");
    assert_eq!(case.bad("told").len(), 3);
}

#[test]
fn conflicting_rows_are_reported_ignored_or_replaced() {
    let case = Case::new();
    case.file("a.csv", "id,n\n1,1\n2,2\n1,3\n3,-4\n4,5\n2,6\n");
    for (table, options, code, rows) in [
        ("reported", [].as_slice(), 3, "1:1 2:2 4:5"),
        ("ignored", &["--on-conflict", "ignore"], 0, "1:1 2:2 4:5"),
        ("replaced", &["--on-conflict", "replace"], 3, "1:3 2:6 4:5"),
    ] {
        case.dev.sql(&[], &format!("CREATE TABLE {table} (id INTEGER PRIMARY KEY, n INTEGER CHECK (n > 0))"));
        let output = case.import("a.csv", table, options);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(case.value(&format!("SELECT group_concat(id || ':' || n, ' ') FROM {table}")), rows);
        if table == "reported" {
            let lines: Vec<String> =
                case.bad("a.csv.bad").iter().map(|line| line.split(" failed").next().unwrap().to_owned()).collect();
            assert_eq!(lines, ["4\tUNIQUE constraint", "5\tCHECK constraint", "7\tUNIQUE constraint"]);
        }
    }
    case.file("many.csv", "id,n\n".to_owned() + &"1,1\n".repeat(300));
    let error = failed(&case.import("many.csv", "reported", &[]));
    assert!(error.contains("--on-conflict ignore"), "{error}");
}

#[test]
fn ndjson_keeps_types_and_nested_values() {
    let case = Case::new();
    let lines = [
        r#"{"id": 1, "name": "é\n\"x\"", "tags": ["a", {"b": null}], "on": true, "x": 1.25}"#,
        r#"{"x": 2, "id": 2, "mixed": 1}"#,
        "",
        r#"{"id": 3, "mixed": "1", "on": null}"#,
        r"[1]",
        r#"{"id": 4, "other": 1}"#,
        r#"{"id": 5"#,
    ];
    case.file("a.ndjson", lines.join("\n"));
    let output = case.import("a.ndjson", "t", &["--columns", "id,name,tags,on,x,mixed"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let rows = case.rows("SELECT id, tags, \"on\", x, typeof(mixed), hex(name) FROM t");
    let name: String = "é\n\"x\"".bytes().map(|byte| format!("{byte:02X}")).collect();
    let tags = r#""[""a"", {""b"": null}]""#;
    let expected = [
        format!("1,{tags},1,1.25,null,{name}"),
        "2,,,2.0,integer,\"\"".into(),
        "3,,,,text,\"\"".into(),
        "4,,,,null,\"\"".into(),
    ];
    assert_eq!(rows, expected);
    let numbers: Vec<String> =
        case.bad("a.ndjson.bad").iter().map(|l| l.split('\t').next().unwrap().to_owned()).collect();
    assert_eq!(numbers, ["5", "7"]);

    let output = case.import("a.ndjson", "all", &["--max-bad", "9"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(case.value("SELECT other FROM \"all\" WHERE id = 4"), "1");
}

#[test]
fn a_sqlite_table_is_imported_unchanged() {
    let case = Case::new();
    let source = Connection::open(case.path("old.db")).unwrap();
    source
        .execute_batch(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, a, b VARCHAR(10), c REAL, twice GENERATED ALWAYS AS (id * 2));
        INSERT INTO users VALUES (3, x'00ff', 'é', 1.5), (1, 7, NULL, 2), (2, 'seven', 8, 'text'),
            (9, NULL, CAST(x'ff' AS TEXT), 0);
        CREATE TABLE keyed (a TEXT, b INT, c, PRIMARY KEY (b, a)) WITHOUT ROWID;
        INSERT INTO keyed VALUES ('x', 2, 1), ('y', 1, 2);",
        )
        .unwrap();
    let output = case.import("old.db", "users", &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let quoted = "SELECT group_concat(id || quote(a) || quote(b) || quote(c), ';' ORDER BY id) FROM users";
    let expected: String =
        source.query_row(&quoted.replace("users", "users WHERE id < 9"), (), |row| row.get(0)).unwrap();
    assert_eq!(case.value(quoted), expected);
    assert_eq!(case.bad("old.db.bad"), ["4\tthe text of \"b\" is not UTF-8\t"]);
    let schema = case.value("SELECT replace(sql, char(10), '') FROM sqlite_schema WHERE name = 'users'");
    assert!(schema.contains("id\"\" INTEGER PRIMARY KEY") && !schema.contains("twice"), "{schema}");

    let error = failed(&case.import("old.db", "missing", &[]));
    assert!(error.contains("no table missing; name one with --source-table"), "{error}");
    succeeded(&case.import("old.db", "copy", &["--source-table", "KEYED"]));
    assert_eq!(case.rows("SELECT * FROM copy ORDER BY c"), ["x,2,1", "y,1,2"]);
    let key = "SELECT group_concat(name, ',' ORDER BY pk) FROM pragma_table_info('copy') WHERE pk > 0";
    assert_eq!(case.value(key), "\"b,a\"");
}

#[test]
fn rows_of_any_content_round_trip() {
    let case = Case::new();
    let rows = prop::collection::vec(("[a-z,\"\n\r é]{1,9}", any::<i64>(), -1e9..1e9_f64), 1..300);
    let mut runner = TestRunner::deterministic();
    for number in 0..6 {
        let rows = rows.new_tree(&mut runner).unwrap().current();
        let mut writer = csv::Writer::from_path(case.path("a.csv")).unwrap();
        writer.write_record(["text", "number", "real"]).unwrap();
        for (text, integer, real) in &rows {
            writer.write_record([text.as_str(), &integer.to_string(), &real.to_string()]).unwrap();
        }
        writer.flush().unwrap();
        let table = format!("t{number}");
        case.dev.sql(&[], &format!("CREATE TABLE {table} (text TEXT, number INTEGER, real TEXT)"));
        succeeded(&case.import("a.csv", &table, &["--batch-kib", "1"]));
        let query = format!("SELECT hex(text), typeof(number), number, real FROM {table}");
        let mut found = case.rows(&query);
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02X}")).collect::<String>();
        let mut expected: Vec<String> =
            rows.iter().map(|(text, number, real)| format!("{},integer,{number},{real}", hex(text))).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
}

#[test]
fn the_standard_input_is_read_to_its_end() {
    let case = Case::new();
    let mut child =
        case.command("-", "t", &["--format", "csv"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(numbered(5_000).as_bytes()).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(case.rows(SUM), [format!("\"{}\"", sum_of(5_000))]);
    let error = failed(&case.import("-", "t", &[]));
    assert!(error.contains("--format"), "{error}");
}

#[test]
fn a_killed_import_continues_and_doubles_nothing() {
    let case = Case::new();
    let count = 150_000;
    let mut file = numbered(count);
    // A bad line, and a row that the table refuses.
    file.push_str("short\n7,again,\n");
    case.file("a.csv", file);
    case.dev.sql(&[], "CREATE TABLE t (id INTEGER UNIQUE, name TEXT, x REAL)");
    let options = ["--batch-kib", "4"];
    let chunks = || {
        let output = case.dev.sql(&["--format", "csv"], "SELECT count(*) FROM quorate_import_chunks");
        if !output.status.success() {
            return 0;
        }
        succeeded(&output).lines().last().unwrap().parse::<u64>().unwrap()
    };
    let rng = Rng::from_os();
    let (mut kills, mut whole) = (0, None);
    while kills < 5 && whole.is_none() {
        let before = chunks();
        let mut child =
            case.command("a.csv", "t", &options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let more = 1 + rng.below(60);
        wait_until("some more chunks", || child.try_wait().unwrap().is_some() || chunks() >= before + more);
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        // The import may have ended before the kill.
        kills += usize::from(output.status.code().is_none());
        whole = output.status.code().map(|_| output);
    }
    assert!(kills > 0, "no import was interrupted");
    let output = whole.unwrap_or_else(|| case.import("a.csv", "t", &options));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(" of them by an earlier run; 2 bad lines"), "{said}");
    assert_eq!(case.rows(SUM), [format!("\"{}\"", sum_of(count))]);
    assert_eq!(
        case.value(
            "SELECT count(*) FROM t WHERE name = 'text, ' || id AND x IS CASE id % 3 WHEN 0 THEN NULL ELSE id + 0.5 END"
        ),
        count.to_string()
    );
    let bad = case.bad("a.csv.bad");
    assert!(bad[0].starts_with(&format!("{}\t1 fields", count + 2)), "{bad:?}");
    assert!(bad[1].starts_with(&format!("{}\tUNIQUE", count + 3)), "{bad:?}");
    assert_eq!(case.value(LEFTOVERS), "0");
}

#[test]
fn two_imports_of_one_file_at_once_double_nothing() {
    let case = Case::new();
    let count = 30_000;
    // Because of the bad line at the end, neither import completes; otherwise the other could start over as a new
    // import.
    case.file("a.csv", numbered(count) + "bad\n");
    let import = |bad: &str| case.spawn("a.csv", "t", &["--batch-kib", "4", "--strict", "--bad", bad]);
    let children = ["one", "two"].map(import);
    for mut child in children {
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
    assert!(case.bad("one").len() == 1 && case.bad("one") == case.bad("two"));
    assert_eq!(case.rows(SUM), [format!("\"{}\"", sum_of(count))]);
    assert_eq!(case.import("a.csv", "t", &["--batch-kib", "4"]).status.code(), Some(3));
    assert_eq!(case.rows(SUM), [format!("\"{}\"", sum_of(count))]);
    assert_eq!(case.value(LEFTOVERS), "0");
}

#[test]
fn a_file_that_has_changed_is_refused() {
    let case = Case::new();
    let interrupted = |table: &str, content: &str| {
        case.file("a.csv", content);
        let error = failed(&case.import("a.csv", table, &["--max-bad", "0", "--batch-kib", "1"]));
        assert!(error.contains("a line is bad"), "{error}");
    };
    let bad = numbered(500) + "bad\n";
    interrupted("t", &bad);
    let mended = numbered(501);
    case.file("a.csv", &mended);
    let error = failed(&case.import("a.csv", "t", &[]));
    assert!(error.contains("has changed since an import of it into t was interrupted"), "{error}");
    assert!(error.contains("--restart starts over, and drops the table that it created"), "{error}");
    succeeded(&case.import("a.csv", "t", &["--restart"]));
    assert_eq!(case.rows(SUM), [format!("\"{}\"", sum_of(501))]);

    // Other options give other chunks.
    interrupted("u", &bad);
    let error = failed(&case.import("a.csv", "u", &["--null", "x"]));
    assert!(error.contains("had other options"), "{error}");

    // The import compares the file with the imported rows, so it finds a change that keeps size, beginning and end.
    let long = numbered(40_000) + "bad\n";
    interrupted("v", &long);
    case.file("a.csv", long.replacen("\"text, 5000\"", "\"text; 5000\"", 1));
    let error = failed(&case.import("a.csv", "v", &["--batch-kib", "1"]));
    assert!(error.contains("have changed since an earlier run"), "{error}");
    assert!(quorate(&["import", "--help"]).status.success());
}
