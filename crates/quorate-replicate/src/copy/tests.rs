//! A change is whole or undone, for readers in the same moment and for who opens the copy next.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "a test on real files")]

use std::cell::Cell;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const PAGE: u32 = 512;
const ORIGIN: Origin = Origin::Litestream;

/// All pages of a database, of which the last ones can't be read.
struct Pages {
    bytes: Vec<u8>,
    numbers: Vec<u32>,
    readable: Cell<usize>,
}

impl Pages {
    fn of(bytes: Vec<u8>, readable: usize) -> Self {
        let pages = u32::try_from(bytes.len()).unwrap() / PAGE;
        Self { bytes, numbers: (1..=pages).collect(), readable: Cell::new(readable) }
    }
}

impl Change for Pages {
    fn page_size(&self) -> u32 {
        PAGE
    }

    fn pages(&self) -> u32 {
        self.numbers.last().copied().unwrap()
    }

    fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    fn read(&self, number: u32) -> Result<Vec<u8>, ReplicateError> {
        let left = self.readable.get().checked_sub(1).ok_or(ReplicateError::Closed)?;
        self.readable.set(left);
        let at = (number as usize - 1) * PAGE as usize;
        Ok(self.bytes.get(at..at + PAGE as usize).unwrap().to_vec())
    }
}

/// A database with so many rows, each of which needs a page and more.
fn database(rows: u32) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("source");
    let source = Connection::open(&path).unwrap();
    source.execute_batch(&format!("PRAGMA page_size = {PAGE}; CREATE TABLE t (v, filling)")).unwrap();
    for row in 0..rows {
        source.execute("INSERT INTO t VALUES (?1, randomblob(600))", [row]).unwrap();
    }
    drop(source);
    std::fs::read(path).unwrap()
}

fn position(txid: u64) -> Position {
    Position { generation: 1, txid }
}

/// Returns the rows that a program finds which opens the copy, or else the error.
fn rows(path: &Path, flags: OpenFlags) -> rusqlite::Result<u32> {
    let reader = Connection::open_with_flags(path, flags)?;
    let verdict: String = reader.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    assert_eq!(verdict, "ok");
    reader.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
}

fn copy_of(dir: &TempDir, rows: u32) -> Copy {
    let (restored, path) = (dir.path().join("restored"), dir.path().join("copy"));
    std::fs::write(&restored, database(rows)).unwrap();
    Copy::create(&Env::real(), &restored, &path, ORIGIN, position(1)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_change_that_breaks_off_is_undone_and_a_whole_one_stays(
        before in 1_u32..40, after in 1_u32..40, readable in 0_usize..60, is_read_first in any::<bool>(),
    ) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("copy");
        let mut copy = copy_of(&dir, before);
        // A reader from before, with a cache.
        let reader = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
        let count = || reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, u32>(0)).unwrap();
        prop_assert_eq!(count(), before);
        let change = Pages::of(database(after), readable);
        let is_whole = readable >= change.numbers.len();
        prop_assert_eq!(copy.apply(&change, position(2)).is_ok(), is_whole);
        let (expected, txid) = if is_whole { (after, 2) } else { (before, 1) };
        if !is_whole {
            // Who may not write can't undo it, and does not see it either.
            prop_assert!(rows(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).is_err());
        }
        if is_read_first {
            prop_assert_eq!(count(), expected);
        }
        prop_assert_eq!(copy.position(), position(txid));
        drop(copy);
        let mut copy = Copy::open(&Env::real(), &path).unwrap().unwrap();
        prop_assert_eq!(copy.position(), position(txid));
        prop_assert_eq!(count(), expected);
        prop_assert_eq!(rows(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap(), expected);
        // And it goes on.
        copy.apply(&Pages::of(database(after), usize::MAX), position(3)).unwrap();
        prop_assert_eq!((count(), copy.position()), (after, position(3)));
    }
}

#[test]
fn a_copy_that_another_program_has_changed_is_left_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("copy");
    let mut copy = copy_of(&dir, 3);
    let other = Connection::open(&path).unwrap();
    other.execute("DELETE FROM t WHERE v = 0", []).unwrap();
    let applied = copy.apply(&Pages::of(database(5), usize::MAX), position(2));
    assert!(matches!(applied, Err(ReplicateError::NoCopy)));
    drop(copy);
    assert!(matches!(Copy::open(&Env::real(), &path), Err(ReplicateError::NoCopy)));
    drop(other);
    assert_eq!(rows(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap(), 2);
}

#[test]
fn a_reader_is_waited_for_and_keeps_its_state() {
    let dir = TempDir::new().unwrap();
    let mut copy = copy_of(&dir, 3);
    let reader = Connection::open(dir.path().join("copy")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    let late = copy.apply(&Pages::of(database(5), usize::MAX), position(2)).unwrap_err();
    assert!(late.is_retryable(), "{late}");
    reader.execute_batch("COMMIT").unwrap();
    copy.apply(&Pages::of(database(5), usize::MAX), position(2)).unwrap();
    assert_eq!(rows(&dir.path().join("copy"), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap(), 5);
}

#[test]
fn a_journal_of_another_database_is_not_taken_for_that_of_a_copy() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("restored"), database(1)).unwrap();
    std::fs::write(dir.path().join("copy-journal"), "old").unwrap();
    let made = Copy::create(&Env::real(), &dir.path().join("restored"), &dir.path().join("copy"), ORIGIN, position(1));
    assert!(matches!(made, Err(ReplicateError::Companion(_))));
}
