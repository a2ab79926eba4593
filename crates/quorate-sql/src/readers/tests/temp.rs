//! Temporary files of queries: their place and their limits.

use super::*;
use crate::usage::TempOptions;

/// Sorts about 20 MB.
const SORT: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
    SELECT hex(zeroblob(500)) || i AS x FROM n ORDER BY x DESC";

fn small_cache() -> Fixture {
    fixture_with(ReaderOptions { cache_bytes: 1 << 20, readers: 2, ..patient() })
}

fn used(fixture: &Fixture) -> u64 {
    fixture.generations.temp().used()
}

/// The paths of the files that this process has open.
fn open_files() -> Vec<String> {
    let items = std::fs::read_dir("/proc/self/fd").unwrap();
    items.filter_map(|item| Some(std::fs::read_link(item.ok()?.path()).ok()?.display().to_string())).collect()
}

#[test]
fn temporary_files_lie_in_tmp_and_end_with_the_query() {
    let fixture = small_cache();
    let mut stream = fixture.readers.stream_blocking(statement(SORT), ReadLimits::default()).unwrap();
    assert!(stream.next_blocking().unwrap().is_some());
    let dir = fixture._dir.path().join("tmp").display().to_string();
    assert!(open_files().iter().any(|path| path.starts_with(&dir)), "{dir}");
    assert!(used(&fixture) > 10 << 20, "{}", used(&fixture));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "they have no names any more");
    drop(stream);
    assert_eq!(used(&fixture), 0);
    fixture.assert_usable();
}

#[test]
fn the_temporary_files_of_a_query_are_limited() {
    let fixture = small_cache();
    fixture.generations.temp().limit(TempOptions { per_query: 4 << 20, all: 1 << 30 });
    let Err(ReadError::Failed(failure)) = fixture.try_query(SORT, &ReadLimits::default()) else {
        panic!("it sorts more than it may")
    };
    let text = "more than 4194304 bytes of temporary files ('sql.temp_bytes_per_query'";
    assert!(failure.message.contains(text), "{failure}");
    assert_eq!((used(&fixture), failure.kind), (0, quorate_model::FailureKind::TooBig));
    fixture.assert_usable();
}

#[test]
fn the_temporary_files_of_all_queries_are_limited() {
    let fixture = small_cache();
    fixture.generations.temp().limit(TempOptions { per_query: 1 << 30, all: 30 << 20 });
    let mut first = fixture.readers.stream_blocking(statement(SORT), ReadLimits::default()).unwrap();
    assert!(first.next_blocking().unwrap().is_some());
    let second = fixture.try_query(SORT, &ReadLimits::default()).unwrap_err();
    assert!(matches!(second, ReadError::Overloaded(_)) && second.is_retryable(), "{second}");
    drop(first);
    assert_eq!(fixture.try_query(SORT, &ReadLimits::default()).unwrap().len(), 20000);
    assert_eq!(used(&fixture), 0);
    fixture.assert_usable();
}

#[test]
fn files_of_a_killed_process_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Generations::open(Env::real().disk(), dir.path(), 4096, Extensions::default());
    drop(open().unwrap());
    let left = dir.path().join("tmp/17");
    std::fs::write(&left, "left").unwrap();
    drop(open().unwrap());
    assert!(!left.exists());
}
