//! The generation changes while readers are in use.

use super::*;

/// Makes a generation current whose table has `rows` rows.
fn publish(fixture: &Fixture, rows: i64) {
    let staged = fixture.generations.stage().unwrap();
    let vfs = fixture.generations.current().vfs().to_owned();
    connection::create_database(&vfs, &staged.path(), 4096).unwrap();
    let next = fixture.generations.publish(staged).unwrap();
    fill(&connection::open_writer(&next, 1 << 20).unwrap(), rows);
}

fn count(fixture: &Fixture) -> i64 {
    fixture.one("SELECT count(*) FROM t")
}

#[test]
fn reads_stay_on_the_generation_they_began_on() {
    let fixture = fixture();
    assert_eq!(count(&fixture), 10);
    let snapshot = fixture.readers.snapshot_blocking().unwrap();
    let old = fixture.generations.current().dir().to_path_buf();
    publish(&fixture, 3);
    assert_eq!(count(&fixture), 3);
    let rows = snapshot.query_blocking(&statement("SELECT count(*) FROM t"), &ReadLimits::default()).unwrap();
    assert_eq!(rows.one::<i64>(), Ok(10));
    assert!(old.exists());
    drop(snapshot);
    assert!(!old.exists(), "the old generation is removed with its last reader");
}

#[test]
fn switching_releases_the_old_generation() {
    let fixture = fixture();
    assert_eq!(count(&fixture), 10);
    let old = fixture.generations.current().dir().to_path_buf();
    publish(&fixture, 3);
    assert!(old.exists());
    fixture.readers.switch();
    assert!(!old.exists());
    fixture.assert_usable();
}

#[test]
fn a_waiting_query_survives_a_switch() {
    let options = ReaderOptions { readers: 1, wait: PATIENCE, ..ReaderOptions::default() };
    let fixture = fixture_with(options);
    let held = fixture.readers.snapshot_blocking().unwrap();
    let readers = fixture.readers.clone();
    let waiting = std::thread::spawn(move || {
        let rows = readers.query_blocking(&statement("SELECT count(*) FROM t"), &ReadLimits::default()).unwrap();
        rows.one::<i64>().unwrap()
    });
    publish(&fixture, 3);
    fixture.readers.switch();
    assert!([3, 10].contains(&waiting.join().unwrap()));
    drop(held);
    fixture.assert_usable();
}
