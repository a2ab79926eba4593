//! The store as consensus uses it: it applies entries, is killed, runs out of space, and is checkpointed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant as StdInstant};

use quorate_env::Rng;
use quorate_model::{
    Appointment, Command, CommandResult, ControlCommand, Epoch, GroupId, LogId, NodeId, Outcome, Payload, Proposal,
    SqlCommand, SqlReply, Stamp, Statement, StoreIdentity, Value, codec,
};
use rusqlite::ffi;

use super::*;
use crate::readers::{ReadError, ReadLimits, ReaderOptions};

mod close;
pub(crate) mod copies;
mod damage;
mod temp;

/// The time limit of every wait in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const IDENTITY: StoreIdentity = StoreIdentity { cluster: 7, epoch: Epoch(1), group: GroupId::MAIN };

pub(crate) fn options() -> StoreOptions {
    StoreOptions::new(IDENTITY)
}

/// Opens a store after the workers of a previously dropped one have ended.
pub(crate) fn open(dir: &Path, options: StoreOptions) -> SqlStore {
    try_open(dir, options).unwrap()
}

pub(crate) fn try_open(dir: &Path, options: StoreOptions) -> Result<SqlStore, OpenError> {
    let mut result = None;
    until("the directory is free", || {
        let opened = SqlStore::open(&Env::real(), dir, options.clone());
        let is_in_use = matches!(opened, Err(OpenError::InUse(_)));
        result = Some(opened);
        !is_in_use
    });
    result.unwrap()
}

/// An entry that runs one statement.
pub(crate) fn entry(index: u64, sql: &str, params: Vec<Value>) -> Entry {
    let statement = Statement { sql: sql.to_owned().into(), params, names: Vec::new() };
    entry_at(index, 1_700_000_000_000_000_000 + index, SqlCommand::Statement(statement.into()))
}

/// An entry that runs one command at a time.
pub(crate) fn entry_at(index: u64, now: u64, command: impl Into<Command>) -> Entry {
    let bytes = codec::encode_proposal(&Proposal::new(None, vec![command.into()])).unwrap();
    let log_id = LogId { term: 1, node: NodeId(1), index };
    Entry { log_id, payload: Payload::Proposal(Stamp { now, seed: index }, bytes) }
}

/// The first entry, which creates the table of these tests.
pub(crate) fn create_table() -> Entry {
    entry(1, "CREATE TABLE t (i INTEGER PRIMARY KEY, v BLOB)", Vec::new())
}

/// An entry that writes its index and `bytes` bytes.
pub(crate) fn insert(index: u64, bytes: usize) -> Entry {
    let blob = vec![u8::try_from(index % 251).unwrap(); bytes];
    entry(index, "INSERT INTO t VALUES (?1, ?2)", vec![Value::Integer(i64::try_from(index).unwrap()), blob.into()])
}

/// An entry that appoints the first archiver.
pub(crate) fn appoint(index: u64, node: u64) -> Entry {
    let appointment = Appointment { node: Some(NodeId(node)), expected: 0 };
    let proposal = Proposal::new(None, vec![ControlCommand::Appoint(appointment).into()]);
    let payload = Payload::Proposal(Stamp::default(), codec::encode_proposal(&proposal).unwrap());
    Entry { payload, ..insert(index, 0) }
}

pub(crate) type Answer = Result<Vec<Option<Outcome>>, StoreFault>;

pub(crate) fn send(store: &SqlStore, entries: Vec<Entry>) -> mpsc::Receiver<Answer> {
    let (sender, receiver) = mpsc::channel();
    let (count, mut all) = (entries.len(), Vec::new());
    let on_applied = move |part: Answer| match part {
        Ok(part) => {
            all.extend(part);
            if all.len() == count {
                sender.send(Ok(std::mem::take(&mut all))).unwrap_or(());
            }
        }
        Err(fault) => sender.send(Err(fault)).unwrap_or(()),
    };
    store.apply(entries, true, Box::new(on_applied));
    receiver
}

pub(crate) fn apply(store: &SqlStore, entries: Vec<Entry>) -> Answer {
    send(store, entries).recv_timeout(PATIENCE).expect("answered")
}

/// Polls until a condition holds.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = StdInstant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Copies the files that a killed process would leave. The store must be idle.
pub(crate) fn killed_copy(dir: &Path, name: &str) -> PathBuf {
    let copy = dir.with_file_name(format!("{}-{name}", dir.file_name().unwrap().to_str().unwrap()));
    copy_dir(dir, &copy);
    copy
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let target = to.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            copy_dir(&item.path(), &target);
        } else if !item.file_name().to_str().unwrap().ends_with("-shm") {
            // That `fs::copy` drops SQLite's locks does not matter, because the store is about to be dropped.
            std::fs::copy(item.path(), target).unwrap();
        }
    }
}

pub(crate) fn rows(store: &SqlStore) -> i64 {
    let generation = store.shared().generations.current();
    let reader = crate::connection::open_reader(&generation, 1 << 20).unwrap();
    reader.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

/// An entry that asks for a verification.
fn verify(index: u64) -> Entry {
    let bytes = codec::encode_proposal(&Proposal::new(None, vec![ControlCommand::Verify.into()])).unwrap();
    Entry { payload: Payload::Proposal(Stamp::default(), bytes), ..insert(index, 0) }
}

fn verification(store: &SqlStore, index: u64) -> Option<Verification> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { store.verification(index, quorate_env::Instant::now() + PATIENCE).await })
}

#[test]
fn a_verification_sees_the_state_after_its_entry() {
    let entries = |upto: u64| -> Vec<Entry> {
        let kind = |index| if index % 10 == 0 { verify(index) } else { insert(index, 100) };
        [create_table()].into_iter().chain((2..=upto).map(kind)).collect()
    };
    for index in [10, 30] {
        let home = home();
        let stopped = open(&home.dir, options());
        apply(&stopped, entries(index)).unwrap();
        let generation = stopped.shared().generations.current();
        let reader = crate::connection::open_reader(&generation, 1 << 20).unwrap();
        let expected = crate::logical_hash::by_table(&reader).unwrap().into_iter().collect();
        for batch_entries_max in [1, 7, 4096] {
            let home = self::home();
            let store = open(&home.dir, StoreOptions { batch_entries_max, ..options() });
            assert_eq!(apply(&store, entries(35)).unwrap().len(), 35);
            match verification(&store, index) {
                Some(Verification::Done(hashes)) => assert_eq!(*hashes, expected, "batches of {batch_entries_max}"),
                // It was dropped when the next verification began.
                other => assert!(other.is_none() && index < 30, "{other:?}"),
            }
            assert_eq!(verification(&store, 11), None);
            assert_eq!(rows(&store), 35 - 1 - 3);
        }
    }
}

fn close(store: &SqlStore) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.close());
}

/// A directory whose parent is temporary too, for copies next to it.
pub(crate) struct Home {
    _temp: tempfile::TempDir,
    pub(crate) dir: PathBuf,
}

pub(crate) fn home() -> Home {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("node");
    Home { _temp: temp, dir }
}

#[test]
fn applied_entries_survive_a_kill_and_a_close() {
    let home = home();
    let store = open(&home.dir, options());
    assert_eq!(store.applied(), Applied::default());
    apply(&store, vec![create_table()]).unwrap();
    let outcomes = apply(&store, (2..=101).map(|index| insert(index, 10)).collect()).unwrap();
    assert_eq!(outcomes.len(), 100);
    let killed = killed_copy(&home.dir, "killed");
    close(&store);
    assert_eq!(store.sizes().wal_file, 0);
    assert_eq!(apply(&store, vec![insert(102, 1)]), Err(StoreFault::Closed));
    drop(store);
    for dir in [&killed, &home.dir] {
        let store = open(dir, options());
        assert_eq!((store.applied().index(), rows(&store)), (101, 100));
        apply(&store, vec![insert(102, 10)]).unwrap();
        assert_eq!(rows(&store), 101);
    }
}

#[test]
fn repeated_entries_are_answered_but_not_applied() {
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table()]).unwrap();
    apply(&store, (2..=5).map(|index| insert(index, 1)).collect()).unwrap();
    let outcomes = apply(&store, (3..=8).map(|index| insert(index, 1)).collect()).unwrap();
    assert_eq!(outcomes[..3], vec![None; 3]);
    let new = outcomes[3].as_ref().unwrap().as_ref().unwrap();
    assert!(matches!(new.results[..], [CommandResult::Sql(SqlReply::Statement(_))]));
    assert_eq!((rows(&store), store.applied().index()), (7, 8));
    // The store never skips a gap in the log.
    assert!(matches!(apply(&store, vec![insert(10, 1)]), Err(StoreFault::Io(_))));
    assert_eq!(store.applied().index(), 8);
}

#[test]
fn every_job_gets_the_outcomes_of_its_own_entries() {
    let home = home();
    let options = StoreOptions { batch_entries_max: 7, shuffle_batches: Some(Rng::from_seed(3)), ..options() };
    let store = open(&home.dir, options);
    let mut next = 2;
    let mut jobs = vec![(1, send(&store, vec![create_table()]))];
    for job in 0..60_u64 {
        let count = job * 7 % 13;
        jobs.push((count, send(&store, (next..next + count).map(|index| insert(index, 1)).collect())));
        next += count;
    }
    for (count, receiver) in jobs {
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap().unwrap().len() as u64, count);
    }
    assert_eq!(store.applied().index(), next - 1);
    assert_eq!(store.sizes().queued, 0);
}

#[test]
fn the_writer_waits_while_the_disk_is_full() {
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table()]).unwrap();
    let generation = store.shared().generations.current();
    generation.watched().faults.wal_writes.store(ffi::SQLITE_FULL, Ordering::Release);
    let waiting = send(&store, vec![insert(2, 100)]);
    until("the fault is seen", || matches!(store.fault(), Some(StoreFault::Full(_))));
    assert!(waiting.try_recv().is_err());
    assert_eq!(rows(&store), 0);
    generation.watched().faults.wal_writes.store(0, Ordering::Release);
    assert_eq!(waiting.recv_timeout(PATIENCE).unwrap().unwrap().len(), 1);
    until("the fault goes", || store.fault().is_none());
    assert_eq!(rows(&store), 1);
}

#[test]
fn an_entry_can_be_retried_until_the_store_is_condemned() {
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table()]).unwrap();
    let generation = store.shared().generations.current();
    generation.watched().faults.wal_writes.store(ffi::SQLITE_IOERR_WRITE, Ordering::Release);
    let fault = apply(&store, vec![insert(2, 100), insert(3, 100)]).unwrap_err();
    assert!(matches!(fault, StoreFault::Io(_)), "{fault}");
    assert_eq!((store.applied().index(), store.fault()), (1, None));
    generation.watched().faults.wal_writes.store(0, Ordering::Release);
    assert_eq!(apply(&store, vec![insert(2, 100)]).unwrap().len(), 1);

    store.condemn(&fault);
    assert_eq!(apply(&store, vec![insert(3, 100)]).unwrap_err(), fault);
    assert_eq!((store.applied().index(), store.fault()), (2, Some(fault)));
}

#[test]
fn the_data_of_another_cluster_is_not_opened() {
    let home = home();
    drop(open(&home.dir, options()));
    let other = StoreOptions { identity: StoreIdentity { cluster: 8, ..IDENTITY }, ..options() };
    let error = try_open(&home.dir, other).unwrap_err();
    assert!(matches!(error, OpenError::Identity { .. }), "{error}");
}

#[test]
fn a_directory_is_opened_by_one_store_at_a_time() {
    let home = home();
    let store = open(&home.dir, options());
    let error = SqlStore::open(&Env::real(), &home.dir, options()).unwrap_err();
    assert!(matches!(error, OpenError::InUse(_)), "{error}");
    drop(store);
    open(&home.dir, options());
}

#[test]
fn checkpoints_bound_the_wal_and_make_entries_durable() {
    const MIB: u64 = 1 << 20;
    let home = home();
    let store = open(&home.dir, StoreOptions { checkpoint_bytes: MIB, ..options() });
    apply(&store, vec![create_table()]).unwrap();
    // A `-wal` that is as long as after the last checkpoint needs none, so each job is longer than the one before.
    let (mut last, mut count) = (1, 200);
    while store.sizes().database < 20 * MIB {
        // The first sync of a checkpoint makes entries durable. What is written until its end makes the `-wal` longer.
        let before = store.shared().metrics.checkpoints.count();
        apply(&store, (last + 1..=last + count).map(|index| insert(index, 10_000)).collect()).unwrap();
        let is_over = || store.shared().metrics.checkpoints.count() > before;
        until("checkpointed", || store.durable().index() > last && is_over());
        (last, count) = (last + count, count + 1);
    }
    let sizes = store.sizes();
    assert!(sizes.wal_file < 12 * MIB, "{sizes:?}");
}

/// However long a snapshot may live, the `-wal` that it keeps from being checkpointed is bounded.
#[test]
fn an_old_snapshot_ends_when_the_wal_grows_too_long() {
    let home = home();
    let readers = ReaderOptions { transaction: Duration::ZERO, ..ReaderOptions::default() };
    let limits = StoreOptions { checkpoint_bytes: 64 << 10, hold_bytes_max: 256 << 10, readers, ..options() };
    let store = open(&home.dir, limits);
    apply(&store, vec![create_table()]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let snapshot = runtime.block_on(store.readers().snapshot(&Env::real(), PATIENCE)).unwrap();
    let count = Statement { sql: "SELECT count(*) FROM t".into(), ..Statement::default() };
    let read = || snapshot.query_blocking(&count, &ReadLimits::default());
    assert_eq!(read().unwrap().one::<i64>(), Ok(0));
    let (mut index, mut largest) = (1, 0);
    until("the end of the snapshot", || {
        index += 1;
        apply(&store, vec![insert(index, 4096)]).unwrap();
        largest = store.sizes().wal.max(largest);
        read() == Err(ReadError::SnapshotEnded)
    });
    assert!(largest >= 256 << 10, "the snapshot ended early: {largest}");
}

#[test]
fn an_idle_store_empties_its_wal_and_is_durable() {
    let home = home();
    let store = open(&home.dir, StoreOptions { idle_after: Duration::from_millis(20), ..options() });
    apply(&store, vec![create_table(), insert(2, 1000)]).unwrap();
    until("idle", || store.sizes().wal_file == 0 && store.durable().index() == 2);
    apply(&store, vec![insert(3, 1000)]).unwrap();
    assert_eq!(rows(&store), 2);
}

#[test]
fn a_slowed_writer_applies_every_entry() {
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table()]).unwrap();
    let slowed = store.shared().writer_lock.slow_writer();
    for expected in [2, 4, 8, 8] {
        slowed.increase();
        assert_eq!(store.shared().writer_lock.slowness(), expected);
    }
    for index in 2..50 {
        apply(&store, vec![insert(index, 10)]).unwrap();
    }
    assert_eq!(rows(&store), 48);
    drop(slowed);
    assert!(!store.is_slowed());
}

#[test]
fn a_checkpoint_keeps_up_with_a_writer_that_never_rests() {
    let home = home();
    let store = open(&home.dir, StoreOptions { checkpoint_bytes: 256 << 10, ..options() });
    apply(&store, vec![create_table()]).unwrap();
    let mut index = 2;
    until("there were three checkpoints", || {
        apply(&store, (index..index + 64).map(|index| insert(index, 2000)).collect()).unwrap();
        index += 64;
        // A disk that takes a second for a sync lets it grow by some 20 MiB; without rests it grows for ever.
        assert!(store.sizes().wal_file < 64 << 20, "the -wal grows");
        store.shared().metrics.checkpoints.count() >= 3
    });
    until("the writer is free again", || !store.is_slowed());
}

#[test]
fn dropping_the_handle_rolls_a_dry_run_back() {
    let home = home();
    let store = open(&home.dir, options());
    apply(&store, vec![create_table(), insert(2, 10)]).unwrap();
    let is_open = || {
        store
            .shared()
            .writer_lock
            .visit(|core| !core.as_mut().unwrap().applier().machine().connection().is_autocommit())
    };
    let dry_run = store.dry_run().unwrap();
    let command = |sql: &'static str| {
        let statement = Statement { sql: sql.into(), ..Statement::default() };
        quorate_model::Command::from(SqlCommand::Statement(statement))
    };
    let result = |ran: quorate_apply::DryRunResult| match ran.result {
        CommandResult::Sql(SqlReply::Statement(result)) => result,
        other => panic!("{other:?}"),
    };
    let deleted = result(dry_run.run(Stamp::default(), command("DELETE FROM t")).unwrap());
    assert_eq!((dry_run.index(), deleted.changes, is_open(), rows(&store)), (2, 1, true, 1));
    drop(dry_run);
    until("it is rolled back", || !is_open());
    // A later dry run is not rolled back in its place.
    let dry_run = store.dry_run().unwrap();
    store.shared().writer.wake();
    let count = dry_run.run(Stamp::default(), command("SELECT count(*) FROM t")).unwrap();
    assert_eq!(result(count).rows, [[Value::Integer(1)]]);
}
