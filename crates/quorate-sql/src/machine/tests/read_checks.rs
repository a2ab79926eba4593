//! Read checks: the reads of a transaction must still return the same answers.

use std::sync::Arc;

use quorate_model::{Param, Read, ReadCheck, SqlCommand};

use super::*;
use crate::query::Rows;
use crate::rows_hash;

const SETUP: &[&str] = &["CREATE TABLE t (a UNIQUE)", "INSERT INTO t VALUES (1), (2)"];

fn query(sql: &str, params: Vec<Value>) -> Statement {
    Statement { sql: sql.to_owned().into(), params, names: vec![] }
}

/// A check that a query returns these values in one column.
pub(super) fn gives(query: Statement, values: &[i64]) -> ReadCheck {
    let values = values.iter().map(|value| Value::Integer(*value)).collect();
    let answer = rows_hash::of(&Rows::new(Arc::from(["c".to_owned()]), values));
    ReadCheck { read: Read::Sql(query), stamp: Stamp::default(), answer }
}

fn insert(value: Param) -> Command {
    Command::Sql(SqlCommand::Statement(statement("INSERT INTO t VALUES (?)", vec![value])))
}

fn with_checks(read_checks: Vec<ReadCheck>, command: Command) -> Proposal {
    Proposal { read_checks, ..Proposal::new(None, vec![command]) }
}

#[test]
fn a_proposal_is_applied_only_if_read_checks_hold() {
    let mut node = Node::with(SETUP);
    let all = |values: &[i64]| gives(query("SELECT a FROM t ORDER BY a", vec![]), values);
    let above = |values: &[i64]| gives(query("SELECT a FROM t WHERE a > ?", vec![1.into()]), values);
    let three = || with_checks(vec![all(&[1, 2]), above(&[2])], insert(3.into()));
    node.propose(&three()).unwrap();
    // The same proposal again: the first query returns one more row now.
    let failure = node.propose(&three()).unwrap_err();
    assert_eq!((failure.kind, failure.command), (FailureKind::Conflict, None));
    let text = "what the transaction had read was changed by another write: \"SELECT a FROM t ORDER BY a\" now \
                returns other rows; run it again";
    assert_eq!(failure.to_string(), text);
    node.propose(&with_checks(vec![all(&[1, 2, 3]), above(&[2, 3])], insert(4.into()))).unwrap();
    // The same rows in another order do not match.
    let wrong = with_checks(vec![all(&[2, 1, 3, 4])], insert(5.into()));
    assert_eq!(node.propose(&wrong).unwrap_err().kind, FailureKind::Conflict);
    assert_eq!(node.value("SELECT group_concat(a) FROM t"), "1,2,3,4".into());
}

#[test]
fn failed_reads_conflict_and_forbidden_ones_are_refused() {
    let mut node = Node::with(SETUP);
    let mut kind = |sql: &str| node.propose(&with_checks(vec![gives(query(sql, vec![]), &[])], insert(9.into())));
    for sql in ["SELECT a FROM gone", "SELECT b FROM t", "SELECT a FROM t WHERE a = ?"] {
        assert_eq!(kind(sql).unwrap_err().kind, FailureKind::Conflict, "{sql}");
    }
    for sql in ["DELETE FROM t", "INSERT INTO t VALUES (7) RETURNING a", "PRAGMA foreign_keys = 0", "VACUUM"] {
        assert_eq!(kind(sql).unwrap_err().kind, FailureKind::Refused, "{sql}");
    }
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(2));
}

#[test]
fn read_checks_run_under_their_own_stamps() {
    const SEEN: &str = "SELECT unixepoch() * 1000 + abs(random() % 1000)";
    let mut node = Node::with(SETUP);
    let stamp = Stamp { now: 7 * SECOND, seed: 5 };
    crate::vfs::clock::set(Some(stamp.now));
    node.applier().machine().determinism.seed(stamp.seed);
    let seen: i64 = node.conn().query_row(SEEN, [], |row| row.get(0)).unwrap();
    crate::vfs::clock::set(None);
    let read_check = ReadCheck { stamp, ..gives(query(SEEN, vec![]), &[seen]) };
    let insert = command("INSERT INTO t SELECT CURRENT_TIMESTAMP || random()");
    node.propose(&with_checks(vec![read_check.clone(), read_check], insert.clone())).unwrap();

    let mut other = Node::with(SETUP);
    other.propose(&Proposal::new(None, vec![insert])).unwrap();
    let last = "SELECT a FROM t WHERE typeof(a) = 'text'";
    assert_eq!(node.value(last), other.value(last));
}

#[test]
fn read_checks_count_for_the_budget_of_their_entry() {
    let count =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT count(*) FROM n";
    let mut node = Node::with(SETUP);
    let read_checks = |number| vec![gives(query(count, vec![]), &[1000]); number];
    let proposal = |number| Proposal { budget: 50_000, ..with_checks(read_checks(number), insert(9.into())) };
    assert_eq!(node.propose(&proposal(9)).unwrap_err().kind, FailureKind::Budget);
    node.propose(&proposal(1)).unwrap();
}

#[test]
fn a_read_check_compares_the_bytes_of_a_text() {
    let mut node = Node::with(&["CREATE TABLE t (a)", "INSERT INTO t VALUES ('a' || char(0xFFFD))"]);
    let seen = rows_hash::of(&Rows::new(["a".to_owned()].into(), vec!["a\u{fffd}".into()]));
    let read_check = ReadCheck { answer: seen, ..gives(query("SELECT a FROM t", vec![]), &[]) };
    let proposal = with_checks(vec![read_check], command("INSERT INTO t VALUES (1)"));
    node.ok("UPDATE t SET a = CAST(x'61ff' AS TEXT)");
    assert_eq!(node.propose(&proposal).unwrap_err().kind, FailureKind::Conflict);
    node.ok("UPDATE t SET a = CAST(x'61efbfbd' AS TEXT)");
    node.propose(&proposal).unwrap();
}
