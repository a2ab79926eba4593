//! Read checks: the reads of a transaction must still return the same answers.

use std::sync::Arc;

use quorate_keys::{Expiry, KeyCommand, KeysCommand, KeysReply, Version};
use quorate_model::keys::SpaceCommand;
use quorate_model::{ControlReply, Mode, Origin, Param, Read, ReadCheck, SqlCommand};

use super::*;
use crate::keys::tests::{get, set};
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
    Proposal::new(None, vec![command]).with_read_checks(read_checks)
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

/// A check that a command on keys gives this reply.
fn replies(command: KeysCommand, reply: &KeysReply) -> ReadCheck {
    let read = Read::Keys(SpaceCommand { space: 0, command });
    ReadCheck { read, stamp: Stamp::default(), answer: rows_hash::of_reply(reply) }
}

/// A check that a key has this version, or is missing.
fn expect(key: &'static str, version: Option<Version>) -> ReadCheck {
    replies(KeysCommand::Key(KeyCommand::Expect { key: key.into(), version }), &KeysReply::Done)
}

fn keys(command: KeysCommand) -> Command {
    SpaceCommand { space: 0, command }.into()
}

/// Sets a key in a pipeline, whose first command fails.
fn pipeline(read_checks: Vec<ReadCheck>, value: &'static str) -> Proposal {
    let commands = vec![insert(1.into()), keys(set("k", value, Expiry::Never)), insert(9.into())];
    Proposal { mode: Mode::Pipeline, ..Proposal::new(None, commands).with_read_checks(read_checks) }
}

#[test]
fn a_pipeline_runs_only_if_keys_have_their_versions() {
    let mut node = Node::with(SETUP);
    assert_eq!(node.propose(&pipeline(vec![expect("k", None)], "1")).unwrap().results.len(), 3);
    let version = Version::new(node.next - 1, 1);
    let failure = node.propose(&pipeline(vec![expect("k", None)], "2")).unwrap_err();
    assert_eq!((failure.kind, failure.command), (FailureKind::Conflict, None));
    let text = "a key that the transaction depends on was changed by another write; run it again";
    assert_eq!(failure.to_string(), text);
    assert_eq!(node.value("SELECT value FROM quorate_keys"), Value::from(b"1".to_vec()));
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(3));
    node.propose(&pipeline(vec![expect("gone", None), expect("k", Some(version))], "3")).unwrap();
    let both = vec![expect("gone", None), expect("k", Some(version))];
    assert_eq!(node.propose(&pipeline(both, "4")).unwrap_err().kind, FailureKind::Conflict);
    assert_eq!(node.value("SELECT value FROM quorate_keys"), Value::from(b"3".to_vec()));
}

#[test]
fn a_pipeline_that_is_sent_again_keeps_its_outcome_though_its_premises_no_longer_hold() {
    let mut node = Node::with(SETUP);
    let Some(CommandResult::Control(ControlReply::Session(session))) =
        node.propose(&open_session()).unwrap().results.pop()
    else {
        panic!("no session");
    };
    let origin = |sequence| Some(Origin { session, sequence, floor: 0 });
    let first = Proposal { origin: origin(1), ..pipeline(vec![expect("k", None)], "1") };
    let refused = Proposal { origin: origin(2), ..pipeline(vec![expect("k", None)], "2") };
    let outcomes = [&first, &refused].map(|proposal| node.propose(proposal));
    node.propose(&Proposal::new(None, vec![keys(KeysCommand::Key(KeyCommand::Flush))])).unwrap();
    assert_eq!([&first, &refused].map(|proposal| node.propose(proposal)), outcomes);
    assert!(outcomes[0].is_ok() && outcomes[1].is_err());
    assert_eq!(node.value("SELECT count(*) FROM quorate_keys"), Value::Integer(0));
}

#[test]
fn keys_are_checked_at_the_time_of_the_entry() {
    let mut node = Node::with(SETUP);
    let at = START + 4 * 3600 * SECOND;
    node.propose(&Proposal::new(None, vec![keys(set("k", "1", Expiry::At(at)))])).unwrap();
    let version = Some(Version::new(node.next - 1, 0));
    // The query before it sees a time of its own.
    let time = "SELECT unixepoch()";
    let seen = Stamp { now: 7 * SECOND, seed: 0 };
    let query = ReadCheck { stamp: seen, ..gives(query(time, vec![]), &[7]) };
    let check = ReadCheck { stamp: seen, ..expect("k", version) };
    assert_eq!(node.next, 4);
    let late = node.propose(&pipeline(vec![query.clone(), check], "2")).unwrap_err();
    assert_eq!(late.kind, FailureKind::Conflict);
    node.propose(&pipeline(vec![query, expect("k", None)], "3")).unwrap();
}

#[test]
fn commands_on_keys_that_fail_conflict_and_those_that_write_are_refused() {
    let mut node = Node::with(SETUP);
    node.propose(&Proposal::new(None, vec![keys(set("k", "1", Expiry::Never))])).unwrap();
    let value = KeysReply::Value("1".into());
    let mut kind = |command: KeysCommand| node.propose(&with_checks(vec![replies(command, &value)], insert(9.into())));
    let count = KeyCommand::Count { key: "k".into(), kind: quorate_keys::Kind::List };
    assert_eq!(kind(KeysCommand::Key(count)).unwrap_err().kind, FailureKind::Conflict);
    assert_eq!(kind(get("gone")).unwrap_err().kind, FailureKind::Conflict);
    assert_eq!(kind(set("k", "2", Expiry::Never)).unwrap_err().kind, FailureKind::Refused);
    kind(get("k")).unwrap();
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(3));
}
