//! A writer holds frames back. Nevertheless all connections see each commit as a whole, and so does a program that
//! opens copies of the files after a commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::*;

/// A step of a writer: keys are few, values have up to three pages.
#[derive(Clone, Debug)]
enum Step {
    Put(i64, i64, char),
    Delete(i64),
    Read,
    Savepoint,
    /// Rolls back to the last savepoint, or the whole transaction.
    Undo,
    Commit,
    Checkpoint,
}

type Rows = BTreeMap<i64, String>;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..60_i64, 0..12_000_i64, prop::char::range('a', 'z')).prop_map(|(key, len, c)| Step::Put(key, len, c)),
        2 => (0..60_i64).prop_map(Step::Delete),
        2 => Just(Step::Read),
        1 => Just(Step::Savepoint),
        1 => Just(Step::Undo),
        3 => Just(Step::Commit),
        1 => Just(Step::Checkpoint),
    ]
}

fn rows(conn: &Connection) -> Rows {
    let mut all = conn.prepare("SELECT key, value FROM t").unwrap();
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Returns the rows of the database whose files are at `path`, from copies of them.
fn rows_of_copy(path: &Path) -> Rows {
    let dir = tempfile::tempdir().unwrap();
    for suffix in ["", "-wal"] {
        let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        std::fs::copy(name(path), name(&dir.path().join("copy"))).unwrap();
    }
    let conn = Connection::open(dir.path().join("copy")).unwrap();
    assert_eq!(text(&conn, "PRAGMA integrity_check"), "ok");
    rows(&conn)
}

/// Runs a step, which belongs to a transaction unless it commits one. `states` has the rows at the beginning of the
/// transaction, at each of its savepoints, and now.
fn run(db: &Db, writer: &Connection, step: &Step, states: &mut Vec<Rows>) {
    let now = states.last_mut().unwrap();
    match step {
        Step::Put(key, len, c) => {
            writer.execute("REPLACE INTO t VALUES (?1, printf('%.*c', ?2, ?3))", (key, len, c.to_string())).unwrap();
            now.insert(*key, c.to_string().repeat((*len).max(1) as usize));
        }
        Step::Delete(key) => {
            writer.execute("DELETE FROM t WHERE key = ?1", [key]).unwrap();
            now.remove(key);
        }
        Step::Read => assert_eq!(rows(writer), *now),
        Step::Savepoint => {
            writer.execute_batch("SAVEPOINT s").unwrap();
            let now = now.clone();
            states.push(now);
        }
        Step::Undo => {
            let undo = if states.len() > 2 { "ROLLBACK TO s; RELEASE s" } else { "ROLLBACK; BEGIN" };
            writer.execute_batch(undo).unwrap();
            states.pop();
            if states.len() == 1 {
                states.push(states[0].clone());
            }
        }
        Step::Commit | Step::Checkpoint => writer.execute_batch("COMMIT").unwrap(),
    }
    if matches!(step, Step::Checkpoint) {
        let checkpointer = open_checkpointer(&db.generations.current()).unwrap();
        checkpointer.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    }
    if matches!(step, Step::Commit | Step::Checkpoint) {
        let committed = states.pop().unwrap();
        assert_eq!(rows(&db.reader()), committed);
        assert_eq!(rows_of_copy(&db.path()), committed);
        *states = vec![committed.clone(), committed];
        writer.execute_batch("BEGIN").unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_commit_is_in_the_file_and_nothing_before_it(steps in prop::collection::vec(step(), 1..200)) {
        let db = db();
        // So small a cache that pages are written before their transaction ends, and again after that.
        let writer = open_writer(&db.generations.current(), 48 << 10).unwrap();
        writer.execute_batch("CREATE TABLE t (key INTEGER PRIMARY KEY, value TEXT); BEGIN").unwrap();
        let mut states = vec![Rows::new(), Rows::new()];
        for step in steps.iter().chain([&Step::Commit]) {
            run(&db, &writer, step, &mut states);
        }
    }
}

#[test]
fn a_transaction_is_written_in_few_calls() {
    let db = db();
    let writer = db.writer();
    writer.execute_batch("CREATE TABLE t (key INTEGER PRIMARY KEY, value TEXT)").unwrap();
    let current = db.generations.current();
    // Room for 20 writes: over 100 frames, 8 at a time.
    current.watched().faults.wal_room.store(21, Ordering::Release);
    writer
        .execute_batch(
            "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
             INSERT INTO t SELECT i, printf('%.*c', 3000, 'x') FROM n",
        )
        .unwrap();
    assert_eq!(number(&db.reader(), "SELECT count(*) FROM t"), 100);
}

/// A full disk may be found by a read, because held frames are written before it.
#[test]
fn a_read_that_cannot_write_held_frames_fails_like_the_write() {
    let db = db();
    let current = db.generations.current();
    let writer = open_writer(&current, 48 << 10).unwrap();
    writer.execute_batch("CREATE TABLE t (key INTEGER PRIMARY KEY, value TEXT)").unwrap();
    let many = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
        INSERT INTO t SELECT i, printf('%.*c', 3000, 'x') FROM n";
    let full = rusqlite::ffi::SQLITE_FULL;
    let before = (vfs::failed_writes(), vfs::full_writes(), current.failed_reads());
    // The cache is too small for the transaction, so frames are held when the disk becomes full.
    writer.execute_batch(&format!("BEGIN; {many}")).unwrap();
    current.watched().faults.wal_writes.store(full, Ordering::Release);
    let count = writer.query_row("SELECT sum(length(value)) FROM t", [], |row| row.get::<_, i64>(0));
    assert_eq!(count.unwrap_err().sqlite_error().unwrap().extended_code, full);
    assert!(vfs::failed_writes() > before.0 && vfs::full_writes() > before.1);
    assert_eq!(current.failed_reads(), before.2, "the disk reads well");

    current.watched().faults.wal_writes.store(0, Ordering::Release);
    if !writer.is_autocommit() {
        writer.execute_batch("ROLLBACK").unwrap();
    }
    assert_eq!(rows(&writer), Rows::new());
    writer.execute_batch(many).unwrap();
    assert_eq!((rows(&db.reader()).len(), rows_of_copy(&db.path()).len()), (100, 100));
}
