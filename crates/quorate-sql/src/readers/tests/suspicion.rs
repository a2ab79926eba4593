//! A recheck tells damaged files from failures that only look like damage.

use std::sync::atomic::Ordering;

use rusqlite::config::DbConfig;
use rusqlite::ffi;

use super::*;

fn read(fixture: &Fixture) -> Result<Rows, ReadError> {
    fixture.try_query("SELECT sum(length(name)) FROM t", &ReadLimits::default())
}

#[test]
fn an_unparsable_schema_is_not_taken_for_damage() {
    let fixture = fixture();
    let writer = &fixture.writer;
    writer.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).unwrap();
    writer
        .execute_batch(
            "PRAGMA writable_schema = ON; CREATE VIEW v AS SELECT 1;
            UPDATE sqlite_schema SET sql = 'CREATE VIEW IF AS SELECT 1' WHERE name = 'v'; PRAGMA schema_version = 77",
        )
        .unwrap();
    let error = read(&fixture).unwrap_err();
    assert!(error.to_string().contains("malformed database schema"), "{error}");
    assert_eq!(fixture.readers.suspicions().due_in(), Some(Duration::ZERO));
    assert_eq!(fixture.readers.recheck(), None);
    assert_eq!(fixture.readers.suspicions().due_in(), None);
}

#[test]
fn a_disk_error_counts_if_it_recurs() {
    for recurs in [true, false] {
        let fixture = fixture();
        fixture.writer.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        let generation = fixture.generations.current();
        let faults = &generation.watched().faults;
        fixture.one::<i64>("SELECT 1");
        faults.main_reads.store(ffi::SQLITE_IOERR_READ, Ordering::Release);
        assert!(matches!(read(&fixture), Err(ReadError::Fault(StoreFault::Io(_)))));
        faults.main_reads.store(if recurs { ffi::SQLITE_IOERR_READ } else { 0 }, Ordering::Release);
        assert_eq!(matches!(fixture.readers.recheck(), Some(StoreFault::Io(_))), recurs);
        faults.main_reads.store(0, Ordering::Release);
        assert!(read(&fixture).is_ok());
        assert_eq!(fixture.readers.suspicions().counts().io.get(), 1);
    }
}

#[test]
fn rechecks_are_spaced() {
    let fixture = fixture();
    let generation = fixture.generations.current();
    let damaged = ReadError::Fault(StoreFault::Damaged("x".to_owned()));
    let suspicions = fixture.readers.suspicions();
    suspicions.note(&generation, &damaged, None);
    assert_eq!((suspicions.due_in(), fixture.readers.recheck()), (Some(Duration::ZERO), None));
    suspicions.note(&generation, &damaged, None);
    assert!(suspicions.due_in().is_some_and(|wait| !wait.is_zero()));
}
