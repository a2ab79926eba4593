//! Limits are exact to the row, the byte and the millisecond, and readers stay usable after a query that exceeds them.

use std::thread;
use std::time::Instant as Clock;

use proptest::prelude::*;
use quorate_model::FailureKind;

use super::*;
use crate::readers::guard::{Guard, Trip};

fn one_reader() -> ReaderOptions {
    ReaderOptions { readers: 1, wait: Duration::from_millis(50), ..patient() }
}

#[test]
fn rows_are_limited_exactly() {
    let fixture = fixture();
    let limited = |rows| fixture.try_query("SELECT id FROM t", &ReadLimits { rows, ..ReadLimits::default() });
    assert_eq!(limited(10).unwrap().len(), 10);
    assert_eq!(limited(9), Err(ReadError::TooManyRows(9)));
    assert_eq!(limited(0), Err(ReadError::TooManyRows(0)));
    let none = fixture.try_query("SELECT id FROM t WHERE 0", &ReadLimits { rows: 0, ..ReadLimits::default() });
    assert!(none.unwrap().is_empty());
    fixture.assert_usable();
}

#[test]
fn bytes_are_limited_exactly() {
    let fixture = fixture();
    proptest!(ProptestConfig::with_cases(32), |(text in ".{0,40}", blob: Vec<u8>, number: i64)| {
        let bytes = text.len() + blob.len() + 8 + 8;
        let query = Statement {
            params: vec![text.into(), blob.into(), number.into(), Value::Null],
            ..statement("SELECT ?, ?, ?, ?")
        };
        let limited = |bytes| fixture.readers.query_blocking(&query, &ReadLimits { bytes, ..ReadLimits::default() });
        let rows = limited(bytes).unwrap();
        prop_assert_eq!(rows.into_values().iter().map(value_bytes).sum::<usize>(), bytes);
        prop_assert_eq!(limited(bytes - 1), Err(ReadError::TooManyBytes(bytes - 1)));
    });
    fixture.assert_usable();
}

/// Empty texts count as nothing for the limit on bytes, but each takes 40 bytes of memory.
#[test]
fn a_result_of_many_small_values_is_limited_by_memory() {
    let fixture = fixture();
    let columns = vec!["''"; 1000].join(", ");
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 900000)";
    let ended = fixture.try_query(&format!("{rows} SELECT {columns} FROM n"), &ReadLimits::default());
    assert!(matches!(&ended, Err(ReadError::Failed(failure)) if failure.kind == FailureKind::TooBig), "{ended:?}");
    fixture.assert_usable();
}

#[test]
fn a_query_that_runs_too_long_is_ended() {
    let fixture = fixture_with(one_reader());
    for timeout in [0, 1, 30].map(Duration::from_millis) {
        let start = Clock::now();
        let limits = ReadLimits { timeout, ..ReadLimits::default() };
        assert_eq!(fixture.try_query(ENDLESS, &limits), Err(ReadError::Timeout(timeout)));
        assert!(start.elapsed() >= timeout && start.elapsed() < PATIENCE);
        fixture.assert_usable();
    }
}

#[test]
fn a_query_runs_no_longer_than_a_transaction_may_last() {
    let options = ReaderOptions { transaction: Duration::from_millis(20), ..one_reader() };
    let fixture = fixture_with(options);
    let timeout = Err(ReadError::Timeout(options.transaction));
    assert_eq!(fixture.try_query(ENDLESS, &ReadLimits::default()), timeout);
    fixture.assert_usable();
}

/// The checkpointer ends what is too old, perhaps just before the query finds that its time is up.
#[test]
fn a_query_whose_time_is_up_says_so_whoever_ends_it() {
    let guard = Guard::new(Cancel::new());
    let ended = |transaction| {
        guard.arm(Allowance::new(&ReadLimits::default(), transaction)).unwrap();
        assert!(guard.end_if(|_| true) && guard.tick());
        guard.disarm().0
    };
    assert_eq!(ended(Duration::ZERO), Some(Trip::Timeout(Duration::ZERO)));
    assert_eq!(ended(PATIENCE), Some(Trip::TooOld), "it had time left, and its snapshot was in the way");
}

#[test]
fn a_query_is_cancelled_before_and_while_it_runs() {
    let fixture = fixture_with(one_reader());
    let cancel = Cancel::new();
    let limits = ReadLimits { cancel: Some(cancel.clone()), timeout: PATIENCE, ..ReadLimits::default() };
    let readers = fixture.readers.clone();
    let running = thread::spawn({
        let limits = limits.clone();
        move || readers.query_blocking(&statement(ENDLESS), &limits)
    });
    while fixture.readers.pool().permits.available_permits() > 0 {
        thread::yield_now();
    }
    cancel.cancel();
    assert_eq!(running.join().unwrap(), Err(ReadError::Cancelled));
    assert_eq!(fixture.try_query("SELECT 1", &limits), Err(ReadError::Cancelled));
    fixture.assert_usable();
}

#[test]
fn a_first_try_ends_soon_and_can_be_repeated() {
    let fixture = fixture_with(one_reader());
    fixture.assert_usable();
    let limits = ReadLimits { timeout: Duration::from_millis(100), ..ReadLimits::default() };
    assert_eq!(fixture.readers.try_query_inline(&statement(ENDLESS), &limits), None);
    fixture.assert_usable();
    let sum = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT sum(i) FROM n";
    assert_eq!(fixture.readers.try_query_inline(&statement(sum), &ReadLimits::default()), None);
    assert_eq!(fixture.one::<i64>(sum), 5_000_050_000);
    let short = fixture.readers.try_query_inline(&statement("SELECT count(*) FROM t"), &ReadLimits::default());
    assert_eq!(short.unwrap().unwrap().one::<i64>(), Ok(10));
}

#[tokio::test]
async fn dropping_the_future_ends_its_query() {
    let fixture = fixture_with(ReaderOptions { wait: PATIENCE, ..one_reader() });
    let env = Env::real();
    let limits = ReadLimits { timeout: PATIENCE, ..ReadLimits::default() };
    let (endless, one) = (statement(ENDLESS), statement("SELECT 1"));
    let start = Clock::now();
    let query = fixture.readers.query(&env, &endless, &limits);
    assert!(quorate_env::timeout(Duration::from_millis(20), query).await.is_err());
    assert_eq!(fixture.readers.query(&env, &one, &limits).await.unwrap().one::<i64>(), Ok(1));
    assert!(start.elapsed() < PATIENCE / 2);
}

#[tokio::test]
async fn waiting_for_a_reader_is_bounded() {
    let fixture = fixture_with(one_reader());
    let env = Env::real();
    let held = fixture.readers.snapshot(&env, PATIENCE).await.unwrap();
    let (one, limits) = (statement("SELECT 1"), ReadLimits::default());
    assert_eq!(fixture.readers.query(&env, &one, &limits).await, Err(ReadError::Busy));
    assert_eq!(fixture.readers.query_blocking(&one, &limits), Err(ReadError::Busy));
    assert!(ReadError::Busy.is_retryable());
    drop(held);
    assert!(fixture.readers.query(&env, &one, &limits).await.is_ok());
}

#[test]
fn a_waiting_query_gets_a_returned_reader() {
    let fixture = fixture_with(ReaderOptions { wait: PATIENCE, ..one_reader() });
    let held = fixture.readers.snapshot_blocking().unwrap();
    let readers = fixture.readers.clone();
    let waiting = thread::spawn(move || readers.query_blocking(&statement("SELECT 1"), &ReadLimits::default()));
    drop(held);
    assert!(waiting.join().unwrap().is_ok());
}
