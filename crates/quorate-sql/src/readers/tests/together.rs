//! Readers run in parallel with a writer: every read sees whole transactions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

/// The number of transactions of the writer.
const ROUNDS: u64 = 300;

/// The sum of all balances, which every transaction keeps.
const SUM: i64 = 1000;

#[test]
fn reads_see_whole_transactions() {
    let fixture = fixture();
    fixture.writer.execute_batch("CREATE TABLE account (id INTEGER PRIMARY KEY, balance, round)").unwrap();
    fixture.writer.execute("INSERT INTO account VALUES (1, ?1, 1), (2, 0, 1)", [SUM]).unwrap();
    let done = AtomicBool::new(false);
    let readers = &fixture.readers;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    last = check_query(readers).max(last);
                    last = check_snapshot(readers, last);
                }
            });
        }
        for round in 2..ROUNDS {
            fixture.writer.execute_batch("BEGIN").unwrap();
            let moved = "UPDATE account SET balance = balance + iif(id = 1, -1, 1), round = ?1";
            fixture.writer.execute(moved, [round.cast_signed()]).unwrap();
            set_applied(&fixture.writer, round);
            fixture.writer.execute_batch("COMMIT").unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    fixture.assert_usable();
}

/// Checks in one query that the sum holds. Returns its round.
fn check_query(readers: &Readers) -> u64 {
    let query = statement("SELECT sum(balance), min(round), max(round) FROM account");
    let rows = readers.query_blocking(&query, &ReadLimits::default()).unwrap();
    let (sum, first, last) = rows.one::<(i64, u64, u64)>().unwrap();
    assert_eq!((sum, first), (SUM, last));
    first
}

/// Checks in several queries of a snapshot that they agree with each other and with its index, which never decreases.
fn check_snapshot(readers: &Readers, last: u64) -> u64 {
    let snapshot = readers.snapshot_blocking().unwrap();
    let one =
        |sql: &str| -> i64 { snapshot.query_blocking(&statement(sql), &ReadLimits::default()).unwrap().one().unwrap() };
    let sum = one("SELECT balance FROM account WHERE id = 1") + one("SELECT balance FROM account WHERE id = 2");
    assert_eq!(sum, SUM);
    assert_eq!(one("SELECT max(round) FROM account").cast_unsigned(), snapshot.applied_index());
    assert!(snapshot.applied_index() >= last);
    snapshot.applied_index()
}
