//! Exactly-once by keys of requests, on real files; `quorate_apply` compares them with a model.

use quorate_apply::requests::KEY_TIME;
use quorate_model::limits::REQUEST_OUTCOME_BYTES_MAX;
use quorate_model::{RequestKey, Results};

use super::*;

const INSERT: &str = "INSERT INTO t (b) VALUES (random()) RETURNING a, b";

fn keyed(sql: &str, key: &'static str, hash: u8) -> Proposal {
    Proposal::new(None, vec![command(sql)]).with_key(RequestKey::new(key, [hash; 32]).unwrap())
}

fn node() -> Node {
    Node::with(&["CREATE TABLE t (a INTEGER PRIMARY KEY, b)"])
}

/// Applies proposals as one batch.
fn apply(node: &mut Node, proposals: &[Proposal]) -> Vec<Outcome> {
    let entries: Vec<_> = (node.next..).zip(proposals).map(|(index, proposal)| entry(index, proposal)).collect();
    node.apply(&entries)
}

fn results(outcome: &Outcome) -> &Results {
    &outcome.as_ref().unwrap().results
}

#[test]
fn a_request_runs_once_also_across_restarts() {
    let mut node = node();
    let first = node.propose(&keyed(INSERT, "k", 1));
    assert_eq!(first.as_ref().unwrap().first, Some(node.next - 1));
    node.ok(INSERT);
    node.restart();
    assert_eq!(node.propose(&keyed(INSERT, "k", 1)), first);
    assert_eq!(node.propose(&keyed(INSERT, "k", 2)).unwrap_err().kind, FailureKind::KeyReused);
    assert_ne!(results(&node.propose(&keyed(INSERT, "l", 1))), results(&first));
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(3));
    assert_eq!(node.value("SELECT 1 FROM t WHERE a = 1"), Value::Integer(1));
    let rows = node.conn().query_row("SELECT count(*) FROM _quorate_requests", [], |row| row.get::<_, u32>(0));
    assert_eq!((rows.unwrap(), node.applier().requests().count()), (2, 2));
}

/// What one entry does is not visible to the next one, and neither is what is remembered of it.
#[test]
fn remembering_is_not_counted_as_a_change() {
    const COUNTERS: &str = "SELECT changes(), total_changes(), last_insert_rowid()";
    let mut node = node();
    let texts = ["INSERT INTO t (a) VALUES (50)", COUNTERS];
    let outcomes = apply(&mut node, &texts.map(|sql| keyed(sql, sql, 1)));
    let [CommandResult::Sql(SqlReply::Statement(counters))] = results(&outcomes[1]).as_slice() else {
        panic!("{outcomes:?}")
    };
    assert_eq!(counters.rows, [vec![Value::Integer(0); 3]]);
}

#[test]
fn a_plain_statement_whose_result_is_too_large_is_undone() {
    let mut node = node();
    let large = "INSERT INTO t (b) VALUES (zeroblob(70000)) RETURNING b";
    // The second run finds the statement in the cache, and has no savepoint.
    for key in ["a", "b"] {
        let proposals = [keyed(INSERT, "before", 1), keyed(large, key, 1), keyed(INSERT, "after", 1)];
        let outcomes = apply(&mut node, &proposals);
        let failure = outcomes[1].clone().unwrap_err();
        assert_eq!(failure.kind, FailureKind::TooBig);
        assert!(failure.message.contains(&REQUEST_OUTCOME_BYTES_MAX.to_string()), "{failure}");
        assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(2));
        assert_eq!(node.propose(&keyed(large, key, 1)), Err(failure));
    }
    node.ok(large);
}

#[test]
fn vacuum_may_have_a_key() {
    let mut node = node();
    let key = RequestKey::new("k", [1; 32]).unwrap();
    let vacuum = Proposal::new(None, vec![SqlCommand::Vacuum.into()]).with_key(key);
    let first = node.propose(&vacuum);
    assert_eq!(first.as_ref().unwrap().first, Some(node.next - 1));
    assert_eq!(node.propose(&vacuum), first);
}

#[test]
fn a_key_is_forgotten_after_a_day() {
    let mut node = node();
    let first = node.propose(&keyed(INSERT, "k", 1));
    // Each index is an hour later.
    node.next += KEY_TIME / SECOND / 3600 - 1;
    assert_eq!(node.propose(&keyed(INSERT, "k", 1)), first, "exactly a day");
    let again = node.propose(&keyed(INSERT, "k", 2));
    assert_eq!(again.as_ref().unwrap().first, Some(node.next - 1));
    node.restart();
    assert_eq!(node.propose(&keyed(INSERT, "k", 2)), again);
    assert_eq!(node.applier().requests().count(), 1);
}
