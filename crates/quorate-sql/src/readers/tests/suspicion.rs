//! A second look tells damaged files from what only looks like it.

use std::sync::atomic::Ordering;

use rusqlite::config::DbConfig;
use rusqlite::ffi;

use super::*;

fn read(fixture: &Fixture) -> Result<Rows, ReadError> {
    fixture.try_query("SELECT sum(length(name)) FROM t", &ReadLimits::default())
}

#[test]
fn a_schema_that_cannot_be_parsed_is_not_taken_for_a_damaged_file() {
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
    assert_eq!(fixture.readers.look_again(), None);
    assert_eq!(fixture.readers.suspicions().due_in(), None);
}

#[test]
fn an_error_of_the_disk_counts_if_it_comes_again() {
    for comes_again in [true, false] {
        let fixture = fixture();
        fixture.writer.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        let generation = fixture.generations.current();
        let faults = &generation.watched().faults;
        fixture.one::<i64>("SELECT 1");
        faults.main_reads.store(ffi::SQLITE_IOERR_READ, Ordering::Release);
        assert!(matches!(read(&fixture), Err(ReadError::Fault(StoreFault::Io(_)))));
        faults.main_reads.store(if comes_again { ffi::SQLITE_IOERR_READ } else { 0 }, Ordering::Release);
        assert_eq!(matches!(fixture.readers.look_again(), Some(StoreFault::Io(_))), comes_again);
        faults.main_reads.store(0, Ordering::Release);
        assert!(read(&fixture).is_ok());
        assert_eq!(fixture.readers.suspicions().counts().io.get(), 1);
    }
}

#[test]
fn looks_are_spaced() {
    let fixture = fixture();
    let generation = fixture.generations.current();
    let damaged = ReadError::Fault(StoreFault::Damaged("x".to_owned()));
    let suspicions = fixture.readers.suspicions();
    suspicions.note(&generation, &damaged, None);
    assert_eq!((suspicions.due_in(), fixture.readers.look_again()), (Some(Duration::ZERO), None));
    suspicions.note(&generation, &damaged, None);
    assert!(suspicions.due_in().is_some_and(|wait| !wait.is_zero()));
}
