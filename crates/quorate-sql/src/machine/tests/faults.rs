//! A fault of the node is never an outcome: nothing is lost, nothing is applied twice, and the same entries may be
//! applied later.

use std::sync::atomic::Ordering;

use rusqlite::ffi;
use rusqlite::functions::FunctionFlags;

use super::*;

/// The number of reads that are made to fail, one per run.
const READS: i64 = 12;

const SETUP: &[&str] = &["CREATE TABLE t (a)", "CREATE TABLE once (a UNIQUE ON CONFLICT ROLLBACK)"];

/// Entries after [`SETUP`], one for each statement.
fn entries(statements: &[&str]) -> Vec<Entry> {
    let proposal = |sql: &&str| match *sql {
        "VACUUM" => Proposal::new(None, vec![SqlCommand::Vacuum.into()]),
        sql => single(sql),
    };
    (3..).zip(statements.iter().map(proposal)).map(|(index, proposal)| entry(index, &proposal)).collect()
}

impl Node {
    /// Makes each write to the `-wal` fail with `code` from now on; 0 heals the disk.
    fn break_disk(&self, code: i32) {
        self.generations.current().watched().faults.wal_writes.store(code, Ordering::Release);
    }

    /// Defines a function `break_disk()` that statements may call. It returns 7.
    fn define_break_disk(&self, code: i32) {
        let generation = self.generations.current();
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
        let break_disk = move |_: &rusqlite::functions::Context<'_>| {
            generation.watched().faults.wal_writes.store(code, Ordering::Release);
            Ok(7)
        };
        self.conn().create_scalar_function("break_disk", 0, flags, break_disk).unwrap();
    }
}

/// Applies `statements`, of which one may break the disk, heals the disk, and applies them again. Compares the result
/// with a node whose disk never breaks.
fn survives(statements: &[&str], breaks_at_once: bool, code: i32) {
    let entries = entries(statements);
    let (mut healthy, mut node) = (Node::with(SETUP), Node::with(SETUP));
    healthy.define_break_disk(0);
    node.define_break_disk(code);
    let expected = healthy.apply(&entries);
    node.break_disk(if breaks_at_once { code } else { 0 });
    let mut outcomes = Vec::new();
    let fault = node.apply_up_to_fault(&entries, &mut outcomes);
    assert_eq!(fault.is_retryable(), code == ffi::SQLITE_FULL, "{fault}");
    assert!(node.conn().is_autocommit());
    let left = &entries[outcomes.len()..];
    if code == ffi::SQLITE_FULL {
        assert!(matches!(node.fault(left), StoreFault::Full(_)), "still full");
    }
    node.define_break_disk(0);
    node.break_disk(0);
    outcomes.extend(node.apply(left));
    assert_eq!(outcomes, expected);
    assert_eq!(node.hashes(), healthy.hashes());
}

#[test]
fn work_ahead_is_unseen_and_gives_way() {
    let mut node = Node::with(SETUP);
    let entries = entries(&["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)"]);
    let before = (node.hashes(), node.applier().row().clone());
    let reader = connection::open_reader(&node.generations.current(), 64 << 10).unwrap();
    let rows = || reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap();

    node.applier().prefetch(&entries);
    assert!(!node.conn().is_autocommit());
    assert_eq!((rows(), node.applier().row().clone()), (0, before.1.clone()));

    node.applier().give_way();
    assert!(node.conn().is_autocommit());
    assert_eq!((node.hashes(), node.applier().row().clone()), before);

    node.applier().prefetch(&entries);
    node.apply(&entries);
    assert_eq!(rows(), 2);
}

#[test]
fn a_fault_ahead_recurs_when_the_entry_is_applied() {
    let mut node = Node::with(SETUP);
    let entries = entries(&["INSERT INTO t VALUES (zeroblob(4000000))"]);
    node.break_disk(ffi::SQLITE_FULL);
    node.applier().prefetch(&entries);
    assert!(node.conn().is_autocommit(), "a write that spilled failed, and was rolled back");
    assert!(matches!(node.fault(&entries), StoreFault::Full(_)));
    node.break_disk(0);
    node.applier().prefetch(&entries);
    node.apply(&entries);
}

#[test]
fn a_broken_disk_rolls_back_the_batch() {
    for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_WRITE] {
        survives(&["INSERT INTO t VALUES (1)", "CREATE TABLE u (a)", "INSERT INTO u VALUES (2)"], true, code);
        survives(&["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (break_disk())"], false, code);
    }
}

#[test]
fn entries_committed_before_a_fault_keep_outcomes() {
    let full = ffi::SQLITE_FULL;
    let killer = "INSERT INTO once VALUES (1), (1)";
    survives(&["INSERT INTO t VALUES (random())", killer, "INSERT INTO t VALUES (break_disk())", killer], false, full);
    survives(&["INSERT INTO t VALUES (1)", "VACUUM", "INSERT INTO t VALUES (break_disk())"], false, full);
}

#[test]
fn a_restart_continues_at_the_applied_row() {
    let killer = "INSERT INTO once VALUES (1), (1)";
    let entries = entries(&["INSERT INTO t VALUES (1)", killer, "INSERT INTO t VALUES (break_disk())"]);
    let mut node = Node::with(SETUP);
    node.define_break_disk(ffi::SQLITE_FULL);
    node.fault(&entries);
    node.break_disk(0);
    node.restart();
    node.define_break_disk(0);
    assert_eq!(node.applier().applied().index(), 4);
    node.apply(&entries[2..]);
    assert_eq!(node.value("SELECT group_concat(a) FROM t"), "1,7".into());
}

/// SQLite rolls back the transaction when a read fails, even if it ignores the error of that read. Later statements of
/// the entry were then committed separately, and applied again with the entry.
#[test]
fn a_failed_read_does_not_commit_part_of_an_entry() {
    let setup = ["CREATE TABLE t (a)", "CREATE VIRTUAL TABLE f USING fts5(a)", "CREATE VIEW v AS SELECT a FROM t"];
    let texts = [
        "CREATE TABLE u (a)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD COLUMN b",
        "INSERT INTO u VALUES (2)",
        "INSERT INTO f VALUES ('word')",
    ];
    let commands = texts.map(command);
    let entries = [entry(5, &Proposal::new(None, commands.into())), entry(6, &Proposal::new(None, vec![]))];
    let mut healthy = Node::with(&setup);
    let expected = healthy.apply(&entries);
    let mut failed = 0;
    for read in 1..=READS {
        let mut node = Node::with(&setup);
        node.restart_with_cache(1);
        node.generations.current().watched().faults.wal_read.store(read, Ordering::Release);
        let outcomes = node.apply(&entries);
        let generation = node.generations.current();
        failed += u32::from(generation.watched().faults.wal_read.swap(0, Ordering::AcqRel) <= 0);
        assert_eq!((outcomes, node.hashes()), (expected.clone(), healthy.hashes()), "read {read}");
    }
    assert!(failed > 3, "{failed} reads failed");
}
