//! `quorate migrate`: pending migrations are run, and errors are explained.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::fs;

use support::{Dev, failed, quorate, succeeded};
use tempfile::TempDir;

#[test]
fn migrations_are_run_once_and_explained() {
    let dev = Dev::start(1);
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_str().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let migrate = |more: &[&str]| quorate(&[&["migrate", "--data-dir", dev.path(), path], more].concat());

    let empty = failed(&migrate(&[]));
    assert_eq!(
        empty,
        format!("quorate: {path}: there are no migrations: add files like 0001_users.sql, or name another folder\n")
    );
    put("README.md", "not one of them");
    put("1_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users VALUES (1, 'ann')");
    put("2_names.sql", "CREATE INDEX names ON users (name);");
    assert_eq!(succeeded(&migrate(&["--dry-run"])), "1_users.sql  pending\n2_names.sql  pending\n");
    assert_eq!(succeeded(&migrate(&[])), "1_users.sql  run\n2_names.sql  run\n");
    assert_eq!(succeeded(&migrate(&[])), "nothing to run\n");

    put("3_bad.sql", "DROP INDEX names; INSERT INTO users VALUES (1, 'twice')");
    let error = failed(&migrate(&[]));
    assert_eq!(error, "quorate: 3_bad.sql: statement 2: UNIQUE constraint failed: users.id\n");
    let status = succeeded(&migrate(&["--status"]));
    let lines: Vec<&str> = status.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("1_users.sql  run at 20"), "{status}");
    assert_eq!(lines[2], "3_bad.sql  pending");
    assert_eq!(dev.value(None, "SELECT count(*) FROM sqlite_schema WHERE name = 'names'"), "1");

    put("2_names.sql", "CREATE INDEX other ON users (name);");
    let changed = "2_names.sql was changed after it was run: restore its text, and put the change into a new \
                   migration";
    assert_eq!(failed(&migrate(&[])), format!("quorate: {changed}\n"));
}
