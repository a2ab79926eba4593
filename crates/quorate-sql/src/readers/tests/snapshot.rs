//! A snapshot shows one state until its age limit.

use std::time::Instant as Clock;

use quorate_model::FailureKind;

use super::*;
use crate::usage::TempOptions;

fn name(snapshot: &Snapshot) -> String {
    let query = statement("SELECT name FROM t WHERE id = 1");
    snapshot.query_blocking(&query, &ReadLimits::default()).unwrap().one().unwrap()
}

#[test]
fn a_snapshot_shows_one_state_and_knows_its_index() {
    let fixture = fixture();
    let before = fixture.readers.snapshot_blocking().unwrap();
    fixture.writer.execute_batch("UPDATE t SET name = 'new'").unwrap();
    set_applied(&fixture.writer, 2);
    let after = fixture.readers.snapshot_blocking().unwrap();
    for _ in 0..3 {
        assert_eq!((name(&before).as_str(), before.applied_index()), ("name 1", 1));
        assert_eq!((name(&after).as_str(), after.applied_index()), ("new", 2));
    }
    assert_eq!(fixture.one::<String>("SELECT name FROM t WHERE id = 1"), "new");
    drop((before, after));
    fixture.assert_usable();
}

/// An index beyond the signed range is read back as it was written.
#[test]
fn the_applied_index_has_all_its_bits() {
    let fixture = fixture();
    set_applied(&fixture.writer, u64::MAX - 1);
    assert_eq!(fixture.readers.snapshot_blocking().unwrap().applied_index(), u64::MAX - 1);
}

#[test]
fn an_interrupted_query_leaves_the_snapshot_as_it_was() {
    let fixture = fixture();
    let snapshot = fixture.readers.snapshot_blocking().unwrap();
    fixture.writer.execute_batch("UPDATE t SET name = 'new'").unwrap();
    let limits = ReadLimits { timeout: Duration::from_millis(5), ..ReadLimits::default() };
    assert_eq!(snapshot.try_query_inline(&statement(ENDLESS), &limits), None);
    let timeout = Err(ReadError::Timeout(limits.timeout));
    assert_eq!(snapshot.query_blocking(&statement(ENDLESS), &limits), timeout);
    assert_eq!(name(&snapshot), "name 1");
}

#[tokio::test]
async fn tasks_share_a_snapshot() {
    let fixture = fixture();
    let env = Env::real();
    let snapshot = fixture.readers.snapshot(&env, PATIENCE).await.unwrap();
    let long =
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT max(i) FROM n";
    let (long, short, limits) = (statement(long), statement("SELECT count(*) FROM t"), ReadLimits::default());
    let both = async { tokio::join!(snapshot.query(&env, &long, &limits), snapshot.query(&env, &short, &limits)) };
    let (long, short) = both.await;
    assert_eq!((long.unwrap().one(), short.unwrap().one()), (Ok(300_000_i64), Ok(10_i64)));
}

/// An age that a test does not reach between two of its calls.
const AGE: Duration = Duration::from_secs(2);

/// The pause between two looks whether it is reached.
const POLL: Duration = Duration::from_millis(2);

#[test]
fn an_idle_snapshot_is_ended_at_its_age() {
    let options = ReaderOptions { readers: 1, transaction: AGE, ..ReaderOptions::default() };
    let fixture = fixture_with(options);
    let snapshot = fixture.readers.snapshot_blocking().unwrap();
    assert_eq!(name(&snapshot), "name 1");
    let start = Clock::now();
    while fixture.readers.expire() == 0 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(POLL);
    }
    // The reader is free although the snapshot still exists.
    fixture.assert_usable();
    let again = snapshot.query_blocking(&statement("SELECT 1"), &ReadLimits::default());
    assert_eq!(again, Err(ReadError::SnapshotEnded));
    assert!(ReadError::SnapshotEnded.is_retryable());
}

#[tokio::test]
async fn a_long_snapshot_lasts_until_old_ones_are_ended() {
    let fixture = fixture_with(ReaderOptions { transaction: AGE, ..ReaderOptions::default() });
    let snapshot = fixture.readers.snapshot(&Env::real(), PATIENCE).await.unwrap();
    assert!(!fixture.readers.keeps_old());
    let start = Clock::now();
    while !fixture.readers.keeps_old() {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(POLL);
    }
    assert_eq!(fixture.readers.expire(), 0);
    assert_eq!(name(&snapshot), "name 1");
    assert_eq!(fixture.readers.end_old(), 1);
    let gone = snapshot.query_blocking(&statement("SELECT 1"), &ReadLimits::default());
    assert_eq!(gone, Err(ReadError::SnapshotEnded));
    fixture.assert_usable();
}

/// A stream of a snapshot shows the snapshot's state, leaves it open, and ends with the next read of it.
#[test]
fn a_snapshot_is_read_in_pieces() {
    let fixture = fixture();
    fixture.writer.execute_batch("DELETE FROM t").unwrap();
    fill_names(&fixture.writer, 5000);
    let snapshot = fixture.readers.snapshot_blocking().unwrap();
    fixture.writer.execute_batch("DELETE FROM t").unwrap();
    let all = || snapshot.stream(statement("SELECT id FROM t"), ReadLimits::default());
    for _ in 0..2 {
        let (mut stream, mut found) = (all(), 0);
        while let Some(rows) = stream.next_blocking().unwrap() {
            found += rows.len();
        }
        assert_eq!(found, 5000);
    }
    for other in ["SELECT id FROM t", "SELECT name FROM t WHERE id = 1"] {
        let mut begun = all();
        assert!(begun.next_blocking().unwrap().is_some());
        snapshot.query_blocking(&statement(other), &ReadLimits::default()).unwrap();
        assert_eq!(begun.next_blocking(), Err(ReadError::Cancelled), "{other}");
    }
    let (mut first, mut second) = (all(), all());
    assert_eq!(first.next_blocking().unwrap().unwrap().get(0), second.next_blocking().unwrap().unwrap().get(0));
    assert_eq!(first.next_blocking(), Err(ReadError::Cancelled));
    assert!(second.next_blocking().unwrap().is_some());
    drop(snapshot);
    drop((first, second));
    fixture.assert_usable();
}

#[test]
fn a_snapshot_fails_at_its_age_without_expire() {
    let options = ReaderOptions { transaction: Duration::from_millis(20), ..ReaderOptions::default() };
    let fixture = fixture_with(options);
    let snapshot = fixture.readers.snapshot_blocking().unwrap();
    let start = Clock::now();
    let error = loop {
        if let Err(error) = snapshot.query_blocking(&statement("SELECT 1"), &ReadLimits::default()) {
            break error;
        }
        assert!(start.elapsed() < PATIENCE);
    };
    assert_eq!(error, ReadError::SnapshotEnded);
    fixture.assert_usable();
}

#[test]
fn older_transactions_end_and_younger_ones_stay() {
    let fixture = fixture();
    let old = fixture.readers.snapshot_blocking().unwrap();
    let between = quorate_env::Instant::now();
    let young = fixture.readers.snapshot_blocking().unwrap();
    assert_eq!(fixture.readers.end_begun_before(between), 1);
    assert_eq!(name(&young), "name 1");
    let gone = old.query_blocking(&statement("SELECT 1"), &ReadLimits::default());
    assert_eq!(gone, Err(ReadError::SnapshotEnded));
}

#[test]
fn a_running_query_of_an_old_transaction_is_ended() {
    let fixture = fixture();
    let readers = fixture.readers.clone();
    let limits = ReadLimits { timeout: PATIENCE, ..ReadLimits::default() };
    let running = std::thread::spawn(move || readers.query_blocking(&statement(ENDLESS), &limits));
    let start = Clock::now();
    while fixture.readers.end_begun_before(quorate_env::Instant::now()) == 0 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert_eq!(running.join().unwrap(), Err(ReadError::SnapshotEnded));
    assert!(start.elapsed() < PATIENCE);
    fixture.assert_usable();
}

/// An open snapshot keeps a checkpoint from completing; after a query nothing does.
#[test]
fn a_query_leaves_no_transaction_open() {
    let fixture = fixture();
    let complete = |fixture: &Fixture| {
        fixture.writer.execute_batch("UPDATE t SET name = name || '!'").unwrap();
        let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
        let (log, done): (i64, i64) =
            fixture.writer.query_row(checkpoint, [], |row| Ok((row.get(1)?, row.get(2)?))).unwrap();
        log == done
    };
    assert_eq!(fixture.one::<i64>("SELECT count(*) FROM t"), 10);
    assert!(fixture.try_query("SELECT id FROM t", &ReadLimits { rows: 1, ..ReadLimits::default() }).is_err());
    assert!(complete(&fixture));
    let snapshot = fixture.readers.snapshot_blocking().unwrap();
    assert!(!complete(&fixture));
    drop(snapshot);
    assert!(complete(&fixture));
}

/// SQLite rolls the transaction back if a query runs out of memory or disk, or can't read the database.
#[test]
fn a_rollback_by_sqlite_ends_the_snapshot() {
    let fixture = fixture_with(ReaderOptions { cache_bytes: 1 << 20, ..patient() });
    fixture.generations.temp().limit(TempOptions { per_query: 1 << 20, all: 1 << 30 });
    let snapshot = fixture.readers.snapshot_blocking().unwrap();
    fixture.writer.execute_batch("UPDATE t SET name = 'new'").unwrap();
    let sort = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9000)
        SELECT i FROM n, t ORDER BY printf('%.*c', 1000, i)";
    let sorted = snapshot.query_blocking(&statement(sort), &ReadLimits::default());
    assert!(matches!(&sorted, Err(ReadError::Failed(failure)) if failure.kind == FailureKind::TooBig), "{sorted:?}");
    let name = statement("SELECT name FROM t WHERE id = 1");
    assert_eq!(snapshot.query_blocking(&name, &ReadLimits::default()), Err(ReadError::SnapshotEnded));
    drop(snapshot);
    fixture.assert_usable();
}
