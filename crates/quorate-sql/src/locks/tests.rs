//! The tables of locks, tested on real files.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests stop at the first surprise")]

use proptest::prelude::*;
use quorate_env::Env;
use quorate_locks::suite::{Step, same_as_memory, steps};
use rusqlite::Connection;

use super::*;
use crate::extensions::Extensions;
use crate::generation::Generations;
use crate::machine::tests::IDENTITY;
use crate::{connection, records};

mod copies;

/// A database with the store's tables.
struct Files {
    generations: Generations,
    _dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let generations = Generations::open(Env::real().disk(), dir.path(), 4096, Extensions::default()).unwrap();
        Self { generations, _dir: dir }
    }

    fn open(&self) -> Database<()> {
        let conn = connection::open_writer(&self.generations.current(), 1 << 20).unwrap();
        records::create(&conn, IDENTITY).unwrap();
        Database::new(conn)
    }
}

fn failed(ended: Ended<LocksError>) -> LocksError {
    match ended {
        Ended::Failed(error) => error,
        Ended::Sqlite(error) => panic!("{error}"),
        Ended::Fault(fault) => panic!("{fault}"),
    }
}

fn run(database: &mut Database<()>, steps: Vec<Step>) {
    database.execute("BEGIN IMMEDIATE", []).unwrap();
    same_as_memory(&mut LockTables::of(database), steps, failed);
    database.execute("ROLLBACK", []).unwrap();
}

#[test]
fn streams_of_commands_do_what_they_do_in_memory() {
    let files = Files::new();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) };
    let database = std::cell::RefCell::new(files.open());
    proptest!(config, |(steps in steps(60))| {
        run(&mut database.borrow_mut(), steps);
    });
}

#[test]
fn every_statement_finds_its_rows_by_an_index() {
    let files = Files::new();
    let database = files.open();
    let plan = |conn: &Connection, sql: &str| -> Vec<String> {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        statement.query_map([], |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let statements = [
        LOCK,
        UPDATE_LOCK,
        REMOVE_LOCK,
        NAMES,
        NAMES_BELOW,
        CLAIM,
        LEASE,
        FIRST_END,
        CLAIMS,
        COUNT_BEFORE,
        UPDATE_CLAIM,
        REMOVE_CLAIM,
    ];
    for sql in statements {
        let bound = (1..=7).rev().fold(sql.to_owned(), |sql, number| sql.replace(&format!("?{number}"), "x'00'"));
        let plan = plan(database.connection(), &bound);
        assert!(plan.iter().all(|step| step.starts_with("SEARCH")), "{sql}: {plan:?}");
    }
    // The first row of an index, and no sort.
    let first = plan(database.connection(), FIRST_DUE);
    assert_eq!(first, ["SCAN _quorate_locks USING COVERING INDEX _quorate_locks_due"]);
}
