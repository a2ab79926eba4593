//! The tables of keys, tested on real files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

use proptest::collection::vec;
use proptest::prelude::*;
use quorate_env::Env;
use quorate_keys::suite::{BUDGET, SPACES, Step, generate, same_as_memory, steps};
use quorate_keys::*;
use rusqlite::Connection;

use super::{Ended, KeyTables};
use crate::extensions::Extensions;
use crate::ffi::database::Database;
use crate::generation::Generations;
use crate::machine::tests::{IDENTITY, SECOND};
use crate::{connection, records};

mod copies;
mod cost;
mod plans;
mod rows;

/// A database with the store's tables.
struct Files {
    generations: Generations,
    _dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let generations = Generations::open(Env::real().disk(), dir.path(), 4096, Extensions::default()).unwrap();
        let files = Self { generations, _dir: dir };
        records::create(&files.connect(), IDENTITY).unwrap();
        files
    }

    fn connect(&self) -> Connection {
        connection::open_writer(&self.generations.current(), 1 << 20).unwrap()
    }

    fn open(&self) -> Database<()> {
        Database::new(self.connect())
    }
}

fn failed(ended: Ended) -> KeysError {
    match ended {
        Ended::Failed(error) => error,
        Ended::Sqlite(error) => panic!("{error}"),
        Ended::Fault(fault) => panic!("{fault}"),
    }
}

/// SET.
pub(crate) fn set(key: &'static str, value: &'static str, expiry: Expiry) -> KeysCommand {
    let (key, value, condition, get) = (key.into(), value.into(), Condition::Always, false);
    KeysCommand::String(StringCommand::Set { key, value, condition, expiry, get })
}

/// GET.
pub(crate) fn get(key: &'static str) -> KeysCommand {
    KeysCommand::String(StringCommand::Get { key: key.into() })
}

/// One command for each kind of key. A field of the hash expires at a time, and the string a second later.
pub(crate) fn one_of_each(at: u64) -> Vec<KeysCommand> {
    let hash = HashCommand::Set {
        key: "hash".into(),
        fields: vec![("f".into(), "v".into()), ("g".into(), "w".into())],
        condition: Condition::Always,
        expiry: Expiry::At(at),
    };
    let members = vec![(1.5, "m".into()), (f64::INFINITY, "n".into())];
    let options = AddOptions::default();
    let values = vec!["x".into(), "y".into()];
    vec![
        set("string", "value", Expiry::At(at + SECOND)),
        KeysCommand::Hash(hash),
        KeysCommand::Set(SetCommand::Add { key: "set".into(), members: vec!["m".into()], expiry: Expiry::Never }),
        KeysCommand::SortedSet(SortedSetCommand::Add { key: "sorted".into(), members, options, count_changed: false }),
        KeysCommand::List(ListCommand::Push { key: "list".into(), values, end: End::Left, existing: false }),
    ]
}

/// Runs a command at a time with a large budget.
fn run_at(database: &mut Database<()>, now: u64, command: KeysCommand) -> Result<KeysReply, KeysError> {
    let mut context = Context::new(now, Version::new(now, 0), BUDGET);
    Keys::new(&mut KeyTables::of(database), &mut context, 0).run(&command).map_err(failed)
}

/// Runs a stream in one transaction, and undoes it.
fn run(database: &mut Database<()>, steps: Vec<Step>, budgets: &[u64]) {
    // A stream that has failed has left its transaction open, and a shorter one is tried next.
    let _ = database.execute("ROLLBACK", []);
    database.execute("BEGIN IMMEDIATE", []).unwrap();
    same_as_memory(&mut KeyTables::of(database), steps, budgets, failed);
    database.execute("ROLLBACK", []).unwrap();
}

/// The space that was used first is cleared first, whichever was flushed first.
#[test]
fn flushed_spaces_are_swept_in_the_order_of_memory() {
    let files = Files::new();
    let [first, second] = SPACES;
    let flush = || KeysCommand::Key(KeyCommand::Flush);
    let step = |space, command, sweep| Step { later: 1, space, command, sweep };
    let mut stream: Vec<Step> = one_of_each(SECOND).into_iter().map(|command| step(first, command, 0)).collect();
    stream.extend([step(second, set("key", "value", Expiry::Never), 0), step(second, flush(), 0)]);
    stream.push(step(first, flush(), 1));
    run(&mut files.open(), stream, &[BUDGET]);
}

fn budgets() -> impl Strategy<Value = Vec<u64>> {
    vec(prop_oneof![6 => Just(BUDGET), 1 => 90..1_000_u64], 1..8)
}

#[test]
fn streams_of_commands_do_what_they_do_in_memory() {
    let (files, config) =
        (Files::new(), ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_500) });
    let database = std::cell::RefCell::new(files.open());
    proptest!(config, |(steps in steps(generate::command(), 60), budgets in budgets())| {
        run(&mut database.borrow_mut(), steps, &budgets);
    });
}

#[test]
fn elements_that_have_expired_are_gone_as_they_are_in_memory() {
    let (files, config) =
        (Files::new(), ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_500) });
    let database = std::cell::RefCell::new(files.open());
    let expiring = || prop_oneof![generate::expiring(), generate::expiring_scores()];
    proptest!(config, |(steps in steps(expiring(), 40), budgets in budgets())| {
        run(&mut database.borrow_mut(), steps, &budgets);
    });
}
