//! Bulk statements: the same results as one statement per row, or a failure that names the row.

use quorate_model::{Bulk, RowPacker, SqlCommand, SqlReply};

use super::*;

pub(super) fn bulk(sql: &str, rows: &[Vec<Value>]) -> Command {
    let mut packer = RowPacker::new(rows.first().map_or(1, Vec::len));
    for row in rows {
        row.iter().for_each(|value| packer.push(value.into()));
        packer.end_row().unwrap();
    }
    Command::Sql(SqlCommand::Bulk(Bulk { sql: sql.to_owned().into(), rows: packer.finish() }))
}

fn numbers(numbers: impl IntoIterator<Item = i64>) -> Vec<Vec<Value>> {
    numbers.into_iter().map(|number| vec![number.into()]).collect()
}

fn run(node: &mut Node, commands: Vec<Command>) -> Result<Vec<StatementResult>, Failure> {
    let results = |reply: Reply| {
        reply.results.into_iter().map(|result| match result {
            CommandResult::Sql(SqlReply::Statement(result)) => result,
            other => panic!("{other:?}"),
        })
    };
    node.propose(&Proposal::new(None, commands)).map(|reply| results(reply).collect())
}

#[test]
fn a_bulk_statement_counts_all_its_rows() {
    let mut node = Node::with(&["CREATE TABLE t (id INTEGER PRIMARY KEY, a, r DEFAULT (random()))"]);
    let insert = "INSERT INTO t (a) VALUES (?)";
    let commands = vec![
        bulk(insert, &numbers(10..13)),
        bulk("UPDATE t SET a = a + 1 WHERE a > ?", &numbers([11, 0])),
        bulk("DELETE FROM t WHERE a = ?", &numbers([11, 99])),
        bulk(insert, &[]),
        command("INSERT INTO t (a) VALUES (last_insert_rowid())"),
    ];
    let results = run(&mut node, commands).unwrap();
    let counted: Vec<_> = results.iter().map(|result| (result.changes, result.last_insert_rowid)).collect();
    assert_eq!(counted, [(3, 3), (4, 0), (1, 0), (0, 0), (1, 4)]);
    assert_eq!(node.value("SELECT group_concat(a) FROM t"), "12,14,3".into());
    assert_eq!(node.value("SELECT count(DISTINCT r) FROM t"), 3.into());
}

#[test]
fn a_row_that_fails_is_named_and_nothing_is_done() {
    let mut node = Node::with(&["CREATE TABLE t (a UNIQUE, CHECK (a < 100))", "CREATE TABLE v (a)"]);
    let before = node.hashes();
    let insert = "INSERT INTO t VALUES (?)";
    for (rows, row) in [(vec![1, 2, 1], 2), (vec![500, 1], 0), (vec![1, 2, 3, 100, 4], 3)] {
        let first = bulk("INSERT INTO v VALUES (?)", &numbers([1]));
        let failure = run(&mut node, vec![first, bulk(insert, &numbers(rows))]).unwrap_err();
        assert_eq!((failure.kind, failure.command, failure.row), (FailureKind::Constraint, Some(1), Some(row)));
        assert!(failure.to_string().starts_with(&format!("statement 2: row {}: ", row + 1)), "{failure}");
    }
    let failure = run(&mut node, vec![bulk("INSERT INTO v (rowid) VALUES (?)", &numbers([1, i64::MAX]))]).unwrap_err();
    assert_eq!((failure.kind, failure.row), (FailureKind::RowidExhausted, Some(1)));
    assert_eq!(node.hashes().0, before.0);

    // The same holds for a failure that ends the whole transaction.
    let failure = run(&mut node, vec![bulk("INSERT OR ROLLBACK INTO t VALUES (?)", &numbers([1, 1]))]).unwrap_err();
    assert_eq!((failure.kind, failure.row), (FailureKind::Constraint, Some(1)));
    assert_eq!(node.hashes().0, before.0);
}

#[test]
fn only_statements_that_write_rows_can_be_bulk() {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    for (sql, kind) in [
        ("SELECT ?", FailureKind::Refused),
        ("INSERT INTO t VALUES (?) RETURNING a", FailureKind::Refused),
        ("CREATE TABLE u AS SELECT ?", FailureKind::Refused),
        ("ANALYZE", FailureKind::Refused),
        ("INSERT INTO t VALUES (?), (?)", FailureKind::Sql),
        ("INSERT INTO missing VALUES (?)", FailureKind::Sql),
        ("EXPLAIN INSERT INTO t VALUES (?)", FailureKind::Refused),
        ("", FailureKind::Sql),
    ] {
        let failure = run(&mut node, vec![bulk(sql, &numbers([1]))]).unwrap_err();
        assert_eq!((failure.kind, failure.command, failure.row), (kind, Some(0), None), "{sql}: {failure}");
    }
    assert_eq!(node.value("SELECT count(*) FROM t"), 0.into());
}

#[test]
fn a_budget_is_for_all_rows_together() {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    let with =
        |budget| Proposal { budget, ..Proposal::new(None, vec![bulk("INSERT INTO t VALUES (?)", &numbers(0..5000))]) };
    let failure = node.propose(&with(20_000)).unwrap_err();
    assert_eq!((failure.kind, failure.command, failure.row), (FailureKind::Budget, Some(0), None));
    assert!(node.propose(&with(200_000)).is_ok());
    assert_eq!(node.value("SELECT count(*) FROM t"), 5000.into());
}
