//! Statements that would run, grow or recurse without bound: each fails with a reason or is done soon, alike on all
//! nodes, and the next entry is applied.

use std::time::{Duration, Instant};

use super::*;

/// How long one of these may take here: without much optimization, on a machine with other work.
const SOON: Duration = Duration::from_secs(30);

/// Statements and what a failure says, of those that fail.
const HOSTILE: &[(&str, Option<&str>)] = &[
    ("INSERT INTO pad (b) SELECT printf('%.*c', 60000, 'a') LIKE replace(printf('%.*c', 24999, 'x'), 'x', '%a')", None),
    ("INSERT INTO pad (b) SELECT printf('%.*c', 60000, 'a') GLOB replace(printf('%.*c', 24999, 'x'), 'x', '*a')", None),
    ("INSERT INTO pad (b) SELECT instr(zeroblob(3000000), zeroblob(1500000) || x'01')", None),
    (
        "INSERT INTO pad (b) SELECT printf('%.*c', 3000000, 'a') LIKE '%' || printf('%.*c', 25000, 'a') || 'b'",
        Some("LIKE: this pattern needs too many comparisons for a value of 3000000 bytes"),
    ),
    (
        "INSERT INTO pad (b) SELECT length(replace(printf('%.*c', 3000000, 'a'), printf('%.*c', 1500000, 'a') || 'b', ''))",
        None,
    ),
    ("INSERT INTO pad (b) SELECT replace(printf('%.*c', 9000, 'a'), 'a', printf('%.*c', 9000, 'a'))", Some("too big")),
    (
        "INSERT INTO pad (b) SELECT length(json_group_array(printf('%.*c', 10000000, 'a'))) FROM
            (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 400) SELECT x FROM c)",
        Some("too big"),
    ),
];

fn proposal(sql: &str) -> Proposal {
    Proposal::new(None, vec![Command::Statement(statement(sql, vec![]))])
}

#[test]
fn hostile_statements_fail_or_are_done_soon_and_alike() {
    let run = |size: usize| {
        let mut node = Node::with(&["CREATE TABLE pad (b)"]);
        let proposals: Vec<Proposal> =
            HOSTILE.iter().flat_map(|(sql, _)| [proposal(sql), proposal("INSERT INTO pad VALUES (1)")]).collect();
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
    for (pair, (sql, reason)) in alone.0.chunks(2).zip(HOSTILE) {
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
