//! Entries that the cluster decided not to run, entries that only some nodes can apply, and entries that end their
//! transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::ffi;
use rusqlite::functions::FunctionFlags;

use super::*;

const SETUP: &[&str] = &["CREATE TABLE t (a)"];

fn insert(index: u64, sql: &str) -> Entry {
    entry(index, &single(sql))
}

fn rejected(entry: Entry) -> Entry {
    match entry.payload {
        Payload::Proposal(stamp, bytes) => Entry { payload: Payload::Rejected(stamp, bytes), ..entry },
        other => panic!("{other:?}"),
    }
}

impl Node {
    /// Defines a function `failing()` that fails with this code unless it is 0, and counts its calls.
    fn define_failing(&self, code: i32) -> Arc<AtomicU32> {
        let calls = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&calls);
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
        let failing = move |_: &rusqlite::functions::Context<'_>| {
            counter.fetch_add(1, Ordering::Relaxed);
            if code == 0 { Ok(1) } else { Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)) }
        };
        self.conn().create_scalar_function("failing", 0, flags, failing).unwrap();
        calls
    }
}

#[test]
fn a_rejected_entry_changes_nothing_and_is_recorded() {
    let mut node = Node::with(SETUP);
    let session = node.next;
    node.propose(&open_session()).unwrap();
    let origin = Origin { session: SessionId(session), sequence: 1, floor: 0 };
    let proposal = Proposal::new(Some(origin), vec![command("INSERT INTO t VALUES (1)")]);
    let index = node.next;
    let failure = node.apply(&[rejected(entry(index, &proposal))]).remove(0).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Rejected);
    // A retry gets the same outcome, also after a restart.
    for _ in 0..2 {
        assert_eq!(node.propose(&proposal).unwrap_err().kind, FailureKind::Rejected);
        assert_eq!(node.applier().rejected(), [index]);
        node.restart();
    }
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(0));
}

#[test]
fn an_entry_rejected_after_running_ahead_has_no_effect() {
    let mut node = Node::with(SETUP);
    let entries = [insert(2, "INSERT INTO t VALUES (1)"), insert(3, "INSERT INTO t VALUES (2)")];
    node.applier().prefetch(&entries);
    let outcomes = node.apply(&[rejected(entries[0].clone()), entries[1].clone()]);
    assert_eq!((outcomes[0].is_ok(), outcomes[1].is_ok()), (false, true));
    assert_eq!(node.value("SELECT group_concat(a) FROM t"), "2".into());
}

#[test]
fn only_the_latest_rejections_are_remembered() {
    let mut node = Node::with(SETUP);
    let entries: Vec<Entry> = (2..=80).map(|index| rejected(insert(index, "INSERT INTO t VALUES (1)"))).collect();
    node.apply(&entries);
    let expected: Vec<u64> = (17..=80).collect();
    assert_eq!(node.applier().rejected(), expected);
    node.restart();
    assert_eq!(node.applier().rejected(), expected);
}

#[test]
fn a_fault_belongs_to_the_first_unapplied_entry() {
    for (code, is_it) in [(7, "memory"), (9, "time"), (10, "I/O"), (11, "damage")] {
        let mut node = Node::with(SETUP);
        node.define_failing(code);
        let failing = insert(3, "INSERT INTO t VALUES (failing())");
        let entries = [insert(2, "INSERT INTO t VALUES (1)"), failing, insert(4, "INSERT INTO t VALUES (3)")];
        let fault = node.fault(&entries);
        let kind = match fault {
            StoreFault::Memory(_) => "memory",
            StoreFault::Slow(_) => "time",
            StoreFault::Io(_) => "I/O",
            StoreFault::Damaged(_) => "damage",
            other => panic!("{other}"),
        };
        assert_eq!((kind, node.applier().applied().index()), (is_it, 2));
        assert!(node.conn().is_autocommit());
        // Handed over again, the entry takes effect once it can run.
        node.define_failing(0);
        assert!(node.apply(&entries[1..]).iter().all(Result::is_ok));
        assert_eq!(node.value("SELECT group_concat(a) FROM t"), "1,1,3".into());
    }
}

#[test]
fn an_outcome_does_not_wait_for_a_later_long_entry() {
    let mut node = Node::with(SETUP);
    let long = insert(3, "INSERT INTO t VALUES (failing())");
    let entries = [insert(2, "INSERT INTO t VALUES (1)"), long, insert(4, "INSERT INTO t VALUES (3)")];
    // The entry takes too long to run ahead.
    node.define_failing(9);
    node.applier().prefetch(&entries);
    let calls = node.define_failing(0);
    let mut outcomes = Vec::new();
    node.applier().apply_batch(&entries, &mut outcomes).unwrap();
    assert_eq!((outcomes.len(), calls.load(Ordering::Relaxed)), (1, 0));
    node.applier().apply_batch(&entries[1..], &mut outcomes).unwrap();
    assert_eq!((outcomes.len(), calls.load(Ordering::Relaxed)), (3, 1));
    // A node that did not run the entries ahead does not know that the second one takes long, and still returns the
    // first outcome.
    let mut node = Node::with(SETUP);
    node.define_failing(9);
    let mut outcomes = Vec::new();
    node.apply_up_to_fault(&entries, &mut outcomes);
    assert!(matches!(outcomes[..], [Ok(_)]), "{outcomes:?}");
}

/// This bounds the work that a killed process has to repeat, and the time that callers and readers wait.
#[test]
fn a_long_transaction_takes_no_more_entries() {
    let mut node = Node::with(SETUP);
    let slow = "INSERT INTO t SELECT count(*) FROM (WITH RECURSIVE c(x) AS
        (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 200000) SELECT x FROM c)";
    let entries: Vec<Entry> = (2..66).map(|index| insert(index, slow)).collect();
    let mut outcomes = Vec::new();
    node.applier().apply_batch(&entries, &mut outcomes).unwrap();
    assert!((1..entries.len()).contains(&outcomes.len()), "{} at once", outcomes.len());
    assert_eq!(node.applier().applied().index(), 1 + outcomes.len() as u64);
    assert!(node.conn().is_autocommit());
    outcomes.extend(node.apply(&entries[outcomes.len()..]));
    assert!(outcomes.iter().all(Result::is_ok));
}

#[test]
fn an_entry_without_time_or_memory_runs_once_per_fault() {
    for code in [7, 9] {
        let mut node = Node::with(SETUP);
        let failing = insert(3, "INSERT INTO t VALUES (failing())");
        let entries = [insert(2, "INSERT INTO t VALUES (1)"), failing, insert(4, "INSERT INTO t VALUES (3)")];
        let calls = node.define_failing(code);
        for (expected, left) in (1..).zip([&entries[..], &entries[1..], &entries[1..]]) {
            node.fault(left);
            assert_eq!((calls.load(Ordering::Relaxed), node.applier().applied().index()), (expected, 2));
        }
        // A lack of memory that an entry met while it ran ahead is returned without another run. A rejected entry does
        // not run.
        let ahead = insert(3, "INSERT INTO t VALUES (2 * failing())");
        let ahead = Entry { log_id: LogId { term: 9, ..ahead.log_id }, ..ahead };
        node.applier().prefetch(std::slice::from_ref(&ahead));
        let again = if code == 7 { 4 } else { 5 };
        node.fault(std::slice::from_ref(&ahead));
        assert_eq!(calls.load(Ordering::Relaxed), again);
        node.applier().prefetch(std::slice::from_ref(&ahead));
        assert!(node.apply(&[rejected(ahead)])[0].is_err());
        assert_eq!(calls.load(Ordering::Relaxed), again + 1);
    }
}

#[test]
fn an_entry_that_ends_its_transaction_runs_once() {
    let mut node = Node::with(&["CREATE TABLE t (a UNIQUE ON CONFLICT ROLLBACK)", "CREATE TABLE u (a)"]);
    let sql = "INSERT INTO t SELECT failing() FROM (SELECT 1 UNION ALL SELECT 1)";
    let entries = |first: u64| {
        let [before, killer, after] = ["INSERT INTO u VALUES (1)", sql, "INSERT INTO u VALUES (2)"];
        [insert(first, before), insert(first + 1, killer), insert(first + 2, after)]
    };
    let calls = node.define_failing(0);
    // One call for each of two rows.
    let outcomes = node.apply(&entries(3));
    assert_eq!(outcomes[1].clone().unwrap_err().kind, FailureKind::Constraint);
    assert_eq!(calls.swap(0, Ordering::Relaxed), 2, "applied at once");

    let ahead = entries(6);
    node.applier().prefetch(&ahead);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let again = node.apply(&ahead);
    assert_eq!((&again[1], calls.load(Ordering::Relaxed)), (&outcomes[1], 2), "run ahead");
    assert_eq!(node.value("SELECT group_concat(a) FROM u"), "1,2,1,2".into());

    // An entry with the same index and another term is another entry.
    let [other, ..] = entries(11);
    let killer = insert(node.next, sql);
    node.applier().prefetch(std::slice::from_ref(&killer));
    let other = Entry { log_id: LogId { term: 9, ..killer.log_id }, ..other };
    assert!(node.apply(&[other])[0].is_ok());
}

#[test]
fn a_search_too_long_in_one_step_is_a_fault() {
    let mut node = Node::with(SETUP);
    node.ok("CREATE VIRTUAL TABLE f USING fts5(body)");
    node.ok(&format!("INSERT INTO f VALUES ('{}')", "a ".repeat(200_000)));
    let sql = format!("INSERT INTO t SELECT count(*) FROM f WHERE f MATCH '{}'", "a ".repeat(30));
    let entries = [insert(node.next, &sql)];
    node.applier().machine().determinism.budget.allow(Some(Duration::ZERO));
    let fault = node.fault(&entries);
    assert!(matches!(fault, StoreFault::Slow(_)), "{fault}");
    node.applier().machine().determinism.budget.allow(None);
    assert!(node.apply(&entries)[0].is_ok());
}

#[test]
fn a_statement_that_takes_too_long_is_a_fault() {
    const WORK: &str = "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9999)
        SELECT i FROM n";
    let mut node = Node::with(SETUP);
    let entries = [insert(2, WORK)];
    node.applier().machine().determinism.budget.allow(Some(Duration::ZERO));
    let fault = node.fault(&entries);
    assert!(matches!(fault, StoreFault::Slow(_)), "{fault}");
    node.applier().machine().determinism.budget.allow(None);
    assert!(node.apply(&entries)[0].is_ok());
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(9999));
}

/// The second entry ended the transaction when it ran after the first, which is rejected later. Without the first it
/// succeeds.
#[test]
fn a_rejection_drops_the_note_about_later_entries() {
    let setup = ["CREATE TABLE p (a UNIQUE)"];
    let (mut healthy, mut node) = (Node::with(&setup), Node::with(&setup));
    let first = insert(node.next, "INSERT INTO p VALUES (1)");
    let second = insert(node.next + 1, "INSERT OR ROLLBACK INTO p VALUES (1)");
    node.applier().prefetch(&[first.clone(), second.clone()]);
    let entries = [rejected(first), second];
    let expected = healthy.apply(&entries);
    assert!(expected[1].is_ok(), "{expected:?}");
    assert_eq!(node.apply(&entries), expected);
    assert_eq!(node.hashes(), healthy.hashes());
}
