//! Queries that would run, grow or recurse without bound, on a calling thread with a small stack.

use std::thread;
use std::time::Instant as Clock;

use quorate_model::FailureKind;

use super::*;
use crate::hostile;

const STACK_BYTES: usize = 512 << 10;

fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap();
}

fn limits(timeout: Duration) -> ReadLimits {
    ReadLimits { timeout, ..ReadLimits::default() }
}

#[test]
fn functions_end_soon() {
    let fixture = fixture();
    on_a_small_stack(move || {
        for (sql, reason) in hostile::FUNCTIONS {
            let begun = Clock::now();
            let done = fixture.try_query(sql, &ReadLimits::default());
            assert!(begun.elapsed() < PATIENCE, "{sql}: {:?}", begun.elapsed());
            match (done, reason) {
                (Err(error), Some(reason)) => assert!(error.to_string().contains(reason), "{sql}: {error}"),
                (done, reason) => assert_eq!((done.is_ok(), reason), (true, None), "{sql}"),
            }
        }
        fixture.assert_usable();
    });
}

#[test]
fn a_timeout_works_inside_a_function() {
    let fixture = fixture();
    // In one step of SQLite, comparisons take longer than this.
    let sql =
        "SELECT name LIKE '%' || printf('%.*c', 25000, 'a') || 'b' FROM (SELECT printf('%.*c', 3000000, 'a') AS name)";
    let done = fixture.try_query(sql, &limits(Duration::from_millis(20)));
    assert!(matches!(done, Err(ReadError::Timeout(_))), "{done:?}");
    fixture.assert_usable();
}

#[test]
fn a_timeout_works_inside_a_search_for_many_words() {
    let fixture = fixture();
    fixture.writer.execute_batch("CREATE VIRTUAL TABLE f USING fts5(body)").unwrap();
    fixture.writer.execute("INSERT INTO f VALUES (?1)", ["a ".repeat(1_000_000)]).unwrap();
    // One step of SQLite reads the places of the word once for each term, which takes a fifth of a second.
    let sql = format!("SELECT count(*) FROM f WHERE f MATCH '{}'", "a ".repeat(300));
    let done = fixture.try_query(&sql, &limits(Duration::from_millis(5)));
    assert!(matches!(done, Err(ReadError::Timeout(_))), "{done:?}");
    fixture.assert_usable();
}

#[test]
fn a_near_query_with_too_many_terms_is_refused() {
    let fixture = fixture();
    fixture.writer.execute_batch("CREATE VIRTUAL TABLE f USING fts5(body)").unwrap();
    fixture.writer.execute("INSERT INTO f VALUES (?1)", ["a ".repeat(1000)]).unwrap();
    let near = |count: usize| format!("NEAR({}, 32767)", "a ".repeat(count));
    let is_refused = |done: Result<Rows, ReadError>| {
        done.is_err_and(|error| matches!(error, ReadError::Failed(failure) if failure.kind == FailureKind::TooBig))
    };
    let query = |sql: &str, near: String| {
        let query = Statement { params: vec![Value::Text(near)], ..statement(sql) };
        fixture.readers.query_blocking(&query, &ReadLimits::default())
    };
    assert!(is_refused(fixture.try_query(&format!("SELECT 1 FROM f('{}')", near(32767)), &ReadLimits::default())));
    for sql in ["SELECT 1 FROM f WHERE f MATCH ?", "SELECT 1 FROM f WHERE f = ?", "SELECT 1 FROM f(?)"] {
        assert!(is_refused(query(sql, near(32767))), "{sql}");
        assert_eq!(query(sql, near(32)).unwrap().one::<i64>().unwrap(), 1, "{sql}");
    }
    fixture.assert_usable();
}

#[test]
fn a_query_that_takes_long_to_prepare_is_refused() {
    let fixture = fixture_with(ReaderOptions::default());
    let begun = Clock::now();
    let done = fixture.try_query(&hostile::doubling(), &ReadLimits::default());
    // On a slow machine its time limit may end it first.
    let is_refused = matches!(&done, Err(ReadError::Failed(failure)) if failure.message.contains("for too long"));
    assert!(is_refused || matches!(done, Err(ReadError::Timeout(_))), "{done:?}");
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    fixture.assert_usable();
}

#[test]
fn deep_queries_fit_a_small_stack() {
    let fixture = fixture_with(ReaderOptions::default());
    let schema: String = (1..1100).map(|n| format!("CREATE VIEW v{n} AS SELECT id FROM v{};", n - 1)).collect();
    fixture.writer.execute_batch(&format!("BEGIN; CREATE VIEW v0 AS SELECT id FROM t; {schema} COMMIT")).unwrap();
    let columns: String = (1..=500).map(|n| format!(", c{n} AS (c{} + 1)", n - 1)).collect();
    fixture.writer.execute_batch(&format!("CREATE TABLE g (c0{columns})")).unwrap();
    on_a_small_stack(move || {
        let views = [300, 900, 1099].map(|depth| format!("SELECT * FROM v{depth}"));
        for sql in hostile::deep().into_iter().chain(views).chain(["SELECT c500 FROM g".to_owned()]) {
            // It may succeed or fail, but must not end the process.
            let _ = fixture.try_query(&sql, &ReadLimits::default());
        }
        fixture.assert_usable();
    });
}
