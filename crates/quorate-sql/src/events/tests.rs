//! Events in everything that a store makes of its database, and reads of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use quorate_env::{Env, Instant};
use quorate_model::events::{EVENTS_LEVEL, EventsCommand, Filter};
use quorate_model::{Command, ControlCommand, Entry, SqlCommand, Statement, Topic};
use rusqlite::Connection;

use super::*;
use crate::readers::{ReadError, ReadLimits};
use crate::store::tests::copies::{Backup, block_on, captured, send_image};
use crate::store::tests::{Home, PATIENCE, apply, entry_at, home, open, options};
use crate::store::{SqlStore, Verification};
use crate::{connection, logical_hash};

/// The events that the stores of these tests keep, and those that were added.
const KEPT: u64 = 1_500;
const ADDED: u64 = 2_000;

fn keeping() -> crate::options::StoreOptions {
    crate::options::StoreOptions { events: Retention { events: KEPT, bytes: u64::MAX }, ..options() }
}

fn entry(index: u64, command: impl Into<Command>) -> Entry {
    entry_at(index, index, command)
}

fn notify(channel: &str, payload: impl Into<Bytes>) -> EventsCommand {
    EventsCommand::Notify { channel: channel.to_owned(), payload: payload.into() }
}

/// A store with many events on two channels, of which the first are gone, and some only in the `-wal`.
fn with_events() -> (Home, SqlStore) {
    let home = home();
    let store = open(&home.dir, keeping());
    let channel = |index: u64| if index.is_multiple_of(10) { "tens" } else { "others" };
    let entries = (1..=ADDED).map(|index| entry(index, notify(channel(index), vec![7; 500]))).collect();
    assert!(apply(&store, entries).unwrap().into_iter().flatten().all(|outcome| outcome.is_ok()));
    (home, store)
}

fn hash(store: &SqlStore) -> u128 {
    hash_of(&connection::open_reader(&store.generation(), 1 << 20).unwrap())
}

fn hash_of(conn: &Connection) -> u128 {
    let count = conn.query_row("SELECT count(*) FROM quorate_events", [], |row| row.get::<_, i64>(0));
    assert_eq!(count.map(i64::cast_unsigned), Ok(KEPT));
    logical_hash::user(conn).unwrap()
}

fn ask(store: &SqlStore, query: &EventsQuery) -> EventsAnswer {
    block_on(store.readers().events(&Env::real(), query, &ReadLimits::default())).unwrap()
}

/// The indexes of the entries of all events after one, read in pages.
fn read(store: &SqlStore, after: u64, filter: &Filter, limit: u32) -> Result<Vec<u64>, EventId> {
    let (mut after, mut read) = (EventId::new(after, 0), Vec::new());
    loop {
        match ask(store, &EventsQuery { after: Some(after), filter: filter.clone(), limit }) {
            EventsAnswer::Gap { oldest } => return Err(oldest),
            EventsAnswer::Page(page) => {
                assert!(page.upto > after || !page.more, "a page goes on");
                read.extend(page.events.iter().map(|event| event.id.index()));
                after = page.upto;
                if !page.more {
                    return Ok(read);
                }
            }
        }
    }
}

#[test]
fn readers_return_each_event_after_a_number_once_and_in_order() {
    let (_home, store) = with_events();
    let all = Filter::default();
    for limit in [1_000, 7] {
        assert_eq!(read(&store, ADDED - KEPT, &all, limit), Ok((ADDED - KEPT + 1..=ADDED).collect()));
    }
    let tens = Filter { channels: vec!["tens".to_owned()], patterns: Vec::new() };
    assert_eq!(read(&store, 1_000, &tens, 3), Ok((1_010..=ADDED).step_by(10).collect()));
    let patterns = Filter { channels: vec!["nobody".to_owned()], patterns: vec!["t?n*".to_owned()] };
    assert_eq!(read(&store, 1_000, &patterns, 1_000), read(&store, 1_000, &tens, 1_000));
    assert_eq!(read(&store, ADDED, &all, 10), Ok(Vec::new()));
    assert_eq!(read(&store, u64::MAX >> 16, &all, 10), Ok(Vec::new()));
    let last = ask(&store, &EventsQuery { limit: 1, ..EventsQuery::default() });
    assert_eq!(last, EventsAnswer::Page(EventsPage { upto: EventId::new(ADDED, 0), ..EventsPage::default() }));
}

#[test]
fn who_missed_an_event_is_told_and_nobody_else() {
    let (home, store) = with_events();
    let (all, oldest) = (Filter::default(), EventId::new(ADDED - KEPT + 1, 0));
    let gaps = |store: &SqlStore| {
        assert_eq!(read(store, ADDED - KEPT - 1, &all, 10), Err(oldest));
        assert_eq!(read(store, 0, &all, 10), Err(oldest));
        assert_eq!(read(store, ADDED - KEPT, &all, 1_000).unwrap().len() as u64, KEPT);
    };
    gaps(&store);
    drop(store);
    gaps(&open(&home.dir, keeping()));
}

#[test]
fn an_image_has_the_events_and_goes_on_with_them() {
    let (_home, store) = with_events();
    let other_home = home();
    let other = open(&other_home.dir, keeping());
    send_image(&store, &other);
    assert_eq!(hash(&other), hash(&store));
    for store in [&store, &other] {
        apply(store, vec![entry(ADDED + 1, notify("tens", "next"))]).unwrap();
    }
    assert_eq!(hash(&other), hash(&store));
    assert_eq!(read(&other, 0, &Filter::default(), 1), Err(EventId::new(ADDED - KEPT + 2, 0)));
}

#[test]
fn a_backup_has_the_events_for_any_program_and_for_a_restore() {
    let (_home, store) = with_events();
    let backup = Backup::of(&store);
    let plain = backup.plain();
    let last = "SELECT position || '-' || ordinal || ' ' || channel FROM quorate_events ORDER BY id DESC LIMIT 1";
    assert_eq!(plain.query_row(last, [], |row| row.get(0)), Ok("2000-0 tens".to_owned()));
    drop(plain);
    let restored = backup.restored(keeping());
    assert_eq!(hash(&restored), hash(&store));
    assert!(read(&restored, 0, &Filter::default(), 1).is_err());
}

#[test]
fn a_capture_has_the_events() {
    let (_home, store) = with_events();
    let (_dir, copy) = captured(&store);
    assert_eq!(hash_of(&copy), hash(&store));
}

#[test]
fn a_vacuum_keeps_the_events() {
    let (_home, store) = with_events();
    let before = hash(&store);
    assert!(apply(&store, vec![entry(ADDED + 1, SqlCommand::Vacuum)]).unwrap()[0].as_ref().unwrap().is_ok());
    assert_eq!(hash(&store), before);
}

#[test]
fn a_verification_compares_the_events() {
    let (_home, store) = with_events();
    apply(&store, vec![entry(ADDED + 1, ControlCommand::Verify)]).unwrap();
    let verified = block_on(store.verification(ADDED + 1, Instant::now() + PATIENCE));
    let Some(Verification::Done(hashes)) = verified else { panic!("{verified:?}") };
    let reader = connection::open_reader(&store.generation(), 1 << 20).unwrap();
    assert_eq!(*hashes, logical_hash::by_table(&reader).unwrap().into_iter().collect());
    let tables: Vec<_> = hashes.keys().filter(|name| name.starts_with(schema::PREFIX)).collect();
    assert_eq!(tables, ["_quorate_events", "_quorate_events_kept"]);
}

#[test]
fn listeners_are_woken_once_an_event_can_be_read() {
    let (_home, store) = with_events();
    let mut listeners = [(); 2].map(|()| store.waits().register(Topic::EVENTS.watched()).unwrap());
    apply(&store, vec![entry(ADDED + 1, ControlCommand::Raise(EVENTS_LEVEL))]).unwrap();
    let statement = Statement { sql: "SELECT notify('sql', 'x')".into(), ..Statement::default() };
    apply(&store, vec![entry(ADDED + 2, SqlCommand::Statement(statement))]).unwrap();
    for listener in &mut listeners {
        assert_eq!(block_on(listener.woken()), quorate_apply::waits::Woken::By(ADDED + 2));
        assert_eq!(read(&store, ADDED, &Filter::default(), 1), Ok(vec![ADDED + 2]));
    }
}

#[test]
fn a_query_that_would_add_an_event_is_refused_and_says_what_to_do() {
    let (_home, store) = with_events();
    let setup = ["CREATE VIEW v AS SELECT notify('c', 'x') AS a"]
        .map(|sql| Statement { sql: sql.into(), ..Statement::default() });
    apply(&store, vec![entry(ADDED + 1, SqlCommand::Statement(setup[0].clone()))]).unwrap();
    for sql in ["SELECT notify('c', 'x')", "SELECT a FROM v", "EXPLAIN SELECT notify('c', 'x')"] {
        let query = Statement { sql: sql.into(), ..Statement::default() };
        let refused = block_on(store.readers().query(&Env::real(), &query, &ReadLimits::default()));
        let Err(ReadError::Failed(failure)) = refused else { panic!("{sql}: {refused:?}") };
        assert_eq!(failure.message, function::IN_QUERY, "{sql}");
    }
    let write = Statement { sql: "SELECT notify('c', 'x')".into(), ..Statement::default() };
    assert_eq!(store.validator().check(&write), Ok(crate::validate::StatementKind::Write));
}
