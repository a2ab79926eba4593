//! Damage that a reader finds stops the store, like damage that the writer finds.

use std::process::Command as Process;

use super::*;

/// Overwrites one page of rows of the database from another process: closing the file in this process would drop
/// SQLite's locks.
fn overwrite_a_page(store: &SqlStore) {
    let path = store.generation().path();
    let bytes = std::fs::metadata(&path).unwrap().len();
    let page = bytes / 4096 / 2;
    let junk = path.with_file_name("junk");
    std::fs::write(&junk, [0xa5; 4096]).unwrap();
    let args = [format!("if={}", junk.display()), format!("of={}", path.display()), format!("seek={page}")];
    let done = Process::new("dd").args(args).args(["bs=4096", "count=1", "conv=notrunc"]).output().unwrap();
    assert!(done.status.success());
}

/// A store with many rows, all of them in its main file.
fn filled(home: &Home) -> SqlStore {
    let store = open(&home.dir, StoreOptions { idle_after: Duration::from_millis(20), ..options() });
    apply(&store, vec![create_table()]).unwrap();
    apply(&store, (2..=500).map(|index| insert(index, 900)).collect()).unwrap();
    until("the -wal is emptied", || store.sizes().wal_file == 0);
    store
}

fn read(store: &SqlStore, sql: &str) -> Result<crate::query::Rows, ReadError> {
    let statement = Statement { sql: sql.to_owned().into(), ..Statement::default() };
    store.readers().query_blocking(&statement, &ReadLimits::default())
}

#[test]
fn damage_that_a_reader_finds_stops_the_store() {
    let home = home();
    let store = filled(&home);
    overwrite_a_page(&store);
    assert!(read(&store, "SELECT 1").is_ok() && store.fault().is_none());
    let error = read(&store, "SELECT sum(length(v)) FROM t").unwrap_err();
    assert!(matches!(error, ReadError::Fault(StoreFault::Damaged(_))), "{error}");
    until("the fault is known", || matches!(store.fault(), Some(StoreFault::Damaged(_))));
    assert!(store.metrics().read_faults.damaged.get() > 0);
    assert!(matches!(apply(&store, vec![insert(501, 1)]), Err(StoreFault::Damaged(_))));
    drop(store);
    let again = try_open(&home.dir, options()).unwrap_err();
    assert!(again.is_damage(), "{again}");
}

#[test]
fn streams_and_snapshots_find_damage_too() {
    let home = home();
    let store = filled(&home);
    overwrite_a_page(&store);
    let snapshot = store.readers().snapshot_blocking().unwrap();
    let all = Statement { sql: "SELECT v FROM t".into(), ..Statement::default() };
    let mut stream = snapshot.stream(all, ReadLimits::default());
    let error = loop {
        match stream.next_blocking() {
            Ok(rows) => assert!(rows.is_some(), "the stream ended without an error"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ReadError::Fault(StoreFault::Damaged(_))), "{error}");
    until("the fault is known", || matches!(store.fault(), Some(StoreFault::Damaged(_))));
}

#[test]
fn a_verification_finds_damage_too() {
    let home = home();
    let store = filled(&home);
    overwrite_a_page(&store);
    apply(&store, vec![verify(501)]).unwrap();
    until("the fault is known", || matches!(store.fault(), Some(StoreFault::Damaged(_))));
    assert!(store.metrics().read_faults.damaged.get() > 0);
}
