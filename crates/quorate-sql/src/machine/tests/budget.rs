//! The budget limit of a statement is the same whether it was already prepared, was just prepared, or is applied again.

use super::*;

const WORK: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) INSERT INTO t SELECT i FROM n";
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

fn with_budget(budget: u64, rows: i64) -> Proposal {
    Proposal { budget, ..Proposal::new(None, vec![SqlCommand::Statement(statement(WORK, vec![rows.into()])).into()]) }
}

fn node() -> Node {
    Node::with(&["CREATE TABLE t (a)"]).patient()
}

fn passes(node: &mut Node, budget: u64, rows: i64) -> bool {
    match node.propose(&with_budget(budget, rows)) {
        Ok(_) => true,
        Err(failure) => {
            let text = "the entry needs more steps than its budget has; do less at once, or ask for more (with_budget)";
            assert_eq!((failure.kind, failure.to_string().as_str()), (FailureKind::Budget, text));
            false
        }
    }
}

/// The smallest budget that suffices, found on a connection that keeps the statement prepared.
fn edge(rows: i64) -> u64 {
    let (mut fails, mut passes_at) = (0, 1 << 30);
    let mut node = node();
    while passes_at - fails > 1 {
        let middle = (fails + passes_at) / 2;
        if passes(&mut node, middle, rows) { passes_at = middle } else { fails = middle }
    }
    passes_at
}

#[test]
fn the_budget_limit_is_exact_in_every_case() {
    for rows in [1, 40, 1000, 20_000] {
        let edge = edge(rows);
        for budget in [edge - 1, edge] {
            let expected = budget == edge;
            // Already prepared: it ran before.
            let mut kept = node();
            assert!(passes(&mut kept, 1 << 30, 3));
            assert_eq!(passes(&mut kept, budget, rows), expected);
            // Prepared before the schema changed, and before a schema change that was rolled back.
            kept.ok("CREATE TABLE u (a)");
            assert_eq!(passes(&mut kept, budget, rows), expected);
            let statements = ["DROP TABLE u", "SELECT * FROM nowhere"].map(|sql| statement(sql, vec![]));
            kept.run(statements.into()).unwrap_err();
            assert_eq!(passes(&mut kept, budget, rows), expected);
            // Just prepared.
            kept.restart();
            assert_eq!(passes(&mut kept, budget, rows), expected);
            // Applied again, because another entry of the batch ends the transaction.
            let tables = ["CREATE TABLE t (a)", "CREATE TABLE r (a UNIQUE ON CONFLICT ROLLBACK)"];
            let mut again = Node::with(&tables).patient();
            let twice = single("INSERT INTO r VALUES (1), (1)");
            let outcomes = again.apply(&[entry(3, &with_budget(budget, rows)), entry(4, &twice)]);
            assert_eq!((outcomes[0].is_ok(), outcomes[1].is_ok()), (expected, false));
        }
    }
}

#[test]
fn the_budget_is_for_all_commands_of_an_entry() {
    let two = |budget| {
        let work = || Command::Sql(SqlCommand::Statement(statement(WORK, vec![1000.into()])));
        Proposal { budget, ..Proposal::new(None, vec![work(), work()]) }
    };
    let edge = edge(1000);
    let mut node = node();
    node.propose(&two(2 * edge)).unwrap();
    let failure = node.propose(&two(2 * edge - 1)).unwrap_err();
    assert_eq!((failure.kind, failure.command), (FailureKind::Budget, Some(1)));
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(2000));
}

#[test]
fn endless_statements_are_stopped() {
    let mut node = node();
    let endless = |sql: &str| Proposal { budget: 1_000_000, ..single(sql) };
    let insert = ENDLESS.replace("SELECT count(*)", "INSERT INTO t SELECT i");
    for sql in [ENDLESS, insert.as_str()] {
        let before = node.next;
        let outcomes = node.apply(&[entry(before, &with_budget(1 << 20, 1)), entry(before + 1, &endless(sql))]);
        assert!(outcomes[0].is_ok());
        assert_eq!(outcomes[1].as_ref().unwrap_err().kind, FailureKind::Budget);
    }
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(2));
    // Inside a virtual table, where only the node's own limit stops it.
    node.ok(&format!("CREATE VIEW v AS {}", ENDLESS.replace("count(*)", "i AS rowid, i AS body")));
    node.ok("CREATE VIRTUAL TABLE f USING fts5(body, content='v')");
    let failure = node.propose(&endless("INSERT INTO f (f) VALUES ('rebuild')")).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Budget);
    assert!(node.conn().is_autocommit());
}

#[test]
fn a_schema_check_that_takes_too_long_is_a_fault() {
    let name = "machine::tests::budget::a_schema_check_that_takes_too_long_is_a_fault";
    crate::usage::tests::in_its_own_process(name, check_without_time);
}

fn check_without_time() {
    let mut node = node();
    let columns: Vec<String> = (0..1950).map(|number| format!("a + {number} AS c{number}")).collect();
    node.ok(&format!("CREATE VIEW wide AS SELECT {} FROM t", columns.join(", ")));
    let entries = [entry(node.next, &single("CREATE TABLE u (a)"))];
    node.applier().machine().determinism.budget.allow(Some(std::time::Duration::ZERO));
    let fault = node.fault(&entries);
    assert!(matches!(fault, StoreFault::Slow(_)), "{fault}");
    node.applier().machine().determinism.budget.allow(None);
    assert!(node.apply(&entries)[0].is_ok());
}
