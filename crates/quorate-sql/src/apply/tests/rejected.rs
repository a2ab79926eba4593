//! Entries that the cluster decided not to run, entries that only some nodes can apply, and entries that fail by ending
//! their transaction.

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
    /// Makes `ail()` a function that fails with this code as long as it is not 0, and counts its calls.
    fn offer_to_ail(&self, code: i32) -> Arc<AtomicU32> {
        let calls = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&calls);
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
        let ail = move |_: &rusqlite::functions::Context<'_>| {
            counter.fetch_add(1, Ordering::Relaxed);
            if code == 0 { Ok(1) } else { Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)) }
        };
        self.conn().create_scalar_function("ail", 0, flags, ail).unwrap();
        calls
    }
}

#[test]
fn a_rejected_entry_fails_changes_nothing_and_is_remembered() {
    let mut node = Node::with(SETUP);
    let session = node.next;
    node.propose(&open_session()).unwrap();
    let origin = Origin { session: SessionId(session), sequence: 1, floor: 0 };
    let proposal = Proposal::new(Some(origin), vec![command("INSERT INTO t VALUES (1)")]);
    let index = node.next;
    let failure = node.apply(&[rejected(entry(index, &proposal))]).remove(0).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Rejected);
    // A retry gets the same outcome, after a restart too.
    for _ in 0..2 {
        assert_eq!(node.propose(&proposal).unwrap_err().kind, FailureKind::Rejected);
        assert_eq!(node.applier().rejected(), [index]);
        node.restart();
    }
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(0));
}

#[test]
fn an_entry_that_ran_ahead_has_no_effect_once_it_is_rejected() {
    let mut node = Node::with(SETUP);
    let entries = [insert(2, "INSERT INTO t VALUES (1)"), insert(3, "INSERT INTO t VALUES (2)")];
    node.applier().foresee(&entries);
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
fn a_fault_is_that_of_the_first_entry_that_is_not_applied() {
    for (code, is_it) in [(7, "memory"), (9, "time"), (10, "I/O"), (11, "damage")] {
        let mut node = Node::with(SETUP);
        node.offer_to_ail(code);
        let sick = insert(3, "INSERT INTO t VALUES (ail())");
        let entries = [insert(2, "INSERT INTO t VALUES (1)"), sick, insert(4, "INSERT INTO t VALUES (3)")];
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
        // Handed over again, it takes effect once it can.
        node.offer_to_ail(0);
        assert!(node.apply(&entries[1..]).iter().all(Result::is_ok));
        assert_eq!(node.value("SELECT group_concat(a) FROM t"), "1,1,3".into());
    }
}

#[test]
fn an_outcome_does_not_wait_for_a_long_entry_behind_its_own() {
    let mut node = Node::with(SETUP);
    let long = insert(3, "INSERT INTO t VALUES (ail())");
    let entries = [insert(2, "INSERT INTO t VALUES (1)"), long, insert(4, "INSERT INTO t VALUES (3)")];
    // It takes too long to run ahead.
    node.offer_to_ail(9);
    node.applier().foresee(&entries);
    let calls = node.offer_to_ail(0);
    let mut outcomes = Vec::new();
    node.applier().apply_batch(&entries, &mut outcomes).unwrap();
    assert_eq!((outcomes.len(), calls.load(Ordering::Relaxed)), (1, 0));
    node.applier().apply_batch(&entries[1..], &mut outcomes).unwrap();
    assert_eq!((outcomes.len(), calls.load(Ordering::Relaxed)), (3, 1));
    // A node that did not run the entries ahead meets the long one unprepared, and still returns the first outcome.
    let mut node = Node::with(SETUP);
    node.offer_to_ail(9);
    let mut outcomes = Vec::new();
    node.apply_up_to_fault(&entries, &mut outcomes);
    assert!(matches!(outcomes[..], [Ok(_)]), "{outcomes:?}");
}

/// What a process that is killed has to do again, and what others wait for, is bounded.
#[test]
fn a_transaction_that_has_taken_long_takes_in_no_more_entries() {
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
fn an_entry_for_which_there_is_no_time_or_memory_runs_once_before_that_is_told() {
    for code in [7, 9] {
        let mut node = Node::with(SETUP);
        let sick = insert(3, "INSERT INTO t VALUES (ail())");
        let entries = [insert(2, "INSERT INTO t VALUES (1)"), sick, insert(4, "INSERT INTO t VALUES (3)")];
        let calls = node.offer_to_ail(code);
        for (expected, left) in (1..).zip([&entries[..], &entries[1..], &entries[1..]]) {
            node.fault(left);
            assert_eq!((calls.load(Ordering::Relaxed), node.applier().applied().index()), (expected, 2));
        }
        // A lack of memory that was met while the entry ran ahead is returned without another run. A rejected entry
        // does not run.
        let ahead = insert(3, "INSERT INTO t VALUES (2 * ail())");
        let ahead = Entry { log_id: LogId { term: 9, ..ahead.log_id }, ..ahead };
        node.applier().foresee(std::slice::from_ref(&ahead));
        let again = if code == 7 { 4 } else { 5 };
        node.fault(std::slice::from_ref(&ahead));
        assert_eq!(calls.load(Ordering::Relaxed), again);
        node.applier().foresee(std::slice::from_ref(&ahead));
        assert!(node.apply(&[rejected(ahead)])[0].is_err());
        assert_eq!(calls.load(Ordering::Relaxed), again + 1);
    }
}

#[test]
fn an_entry_that_ends_its_transaction_runs_once() {
    let mut node = Node::with(&["CREATE TABLE t (a UNIQUE ON CONFLICT ROLLBACK)", "CREATE TABLE u (a)"]);
    let sql = "INSERT INTO t SELECT ail() FROM (SELECT 1 UNION ALL SELECT 1)";
    let entries = |first: u64| {
        let [before, killer, after] = ["INSERT INTO u VALUES (1)", sql, "INSERT INTO u VALUES (2)"];
        [insert(first, before), insert(first + 1, killer), insert(first + 2, after)]
    };
    let calls = node.offer_to_ail(0);
    // One call for each of two rows.
    let outcomes = node.apply(&entries(3));
    assert_eq!(outcomes[1].clone().unwrap_err().kind, FailureKind::Constraint);
    assert_eq!(calls.swap(0, Ordering::Relaxed), 2, "applied at once");

    let ahead = entries(6);
    node.applier().foresee(&ahead);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let again = node.apply(&ahead);
    assert_eq!((&again[1], calls.load(Ordering::Relaxed)), (&outcomes[1], 2), "run ahead");
    assert_eq!(node.value("SELECT group_concat(a) FROM u"), "1,2,1,2".into());

    // Another entry with the same index is another entry.
    let [other, ..] = entries(11);
    let killer = insert(node.next, sql);
    node.applier().foresee(std::slice::from_ref(&killer));
    let other = Entry { log_id: LogId { term: 9, ..killer.log_id }, ..other };
    assert!(node.apply(&[other])[0].is_ok());
}

#[test]
fn a_search_that_takes_too_long_in_one_step_is_a_fault_and_no_outcome() {
    let mut node = Node::with(SETUP);
    node.ok("CREATE VIRTUAL TABLE f USING fts5(body)");
    node.ok(&format!("INSERT INTO f VALUES ('{}')", "a ".repeat(200_000)));
    let sql = format!("INSERT INTO t SELECT count(*) FROM f WHERE f MATCH '{}'", "a ".repeat(30));
    let entries = [insert(node.next, &sql)];
    node.applier().determinism.budget.allow(Some(Duration::ZERO));
    let fault = node.fault(&entries);
    assert!(matches!(fault, StoreFault::Slow(_)), "{fault}");
    node.applier().determinism.budget.allow(None);
    assert!(node.apply(&entries)[0].is_ok());
}

#[test]
fn a_statement_that_takes_too_long_is_a_fault_and_no_outcome() {
    const WORK: &str = "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9999)
        SELECT i FROM n";
    let mut node = Node::with(SETUP);
    let entries = [insert(2, WORK)];
    node.applier().determinism.budget.allow(Some(Duration::ZERO));
    let fault = node.fault(&entries);
    assert!(matches!(fault, StoreFault::Slow(_)), "{fault}");
    node.applier().determinism.budget.allow(None);
    assert!(node.apply(&entries)[0].is_ok());
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(9999));
}

/// Run behind an entry that is rejected later, it ended the transaction. Without that entry it does not.
#[test]
fn what_an_entry_would_have_done_is_forgotten_when_the_one_before_it_is_rejected() {
    let setup = ["CREATE TABLE p (a UNIQUE)"];
    let (mut healthy, mut node) = (Node::with(&setup), Node::with(&setup));
    let first = insert(node.next, "INSERT INTO p VALUES (1)");
    let second = insert(node.next + 1, "INSERT OR ROLLBACK INTO p VALUES (1)");
    node.applier().foresee(&[first.clone(), second.clone()]);
    let entries = [rejected(first), second];
    let expected = healthy.apply(&entries);
    assert!(expected[1].is_ok(), "{expected:?}");
    assert_eq!(node.apply(&entries), expected);
    assert_eq!(node.hashes(), healthy.hashes());
}
