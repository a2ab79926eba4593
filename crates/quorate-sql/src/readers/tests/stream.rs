//! Streams: every row once, in pieces of bounded size, under the same limits.

use proptest::prelude::*;

use super::*;

fn numbers(count: usize) -> Statement {
    let sql =
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT i FROM n WHERE i <= ?1";
    Statement { params: vec![i64::try_from(count).unwrap().into()], ..statement(sql) }
}

/// Takes all pieces. Returns the sizes of the pieces and the numbers in them.
fn drain(stream: &mut RowStream) -> Result<(Vec<usize>, Vec<i64>), ReadError> {
    let (mut pieces, mut found) = (Vec::new(), Vec::new());
    while let Some(rows) = stream.next_blocking()? {
        pieces.push(rows.len());
        found.extend(rows.all::<i64>().unwrap());
    }
    Ok((pieces, found))
}

#[test]
fn every_row_comes_once_in_bounded_pieces() {
    let fixture = fixture();
    let sizes = prop_oneof![0..5_usize, CHUNK_ROWS - 2..CHUNK_ROWS + 3, Just(5 * CHUNK_ROWS), 0..20_000_usize];
    proptest!(ProptestConfig::with_cases(24), |(count in sizes)| {
        let mut stream = fixture.readers.stream_blocking(numbers(count), ReadLimits::default()).unwrap();
        let (pieces, found) = drain(&mut stream).unwrap();
        prop_assert!(pieces == [0] || pieces.iter().all(|rows| (1..=CHUNK_ROWS).contains(rows)));
        prop_assert!(found.iter().copied().eq(1..=i64::try_from(count).unwrap()));
        prop_assert_eq!(stream.next_blocking(), Ok(None));
    });
    fixture.assert_usable();
}

#[test]
fn a_million_rows_take_no_more_memory_than_one_piece() {
    let fixture = fixture();
    let mut stream = fixture.readers.stream_blocking(numbers(1_000_000), ReadLimits::default()).unwrap();
    let mut sum = 0;
    while let Some(rows) = stream.next_blocking().unwrap() {
        assert!(rows.len() <= CHUNK_ROWS);
        sum += rows.all::<i64>().unwrap().iter().sum::<i64>();
    }
    assert_eq!(sum, 500_000_500_000);
}

#[test]
fn large_rows_make_pieces_of_few_rows() {
    let fixture = fixture();
    let query = statement("SELECT zeroblob(100000) FROM t");
    let mut stream = fixture.readers.stream_blocking(query, ReadLimits::default()).unwrap();
    let mut pieces = Vec::new();
    while let Some(rows) = stream.next_blocking().unwrap() {
        pieces.push(rows.len());
    }
    assert_eq!(pieces, [3, 3, 3, 1]);
}

#[test]
fn limits_are_for_the_whole_stream() {
    let fixture = fixture();
    let count = 3 * CHUNK_ROWS;
    let limited = |rows, bytes| {
        let limits = ReadLimits { rows, bytes, ..ReadLimits::default() };
        drain(&mut fixture.readers.stream_blocking(numbers(count), limits).unwrap()).map(|(_, found)| found.len())
    };
    assert_eq!(limited(count, 8 * count), Ok(count));
    assert_eq!(limited(count - 1, 8 * count), Err(ReadError::TooManyRows(count - 1)));
    assert_eq!(limited(count, 8 * count - 1), Err(ReadError::TooManyBytes(8 * count - 1)));
    fixture.assert_usable();
}

#[test]
fn ended_streams_keep_their_error_and_free_the_reader() {
    let fixture = fixture_with(ReaderOptions { readers: 1, ..patient() });
    let mut broken = fixture.readers.stream_blocking(statement("DELETE FROM t"), ReadLimits::default()).unwrap();
    for _ in 0..2 {
        assert_eq!(broken.next_blocking(), Err(ReadError::Writes));
    }
    fixture.assert_usable();
    for taken in 0..3 {
        let mut stream = fixture.readers.stream_blocking(numbers(9 * CHUNK_ROWS), ReadLimits::default()).unwrap();
        for _ in 0..taken {
            assert!(stream.next_blocking().unwrap().is_some());
        }
        drop(stream);
        fixture.assert_usable();
    }
    // The same text with other parameters starts from the beginning.
    let mut stream = fixture.readers.stream_blocking(numbers(3), ReadLimits::default()).unwrap();
    assert_eq!(drain(&mut stream).unwrap().1, [1, 2, 3]);
}

#[test]
fn a_stream_that_is_taken_too_slowly_ends() {
    let options = ReaderOptions { transaction: Duration::from_millis(20), ..ReaderOptions::default() };
    let fixture = fixture_with(options);
    let mut stream = fixture.readers.stream_blocking(numbers(9 * CHUNK_ROWS), ReadLimits::default()).unwrap();
    let first = stream.next_blocking();
    assert!(matches!(first, Ok(Some(_)) | Err(ReadError::SnapshotEnded)));
    while fixture.readers.expire() == 0 && first.is_ok() {
        std::thread::yield_now();
    }
    fixture.assert_usable();
    assert_eq!(stream.next_blocking(), Err(ReadError::SnapshotEnded));
}

#[test]
fn a_stream_shows_one_state_while_writes_go_on() {
    let fixture = fixture();
    fixture.writer.execute_batch("DELETE FROM t").unwrap();
    let rows = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i FROM n";
    fixture.writer.execute_batch(&format!("INSERT INTO t (id) {rows}")).unwrap();
    let mut stream = fixture.readers.stream_blocking(statement("SELECT id FROM t"), ReadLimits::default()).unwrap();
    let first = stream.next_blocking().unwrap().unwrap().len();
    fixture.writer.execute_batch("DELETE FROM t").unwrap();
    assert_eq!(first + drain(&mut stream).unwrap().1.len(), 5000);
    assert_eq!(fixture.one::<i64>("SELECT count(*) FROM t"), 0);
}

#[tokio::test]
async fn tasks_take_pieces_and_can_be_dropped() {
    let fixture = fixture_with(ReaderOptions { readers: 1, ..patient() });
    let env = Env::real();
    let mut stream = fixture.readers.stream(numbers(5000), ReadLimits::default()).await.unwrap();
    let mut found = 0;
    while let Some(rows) = stream.next(&env).await.unwrap() {
        found += rows.len();
    }
    assert_eq!(found, 5000);
    let limits = ReadLimits { timeout: PATIENCE, ..ReadLimits::default() };
    let mut endless = fixture.readers.stream(statement(ENDLESS), limits).await.unwrap();
    assert!(quorate_env::timeout(Duration::from_millis(10), endless.next(&env)).await.is_err());
    assert_eq!(endless.next(&env).await, Err(ReadError::Cancelled));
    drop(endless);
    let one = fixture.readers.query(&env, &statement("SELECT 1"), &ReadLimits::default()).await;
    assert_eq!(one.unwrap().one::<i64>(), Ok(1));
}
