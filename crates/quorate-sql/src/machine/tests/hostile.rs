//! Statements that would run, grow or recurse without bound. Each fails with a reason or is done soon, in the same way
//! on all nodes, and the next entry is applied.

#![allow(clippy::disallowed_methods, reason = "tests run threads and measure time of their own")]

use std::time::{Duration, Instant};

use quorate_model::limits::BUDGET_DEFAULT;

use super::*;
use crate::readers::ReadError;
use crate::{hostile, stack};

/// How long one of these may take in a slightly optimized build on a machine with other work.
const SOON: Duration = Duration::from_secs(30);

/// A small stack, such as a thread of the program may have.
const STACK_BYTES: usize = 512 << 10;

fn proposal(sql: &str) -> Proposal {
    single(sql)
}

#[test]
fn hostile_statements_end_soon_and_deterministically() {
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
fn functions_count_exact_steps() {
    let sql = "INSERT INTO pad SELECT instr(b, 'x') FROM (SELECT zeroblob(100000) AS b)";
    let passes = |node: &mut Node, budget| node.propose(&Proposal { budget, ..proposal(sql) }).is_ok();
    let (mut node, mut fails, mut edge) = (Node::with(&["CREATE TABLE pad (b)"]), 0, 1 << 20);
    while edge - fails > 1 {
        let middle = (fails + edge) / 2;
        if passes(&mut node, middle) { edge = middle } else { fails = middle }
    }
    // One step for 16 bytes.
    assert!((100_000 / 16..100_000 / 8).contains(&edge), "{edge}");
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
    // The largest size that a statement may have.
    node.ok(&format!("INSERT INTO pad VALUES (1){}", ",(1)".repeat(260_000)));
    node.ok(&format!("INSERT INTO pad SELECT 1 WHERE 1 IN (2{}, 1)", ",'a'".repeat(250_000)));
    node.ok(&format!("SELECT 1 FROM pad WHERE b = 0{}", " OR b = 1".repeat(990)));
}

#[test]
fn a_near_query_with_too_many_terms_is_refused() {
    let fox = |count: usize| format!("NEAR({}, 32767)", "fox ".repeat(count));
    let document = format!("INSERT INTO ft VALUES ('{}')", "fox ".repeat(1000));
    let mut node = Node::with(&["CREATE VIRTUAL TABLE ft USING fts5 (body)", &document]);
    let literal = format!("DELETE FROM ft WHERE ft MATCH '{}'", fox(32767));
    assert_eq!(node.fails(&literal).kind, FailureKind::TooBig);
    for sql in ["DELETE FROM ft WHERE ft MATCH ?", "DELETE FROM ft WHERE rowid IN (SELECT rowid FROM ft(?))"] {
        let with = |value: Value| {
            Proposal::new(None, vec![SqlCommand::Statement(statement(sql, vec![Param::Value(value)])).into()])
        };
        for value in [Value::Text(fox(32767)), Value::from(fox(32767).into_bytes())] {
            assert_eq!(node.propose(&with(value)).unwrap_err().kind, FailureKind::TooBig, "{sql}");
        }
    }
    node.ok(&format!("DELETE FROM ft WHERE ft MATCH '{}'", fox(32)));
    assert_eq!(node.ok("SELECT count(*) FROM ft").rows, [[Value::Integer(0)]]);
}

/// Runs a closure on a small stack.
fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap();
}

#[test]
fn deep_statements_fit_a_small_stack() {
    on_a_small_stack(|| {
        let setup = ["CREATE TABLE t (id, name)", "INSERT INTO t VALUES (1, 'a')", "CREATE TABLE pad (b)"];
        let mut node = Node::with(&setup).patient();
        for sql in hostile::deep() {
            // It may succeed or fail, but must not end the process.
            let _ = node.sql(&format!("INSERT INTO pad SELECT 1 FROM ({sql})"));
            let _ = node.sql(&sql);
        }
        node.ok("INSERT INTO pad VALUES (1)");
    });
}

/// A schema whose parts refer to each other in a chain.
struct Chain {
    first: &'static str,
    /// The next part, which refers to the one with the second number.
    next: fn(usize, usize) -> String,
    /// A statement that goes through this many parts.
    last: fn(usize) -> String,
}

const CHAINS: [Chain; 5] = [
    Chain {
        first: "CREATE TABLE v0 (a)",
        next: |n, before| format!("CREATE VIEW v{n} AS SELECT a FROM v{before}"),
        last: |depth| format!("SELECT * FROM v{depth}"),
    },
    Chain {
        first: "CREATE TABLE v0 (a)",
        next: |n, before| {
            let insert = format!("INSERT INTO v{before} VALUES (NEW.a)");
            format!("CREATE TABLE v{n} (a); CREATE TRIGGER g{n} AFTER INSERT ON v{n} BEGIN {insert}; END")
        },
        last: |depth| format!("INSERT INTO v{depth} VALUES (1)"),
    },
    Chain {
        first: "CREATE TABLE v0 (a PRIMARY KEY)",
        next: |n, before| {
            format!("CREATE TABLE v{n} (a PRIMARY KEY REFERENCES v{before} ON UPDATE CASCADE ON DELETE CASCADE)")
        },
        last: |depth| format!("UPDATE v{} SET a = a + 1", 1099 - depth),
    },
    Chain {
        first: "CREATE TABLE v0 (a)",
        next: |n, before| {
            let insert = format!("INSERT INTO v{before} SELECT NEW.a");
            let view = format!("CREATE VIEW v{n} AS SELECT a FROM v{before}");
            format!("{view}; CREATE TRIGGER g{n} INSTEAD OF INSERT ON v{n} BEGIN {insert}; END")
        },
        last: |depth| format!("INSERT INTO v{depth} VALUES (1)"),
    },
    Chain {
        first: "CREATE TABLE v0 (a)",
        next: |n, before| format!("CREATE VIEW v{n} AS SELECT sum(a) AS a FROM v{before}"),
        last: |depth| format!("DELETE FROM v0 WHERE a IN v{depth}"),
    },
];

/// Runs a statement with a larger budget: SQLite is slow here, and the machine may be busy.
fn with_large_budget(node: &mut Node, sql: &str) -> Outcome {
    node.propose(&Proposal { budget: 4 * BUDGET_DEFAULT, ..proposal(sql) })
}

#[test]
fn long_chains_fit_a_small_stack() {
    for Chain { first, next, last } in CHAINS {
        on_a_small_stack(move || {
            let mut node = Node::with(&[first]).patient();
            // In one transaction, because each schema change checks the whole schema.
            let schema: String = (1..1100).map(|n| next(n, n - 1) + ";").collect();
            let execute = || node.conn().execute_batch(&format!("BEGIN; {schema} COMMIT")).map_err(ReadError::from);
            stack::for_write(execute).unwrap();
            node.restart();
            for depth in [300, 900, 1099] {
                // It may succeed or fail, but must not end the process.
                let _ = with_large_budget(&mut node, &last(depth));
            }
            let _ = with_large_budget(&mut node, "ALTER TABLE v0 RENAME TO w0");
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
