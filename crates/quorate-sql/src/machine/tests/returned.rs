//! Parameters that take the values that an earlier statement of the entry returned.

use quorate_model::{Param, Step};

use super::*;

fn inserted(sql: &str, params: Vec<Param>) -> Statement<Param> {
    statement(&format!("INSERT INTO t (a) {sql} RETURNING id, a, a AS \"A\""), params)
}

#[test]
fn a_parameter_is_what_an_earlier_statement_returned() {
    let mut node = Node::with(&["CREATE TABLE t (id INTEGER PRIMARY KEY, a)"]);
    let blob = Value::from(vec![0, 255]);
    let by_name = Statement {
        params: vec![Step(1).column("a"), Step(0).column(0)],
        names: vec![":text".to_owned(), ":id".to_owned()],
        ..inserted("VALUES (:id || ' ' || :text)", vec![])
    };
    let statements = vec![
        inserted("VALUES (?)", vec!["x".into()]),
        inserted("VALUES (?)", vec![Step(0).column("A")]),
        by_name,
        inserted("VALUES (?)", vec![blob.clone().into()]),
        inserted("VALUES (?)", vec![Step(3).column(1)]),
    ];
    node.run(statements).unwrap();
    let seen = node.ok("SELECT a FROM t ORDER BY id").rows.concat();
    assert_eq!(seen, ["x".into(), "x".into(), "1 x".into(), blob.clone(), blob]);
}

#[test]
fn an_invalid_reference_undoes_its_entry() {
    let mut node = Node::with(&["CREATE TABLE t (id INTEGER PRIMARY KEY, a)"]);
    let one = || inserted("VALUES (7)", vec![]);
    let two = || inserted("VALUES (7), (8)", vec![]);
    let none = || statement("INSERT INTO t (a) VALUES (7)", vec![]);
    let of = |column: Param| statement("INSERT INTO t (a) VALUES (?)", vec![column]);
    let id = || Step(0).column("id");
    let cases = [
        (vec![two(), of(id())], "the column id of statement 1, which returned 2 rows: it must return exactly one row"),
        (vec![none(), of(id())], "the column id of statement 1, which returned 0 rows: it must return exactly one row"),
        (vec![one(), of(Step(0).column("b"))], "the column b of statement 1, which returned only the columns id, a, A"),
        (
            vec![one(), of(Step(0).column(3))],
            "column number 3 of statement 1, which returned only the columns id, a, A",
        ),
        (vec![of(id())], "the column id of statement 1, which does not come before it in its batch"),
        (vec![one(), of(Step(1).column("id"))], "the column id of statement 2, which does not come before it"),
        (vec![one(), of(Step(u32::MAX).column("id"))], "which does not come before it in its batch"),
    ];
    for (statements, text) in cases {
        let last = u32::try_from(statements.len() - 1).unwrap();
        let failure = node.run(statements).unwrap_err();
        assert_eq!((failure.kind, failure.command), (FailureKind::Sql, Some(last)));
        assert!(failure.message.starts_with("a parameter refers to "), "{failure}");
        assert!(failure.message.contains(text), "{failure}\n{text}");
    }
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(0));
}
