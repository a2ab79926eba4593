//! Statements that would run, grow or recurse without bound: each fails with a reason or is done soon, alike on all
//! nodes, and the next entry is applied.

#![allow(clippy::disallowed_methods, reason = "tests run threads and measure time of their own")]

use std::time::{Duration, Instant};

use super::*;
use crate::hostile;

/// How long one of these may take here: without much optimization, on a machine with other work.
const SOON: Duration = Duration::from_secs(30);

/// A small stack, as a thread of the program may have.
const STACK_BYTES: usize = 512 << 10;

fn proposal(sql: &str) -> Proposal {
    Proposal::new(None, vec![Command::Statement(statement(sql, vec![]))])
}

#[test]
fn hostile_statements_fail_or_are_done_soon_and_alike() {
    let writes = hostile::FUNCTIONS.map(|(sql, reason)| (format!("INSERT INTO pad (b) {sql}"), reason));
    let run = |size: usize| {
        let mut node = Node::with(&["CREATE TABLE pad (b)"]);
        let proposals: Vec<Proposal> =
            writes.iter().flat_map(|(sql, _)| [proposal(sql), proposal("INSERT INTO pad VALUES (1)")]).collect();
        let mut outcomes = Vec::new();
        for batch in proposals.chunks(size) {
            let begun = Instant::now();
            let entries: Vec<Entry> =
                batch.iter().zip(node.next..).map(|(proposal, index)| entry(index, proposal)).collect();
            outcomes.extend(node.apply(&entries));
            assert!(begun.elapsed() < SOON * u32::try_from(size).unwrap(), "{:?}: {batch:?}", begun.elapsed());
        }
        (outcomes, node.hashes())
    };
    let alone = run(1);
    assert_eq!(run(3), alone);
    for (pair, (sql, reason)) in alone.0.chunks(2).zip(&writes) {
        match (&pair[0], reason) {
            (Err(failure), Some(reason)) => assert!(failure.message.contains(reason), "{sql}: {failure}"),
            (outcome, reason) => assert_eq!((outcome.is_ok(), reason), (true, &None), "{sql}: {outcome:?}"),
        }
        assert!(pair[1].is_ok());
    }
}

#[test]
fn functions_use_up_the_budget_exactly() {
    let sql = "INSERT INTO pad SELECT instr(b, 'x') FROM (SELECT zeroblob(100000) AS b)";
    let passes = |node: &mut Node, budget| node.propose(&Proposal { budget, ..proposal(sql) }).is_ok();
    let (mut node, mut fails, mut edge) = (Node::with(&["CREATE TABLE pad (b)"]), 0, 1 << 20);
    while edge - fails > 1 {
        let middle = (fails + edge) / 2;
        if passes(&mut node, middle) { edge = middle } else { fails = middle }
    }
    // A step for 64 bytes.
    assert!((100_000 / 64..100_000 / 32).contains(&edge), "{edge}");
    node.restart();
    assert!(!passes(&mut node, edge - 1));
    assert!(passes(&mut node, edge));
}

#[test]
fn a_statement_that_takes_long_to_prepare_is_refused() {
    let mut node = Node::with(&["CREATE TABLE t (id, name)", "CREATE TABLE pad (b)"]);
    let begun = Instant::now();
    let failure = node.fails(&format!("INSERT INTO pad {}", hostile::doubling()));
    assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    // As large as a statement may be.
    node.ok(&format!("INSERT INTO pad VALUES (1){}", ",(1)".repeat(260_000)));
    node.ok(&format!("INSERT INTO pad SELECT 1 WHERE 1 IN (2{}, 1)", ",'a'".repeat(250_000)));
    node.ok(&format!("SELECT 1 FROM pad WHERE b = 0{}", " OR b = 1".repeat(990)));
}

/// Runs this on a small stack.
fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap();
}

#[test]
fn deep_statements_fit_a_small_stack() {
    on_a_small_stack(|| {
        let mut node =
            Node::with(&["CREATE TABLE t (id, name)", "INSERT INTO t VALUES (1, 'a')", "CREATE TABLE pad (b)"]);
        for sql in hostile::deep() {
            // It succeeds or not; neither ends the node.
            let _ = node.sql(&format!("INSERT INTO pad SELECT 1 FROM ({sql})"));
            let _ = node.sql(&sql);
        }
        node.ok("INSERT INTO pad VALUES (1)");
    });
}

#[test]
fn long_chains_fit_a_small_stack() {
    let chains: [(&str, fn(usize) -> String, &str); 5] = [
        ("CREATE TABLE v0 (a)", |n| format!("CREATE VIEW v{n} AS SELECT a FROM v{}", n - 1), "SELECT * FROM v"),
        (
            "CREATE TABLE v0 (a)",
            |n| {
                let last = n - 1;
                format!(
                    "CREATE TABLE v{n} (a); CREATE TRIGGER g{n} AFTER INSERT ON v{n} BEGIN
                         INSERT INTO v{last} VALUES (NEW.a); END"
                )
            },
            "INSERT INTO v VALUES (1)",
        ),
        (
            "CREATE TABLE v0 (a PRIMARY KEY)",
            |n| format!("CREATE TABLE v{n} (a PRIMARY KEY REFERENCES v{} ON UPDATE CASCADE ON DELETE CASCADE)", n - 1),
            "DELETE FROM v0",
        ),
        (
            "CREATE TABLE v0 (a)",
            |n| {
                let last = n - 1;
                format!(
                    "CREATE VIEW v{n} AS SELECT a FROM v{last}; CREATE TRIGGER g{n} INSTEAD OF INSERT ON v{n} BEGIN
                         INSERT INTO v{last} SELECT NEW.a; END"
                )
            },
            "INSERT INTO v VALUES (1)",
        ),
        ("CREATE TABLE v0 (a)", |n| format!("CREATE VIEW v{n} AS SELECT sum(a) AS a FROM v{}", n - 1), "DROP TABLE v0"),
    ];
    for (first, next, last) in chains {
        on_a_small_stack(move || {
            // The schema is made at once: each change of it looks at all of it.
            let mut node = Node::with(&[first]);
            let schema: String = (1..1100).map(|n| next(n) + ";").collect();
            node.conn().execute_batch(&format!("BEGIN; {schema} COMMIT")).unwrap();
            node.restart();
            for depth in [300, 900, 1099] {
                let _ = node.sql(&last.replace(" v", &format!(" v{depth}")).replace(&format!("v{depth}0"), "v0"));
            }
            let _ = node.sql("ALTER TABLE v0 RENAME TO w0");
            node.ok("CREATE TABLE x (a)");
        });
    }
}

#[test]
fn generated_columns_are_limited() {
    on_a_small_stack(|| {
        let table = |count: usize| {
            let columns: String = (1..=count).map(|n| format!(", c{n} AS (c{} + 1)", n - 1)).collect();
            format!("CREATE TABLE g (c0{columns})")
        };
        let mut node = Node::new();
        assert_eq!(node.fails(&table(501)).kind, FailureKind::TooBig);
        node.ok(&table(500));
        node.ok("INSERT INTO g VALUES (1)");
        assert_eq!(node.value("SELECT c500 FROM g"), Value::Integer(501));
    });
}
