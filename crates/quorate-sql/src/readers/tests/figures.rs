//! What a read costs. This prints figures and checks nothing: `cargo test --release -p quorate-sql --lib -- --nocapture
//! figures`.

use std::hint::black_box;
use std::time::Instant as Clock;

use super::*;

const POINT: &str = "SELECT id, name FROM t WHERE id = ?";

/// Tries, of which the fastest one counts. They are short, so that some are undisturbed.
const TRIES: u32 = if cfg!(debug_assertions) { 5 } else { 500 };

/// Reads of one try.
const ROUNDS: i64 = 200;

fn nanos(what: &str, mut read: impl FnMut(i64)) -> f64 {
    let best = (0..TRIES)
        .map(|_| {
            let start = Clock::now();
            (0..ROUNDS).for_each(|number| read(number * 50 + 1));
            start.elapsed()
        })
        .min()
        .unwrap_or_default();
    let nanos = best.as_secs_f64() * 1e9 / ROUNDS as f64;
    println!("{what:<44} {nanos:>7.0} ns");
    nanos
}

#[test]
fn a_point_select_costs_little_more_than_sqlite() {
    let fixture = fixture();
    fixture.writer.execute_batch("DELETE FROM t; DROP TABLE t; DROP TABLE _quorate_applied").unwrap();
    fill(&fixture.writer, 10_000);
    let plain = connection::open_reader(&fixture.generations.current(), 8 << 20).unwrap();
    let mut kept = plain.prepare(POINT).unwrap();
    let mut point = |number: i64| {
        let row: (i64, String) = kept.query_row([number], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        black_box(row);
    };
    let alone = nanos("rusqlite, kept statement", &mut point);
    plain.execute_batch("BEGIN").unwrap();
    let within = nanos("rusqlite, kept statement, in a transaction", &mut point);
    plain.execute_batch("COMMIT").unwrap();

    let limits = ReadLimits::default();
    let mut query = Statement { params: vec![1.into()], ..statement(POINT) };
    let mut ask = |read: &dyn Fn(&Statement) -> Option<Result<Rows, ReadError>>, number: i64| {
        query.params[0] = number.into();
        black_box(read(&query).unwrap().unwrap().one::<(i64, String)>().unwrap());
    };
    assert_eq!(fixture.one::<i64>("SELECT count(*) FROM t"), 10_000);
    let ours = nanos("Readers::try_query_inline", |number| {
        ask(&|query| fixture.readers.try_query_inline(query, &limits), number);
    });
    let snapshot = fixture.readers.snapshot_blocking().unwrap();
    let ours_within = nanos("Snapshot::try_query_inline", |number| {
        ask(&|query| snapshot.try_query_inline(query, &limits), number);
    });
    nanos("Readers::snapshot_blocking and drop", |_| drop(fixture.readers.snapshot_blocking().unwrap()));
    println!("ratios: alone {:.2}, in a snapshot {:.2}", ours / alone, ours_within / within);
}
