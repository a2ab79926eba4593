//! Tests of the read locks that connections of one process share: no reader loses its snapshot, and a connection blocks
//! checkpoints only while it reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::*;

const ACCOUNTS: i64 = 1000;

/// The size of a reader's cache in bytes: so small that a reader keeps reading pages from the file.
const CACHE_BYTES: u32 = 16 << 10;

const TRANSFERS: i64 = 1_500;
const READERS: usize = 3;

/// Returns a database with accounts that fill some pages; the total money equals the number of accounts.
fn bank() -> Db {
    let db = db();
    let accounts = format!(
        "CREATE TABLE accounts (id INTEGER PRIMARY KEY, money INTEGER, filler BLOB);
         WITH RECURSIVE n(id) AS (VALUES (0) UNION ALL SELECT id + 1 FROM n WHERE id + 1 < {ACCOUNTS})
         INSERT INTO accounts SELECT id, 1, zeroblob(300) FROM n"
    );
    db.writer().execute_batch(&accounts).unwrap();
    db
}

fn transfer(writer: &Connection, number: i64) {
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    for (id, money) in [(number * 7 % ACCOUNTS, -1), (number * 13 % ACCOUNTS, 1)] {
        writer.execute("UPDATE accounts SET money = money + ? WHERE id = ?", [money, id]).unwrap();
    }
    writer.execute_batch("COMMIT").unwrap();
}

/// Returns a connection for checkpoints that does not wait for locks.
fn checkpointer(db: &Db) -> Attached {
    let checkpointer = open_checkpointer(&db.generations.current()).unwrap();
    checkpointer.busy_timeout(Duration::ZERO).unwrap();
    checkpointer
}

/// Runs a checkpoint; returns whether it was complete.
fn checkpoint(conn: &Connection, mode: &str) -> bool {
    number(conn, &format!("PRAGMA wal_checkpoint({mode})")) == 0
}

/// Reads each snapshot twice until `is_over` is set, on connections that are opened and closed.
fn read(db: &Db, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let reader = open_reader(&db.generations.current(), CACHE_BYTES).unwrap();
        for _ in 0..20 {
            reader.execute_batch("BEGIN").unwrap();
            let sum = || number(&reader, "SELECT sum(money) FROM accounts");
            assert_eq!((sum(), sum()), (ACCOUNTS, ACCOUNTS));
            reader.execute_batch("COMMIT").unwrap();
        }
    }
}

#[test]
fn a_snapshot_survives_writes_and_checkpoints() {
    let (db, is_over) = (bank(), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| read(&db, &is_over));
        }
        scope.spawn(|| {
            let checkpointer = checkpointer(&db);
            while !is_over.load(Ordering::Relaxed) {
                checkpoint(&checkpointer, "PASSIVE");
                checkpoint(&checkpointer, "RESTART");
            }
        });
        let writer = db.writer();
        (0..TRANSFERS).for_each(|number| transfer(&writer, number));
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(text(&db.reader(), "PRAGMA integrity_check"), "ok");
}

#[test]
fn a_finished_reader_blocks_no_checkpoint() {
    let db = bank();
    let (writer, readers) = (db.writer(), [db.reader(), db.reader()]);
    let checkpointer = checkpointer(&db);
    for number in 0..4 {
        transfer(&writer, number);
        // Each reader now keeps a lock, or the other keeps one for it.
        assert!(readers.iter().all(|reader| self::number(reader, "SELECT sum(money) FROM accounts") == ACCOUNTS));
        assert!(checkpoint(&checkpointer, "TRUNCATE"), "{number}");
        let [one, other] = &readers;
        one.execute_batch("BEGIN").unwrap();
        assert_eq!(self::number(one, "SELECT count(*) FROM accounts"), ACCOUNTS);
        assert_eq!(self::number(other, "SELECT count(*) FROM accounts"), ACCOUNTS);
        transfer(&writer, number);
        assert!(!checkpoint(&checkpointer, "TRUNCATE"), "{number}: a reader still needs the earlier snapshot");
        one.execute_batch("COMMIT").unwrap();
    }
}

#[test]
fn the_lock_of_a_closed_connection_passes_to_its_user() {
    let db = bank();
    let (writer, first, second) = (db.writer(), db.reader(), db.reader());
    let checkpointer = checkpointer(&db);
    transfer(&writer, 1);
    // The first connection has taken the lock; the second uses it too.
    assert_eq!(number(&first, "SELECT sum(money) FROM accounts"), ACCOUNTS);
    second.execute_batch("BEGIN").unwrap();
    assert_eq!(number(&second, "SELECT sum(money) FROM accounts"), ACCOUNTS);
    drop(first);
    transfer(&writer, 2);
    let outside = Connection::open(db.path()).unwrap();
    outside.busy_timeout(Duration::ZERO).unwrap();
    assert!(!checkpoint(&outside, "RESTART") && !checkpoint(&checkpointer, "RESTART"));
    assert_eq!(number(&second, "SELECT sum(money) FROM accounts"), ACCOUNTS);
    second.execute_batch("COMMIT").unwrap();
    assert!(checkpoint(&checkpointer, "RESTART"));
}
