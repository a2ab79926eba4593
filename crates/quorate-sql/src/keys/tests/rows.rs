//! What is in the rows: extremes, damage, and what is left after a restart or a crash.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_keys::suite::BUDGET;
use quorate_keys::*;
use quorate_model::StoreFault;

use super::{Files, get, one_of_each, run_at, set};
use crate::ffi::database::Database;
use crate::keys::{Ended, KeyTables};
use crate::usage::{Scope, Temp, WRITER_MEMORY_MAX};

fn all_keys(database: &mut Database<()>) -> Vec<(Bytes, KeyRow)> {
    let mut all = Vec::new();
    let visit = &mut |row| {
        all.push(row);
        ControlFlow::Continue(())
    };
    KeyTables::of(database).keys(0, &Span::ALL, Order::Up, visit).unwrap();
    all
}

#[test]
fn what_was_committed_is_there_after_a_crash_and_nothing_else() {
    let files = Files::new();
    let mut database = files.open();
    for (now, command) in (1..).zip(one_of_each(1_000)) {
        run_at(&mut database, now, command).unwrap();
    }
    let before = all_keys(&mut database);
    assert_eq!(before.len(), 5);
    database.execute("BEGIN IMMEDIATE", []).unwrap();
    run_at(&mut database, 9, set("string", "other", Expiry::Never)).unwrap();
    let delete = KeyCommand::Delete { keys: vec!["sorted".into(), "list".into()], condition: Condition::Always };
    run_at(&mut database, 9, KeysCommand::Key(delete)).unwrap();
    run_at(&mut database, 9, set("new", "value", Expiry::Never)).unwrap();
    // The process ends here: the connection closes without a COMMIT.
    drop(database);
    let mut database = files.open();
    assert_eq!(all_keys(&mut database), before);
    let mut tables = KeyTables::of(&mut database);
    assert_eq!((tables.first_trash().unwrap(), tables.first_due().unwrap().unwrap().0), (None, 1_000));
    let highest = before.iter().map(|(_, row)| row.id).max().unwrap();
    assert_eq!(tables.new_id().unwrap(), highest + 1, "ids go on");
}

#[test]
fn ids_are_never_used_again() {
    let mut database = Files::new().open();
    for number in 1..4 {
        run_at(&mut database, number, set("key", "value", Expiry::Never)).unwrap();
        assert_eq!(all_keys(&mut database)[0].1.id, number);
        let delete = KeyCommand::Delete { keys: vec!["key".into()], condition: Condition::Always };
        run_at(&mut database, number, KeysCommand::Key(delete)).unwrap();
    }
}

#[test]
fn the_largest_numbers_are_read_back() {
    let mut database = Files::new().open();
    let mut context = Context::new(1, Version(u64::MAX), BUDGET);
    let set = set("key", "value", Expiry::At(limits::TIME_MAX));
    Keys::new(&mut KeyTables::of(&mut database), &mut context, Space::MAX).run(&set).unwrap();
    let row = KeyTables::of(&mut database).find_key(Space::MAX, b"key").unwrap().unwrap();
    assert_eq!((row.version, row.expires_at), (Version(u64::MAX), Some(limits::TIME_MAX)));
    let mut tables = KeyTables::of(&mut database);
    let element = Element { version: Version(1), expires_at: Some(limits::TIME_MAX), value: Bytes::new() };
    tables.put_element(7, &Bytes::from("f"), &element).unwrap();
    assert_eq!(tables.element(7, b"f").unwrap(), Some(element));
    assert_eq!(tables.count_expired(7, limits::TIME_MAX - 1).unwrap(), 0);
    assert_eq!(tables.count_expired(7, u64::MAX).unwrap(), 1);
}

/// SQLite keeps a real without a fraction as an integer in its records.
#[test]
fn scores_are_in_the_order_of_scores() {
    let mut database = Files::new().open();
    let mut tables = KeyTables::of(&mut database);
    let whole = [1e15, 9_007_199_254_740_993.0, 9_223_372_036_854_775_807.0, 1e18, 140_737_488_355_328.0];
    let odd = [0.0, -0.0, 0.1, 1.0, 1.5, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::INFINITY];
    let scores = || whole.iter().chain(&odd).flat_map(|score| [*score, -*score]).filter_map(Score::new);
    for (number, score) in scores().enumerate() {
        tables.put_member(1, &format!("{number:03}").into(), score).unwrap();
    }
    let mut expected: Vec<Place> =
        scores().enumerate().map(|(number, score)| (score, format!("{number:03}").into())).collect();
    expected.sort_unstable();
    let mut found = Vec::new();
    let visit = &mut |place: Place| {
        found.push(place);
        ControlFlow::Continue(())
    };
    tables.members(1, &Span { from: FIRST_PLACE, to: None }, Order::Up, visit).unwrap();
    assert_eq!(found, expected);
    for (at, from) in expected.iter().enumerate() {
        let span = Span { from: from.clone(), to: None };
        assert_eq!(tables.count_members(1, &span).unwrap(), (expected.len() - at) as u64, "{from:?}");
        assert_eq!(tables.score(1, &from.1).unwrap(), Some(from.0));
    }
}

#[test]
fn rows_that_can_t_be_right_are_damage() {
    let mut database = Files::new().open();
    run_at(&mut database, 1, set("key", "value", Expiry::Never)).unwrap();
    database.execute("UPDATE _quorate_keys SET kind = 9", []).unwrap();
    let mut context = Context::new(1, Version(1), BUDGET);
    let ended = Keys::new(&mut KeyTables::of(&mut database), &mut context, 0).run(&get("key")).unwrap_err();
    let Ended::Fault(StoreFault::Damaged(text)) = ended else { panic!("{ended:?}") };
    assert_eq!(text, "the tables of keys: a key holds the kind 9, which does not exist");
}

#[test]
fn the_longest_key_and_field_hold_the_longest_value() {
    let mut database = Files::new().open();
    let long = |bytes: usize| Bytes::from(vec![7; bytes]);
    let (key, value) = (long(limits::KEY_BYTES_MAX), long(limits::VALUE_BYTES_MAX));
    let (condition, expiry) = (Condition::Always, Expiry::At(limits::TIME_MAX));
    let set = StringCommand::Set { key: key.clone(), value: value.clone(), condition, expiry, get: false };
    run_at(&mut database, 1, KeysCommand::String(set)).unwrap();
    let fields = vec![(long(limits::FIELD_BYTES_MAX), value.clone())];
    let hash = HashCommand::Set { key: "hash".into(), fields, condition: Condition::Always, expiry };
    run_at(&mut database, 2, KeysCommand::Hash(hash)).unwrap();
    let push = ListCommand::Push { key: "list".into(), values: vec![value], end: End::Left, existing: false };
    run_at(&mut database, 3, KeysCommand::List(push)).unwrap();
    let members = vec![(1.5, long(limits::FIELD_BYTES_MAX))];
    let options = AddOptions::default();
    let add = SortedSetCommand::Add { key: "sorted".into(), members, options, count_changed: false };
    run_at(&mut database, 4, KeysCommand::SortedSet(add)).unwrap();
    let rename = KeyCommand::Rename { key: "hash".into(), to_space: 1, to: key, replace: true };
    run_at(&mut database, 5, KeysCommand::Key(rename)).unwrap();
}

/// The memory that counts as a batch's would be used up.
#[test]
fn what_a_command_reads_does_not_count_for_later_ones() {
    let files = Files::new();
    let mut database = files.open();
    let temp = Temp::of_reader(files.generations.current().temp());
    let _scope = Scope::write(0, &temp);
    let value = Bytes::from(vec![7; limits::VALUE_BYTES_MAX]);
    let (key, condition, expiry) = (Bytes::from("large"), Condition::Always, Expiry::Never);
    let set = StringCommand::Set { key, value: value.clone(), condition, expiry, get: false };
    for now in 0..4 {
        run_at(&mut database, now, KeysCommand::String(set.clone())).unwrap();
    }
    for now in 0..(WRITER_MEMORY_MAX / value.len() + 2) as u64 {
        assert_eq!(run_at(&mut database, now, get("large")), Ok(KeysReply::Value(value.clone())));
    }
}
