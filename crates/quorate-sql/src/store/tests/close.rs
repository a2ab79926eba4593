//! A store closes soon, whatever is running, and an interrupted statement has no outcome.

use super::*;

/// The time limit for closing. It is shorter than the statements that are running, and long for a slow disk.
const SOON: Duration = Duration::from_secs(20);

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";

/// An entry that would run for minutes.
fn endless(index: u64) -> Entry {
    let sql = format!("INSERT INTO t (v) {ENDLESS}");
    let commands =
        vec![SqlCommand::Statement(Statement { sql: sql.into(), params: Vec::new(), names: Vec::new() }).into()];
    let proposal = Proposal { budget: quorate_model::limits::BUDGET_MAX, ..Proposal::new(None, commands) };
    let bytes = codec::encode_proposal(&proposal).unwrap();
    Entry { payload: Payload::Proposal(Stamp { now: 1, seed: 1 }, bytes), ..insert(index, 0) }
}

#[test]
fn closing_interrupts_long_writes_and_reads() {
    let home = home();
    let readers = ReaderOptions { transaction: PATIENCE, ..ReaderOptions::default() };
    let store = open(&home.dir, StoreOptions { readers, ..options() });
    apply(&store, vec![create_table(), insert(2, 10)]).unwrap();
    let limits = ReadLimits::default();
    let readers = store.readers().clone();
    let read = std::thread::spawn(move || {
        let statement = Statement { sql: ENDLESS.to_owned().into(), ..Statement::default() };
        readers.query_blocking(&statement, &limits)
    });
    let writing = send(&store, vec![insert(3, 10), endless(4), insert(5, 10)]);
    until("the writer has begun", || store.shared().writer_lock.is_locked());
    let begun = StdInstant::now();
    close(&store);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(writing.recv_timeout(PATIENCE).unwrap(), Err(StoreFault::Closed));
    assert_eq!(read.join().unwrap(), Err(ReadError::Fault(StoreFault::Closed)));
    assert_eq!(store.fault(), None);
    drop(store);
    let store = open(&home.dir, options());
    // An entry before the long one has a transaction of its own if the machine stalls after it.
    let applied = store.applied().index();
    assert!([2, 3].contains(&applied), "{applied}");
    assert_eq!(rows(&store).cast_unsigned(), applied - 1);
    assert_eq!(apply(&store, vec![insert(applied + 1, 10)]).unwrap().len(), 1);
}

#[test]
fn a_store_that_is_dropped_ends_its_write() {
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table()]).unwrap();
    let writing = send(&store, vec![endless(2)]);
    until("the writer has begun", || store.shared().writer_lock.is_locked());
    drop(store);
    assert_eq!(writing.recv_timeout(SOON).unwrap(), Err(StoreFault::Closed));
    assert_eq!(open(&home.dir, options()).applied().index(), 1);
}
