//! A copy that is built from boundaries alone is the database at each boundary, whatever happens to the store.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Model, PATIENCE, add, apply, entry, open, options, steps};
use proptest::prelude::*;
use quorate_model::{Entry, StateMachine, StoreFault};
use quorate_sql::capture::{Boundary, Changed, WHOLE_HOLD_FACTOR};
use quorate_sql::readers::ReaderOptions;
use quorate_sql::{SqlStore, StoreOptions};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn boundaries_add_up_to_the_database(steps in steps()) {
        prop_assert_eq!(Model::new().run(&steps), Ok(()));
    }
}

fn inserts(range: std::ops::RangeInclusive<u64>, bytes: usize) -> Vec<Entry> {
    range.map(|index| entry(index, &format!("INSERT INTO t (v) VALUES (randomblob({bytes}))"))).collect()
}

fn create() -> Entry {
    entry(1, "CREATE TABLE t (i INTEGER PRIMARY KEY, v BLOB)")
}

/// Reads the page that every commit changes.
fn read_one(boundary: &Boundary) -> Result<(), StoreFault> {
    boundary.read(1, &mut vec![0; usize::try_from(boundary.page_size()).unwrap()])
}

/// Ends a thread although the test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls until a condition holds.
fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn close(store: &SqlStore) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(store.close());
}

fn install_own_image(store: &SqlStore) {
    let (mut source, mut sink) = (store.send_image().unwrap(), store.receive_image().unwrap());
    while let Some(piece) = source.next().unwrap() {
        if !piece.is_empty() {
            sink.write(piece).unwrap();
        }
    }
    drop(source);
    sink.finish().unwrap().install().unwrap();
}

#[test]
fn the_writer_and_its_checkpoints_go_on_while_boundaries_are_read() {
    let home = tempfile::tempdir().unwrap();
    let limits = StoreOptions { checkpoint_bytes: 64 << 10, idle_after: Duration::from_millis(5), ..options() };
    let store = open(&home.path().join("node"), &limits);
    apply(&store, vec![create()]);
    let mut capture = store.capture().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 1;
            while !is_over.load(Ordering::Relaxed) {
                apply(&store, inserts(last + 1..=last + 7, 1_500));
                last += 7;
                // A debug build reads boundaries more slowly than this writes.
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let _over = SetOnDrop(&is_over);
        let (mut image, mut last) = (Vec::new(), 0);
        for round in 0..25 {
            let boundary = capture.boundary().unwrap();
            let before = store.applied().index();
            add(&mut image, &boundary).unwrap();
            until(|| store.applied().index() > before);
            let (index, stamp, hash) = (boundary.applied().index(), boundary.stamp(), boundary.outcome_hash());
            boundary.kept();
            assert!(index > last || round == 0, "nothing is applied in between");
            last = index;
            let path = home.path().join(format!("image{round}.db"));
            std::fs::write(&path, &image).unwrap();
            let conn = rusqlite::Connection::open(&path).unwrap();
            let found = "SELECT (SELECT count(*) FROM t), \"index\", now, outcome_hash FROM _quorate_applied";
            let found = conn.query_row(found, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
            let [index, stamp, hash] = [index, stamp, hash].map(u64::cast_signed);
            assert_eq!(found, Ok((index - 1, index, stamp, hash)));
            let check = conn.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
            assert_eq!(check.as_deref(), Ok("ok"));
            // A checkpoint completes now, so that the next boundary meets another `-wal`.
            until(|| store.sizes().wal < 1 << 20);
        }
    });
    assert!(store.durable().index() > 1, "there was no checkpoint");
}

#[test]
fn a_boundary_that_lasts_too_long_lets_the_wal_shrink() {
    let home = tempfile::tempdir().unwrap();
    let limits = StoreOptions { checkpoint_bytes: 32 << 10, hold_bytes_max: 128 << 10, ..options() };
    let store = open(&home.path().join("node"), &limits);
    apply(&store, vec![create()]);
    let mut capture = store.capture().unwrap();
    let mut last = 1;
    for times in [WHOLE_HOLD_FACTOR, 1] {
        let boundary = capture.boundary().unwrap();
        assert_eq!(*boundary.changed() == Changed::All, times > 1);
        let max = times * limits.hold_bytes_max;
        while store.sizes().wal <= max {
            assert_eq!(read_one(&boundary), Ok(()));
            apply(&store, inserts(last + 1..=last + 1, 5_000));
            last += 1;
        }
        let fault = read_one(&boundary).unwrap_err();
        assert!(fault.is_retryable() && fault.to_string().contains(&max.to_string()), "{fault}");
        drop(boundary);
        until(|| {
            last += 1;
            apply(&store, inserts(last..=last, 10));
            store.sizes().wal < limits.hold_bytes_max
        });
        // The pages are not lost.
        let boundary = capture.boundary().unwrap();
        assert!(boundary.numbers().count() > 10);
        assert_eq!(add(&mut Vec::new(), &boundary), Ok(()));
        boundary.kept();
    }
}

#[test]
fn a_store_closes_while_a_boundary_is_open() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("node");
    let store = open(&dir, &options());
    apply(&store, vec![create()]);
    let mut capture = store.capture().unwrap();
    let boundary = capture.boundary().unwrap();
    close(&store);
    assert_eq!(read_one(&boundary), Err(StoreFault::Closed));
    drop((store, boundary));
    assert_eq!(capture.boundary().map(drop), Err(StoreFault::Closed));
    drop(capture);
    assert_eq!(open(&dir, &options()).applied().index(), 1);
}

#[test]
fn an_installed_image_ends_a_boundary_and_begins_anew() {
    let home = tempfile::tempdir().unwrap();
    let store = open(&home.path().join("node"), &options());
    apply(&store, vec![create()]);
    let mut capture = store.capture().unwrap();
    capture.boundary().unwrap().kept();
    let boundary = capture.boundary().unwrap();
    assert_eq!(boundary.changed(), &Changed::Pages(vec![]));
    install_own_image(&store);
    assert!(matches!(read_one(&boundary), Err(StoreFault::ImageLost(_))));
    boundary.kept();
    let boundary = capture.boundary().unwrap();
    assert_eq!(boundary.changed(), &Changed::All);
    assert_eq!(add(&mut Vec::new(), &boundary), Ok(()));
}

/// A boundary that is read for long keeps no image from being sent.
#[test]
fn an_image_ends_an_old_boundary() {
    let home = tempfile::tempdir().unwrap();
    let readers = ReaderOptions { transaction: Duration::ZERO, ..ReaderOptions::default() };
    let store = open(&home.path().join("node"), &StoreOptions { readers, ..options() });
    apply(&store, vec![create(), entry(2, "CREATE TABLE u (i INTEGER PRIMARY KEY)")]);
    let mut capture = store.capture().unwrap();
    let mut boundary = Some(capture.boundary().unwrap());
    // The checkpoint of the image can't complete without these.
    apply(&store, inserts(3..=20, 1_000));
    let mut source = store.send_image().unwrap();
    while source.next().unwrap().is_some() {
        boundary = boundary.filter(|boundary| read_one(boundary).is_ok());
    }
    assert!(boundary.is_none());
    assert_eq!(read_one(&capture.boundary().unwrap()), Ok(()));
}

#[test]
fn there_is_one_capture_and_one_boundary_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let store = open(&home.path().join("node"), &options());
    let mut capture = store.capture().unwrap();
    assert!(store.capture().unwrap_err().is_retryable());
    let boundary = capture.boundary().unwrap();
    assert!(capture.boundary().unwrap_err().is_retryable());
    let mut page = vec![0; usize::try_from(boundary.page_size()).unwrap()];
    for number in [0, boundary.pages() + 1] {
        assert!(boundary.read(number, &mut page).is_err());
    }
    assert!(boundary.read(1, &mut page[1..]).is_err());
    // Another thread may read the pages.
    std::thread::spawn(move || drop(boundary)).join().unwrap();
    capture.boundary().unwrap().kept();
    drop(capture);
    assert_eq!(store.capture().unwrap().boundary().unwrap().changed(), &Changed::All);
}
