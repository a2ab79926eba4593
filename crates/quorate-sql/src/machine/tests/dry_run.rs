//! Dry runs: the entry of an interactive transaction returns what its dry run returned, or it does nothing.

use proptest::prelude::*;
use quorate_apply::{DryRunError, DryRunResult};
use quorate_model::DryRunRecord;

use super::*;

const SETUP: &[&str] = &[
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE, b)",
    "CREATE TABLE log (what)",
    "CREATE TRIGGER note AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.a || ' ' || random()); END",
    "INSERT INTO t (a) VALUES (1), (2)",
];

/// Statements that write, fail at once or half-way, end the transaction, read the counters, or only read.
const STATEMENTS: &[&str] = &[
    "INSERT INTO t (a, b) VALUES (random() % 5, changes()) RETURNING *",
    "INSERT INTO t (a, b) VALUES (abs(random()) % 50, last_insert_rowid()) RETURNING id, b",
    "INSERT OR FAIL INTO t (a) VALUES (random() % 1000), (1)",
    "INSERT OR ROLLBACK INTO t (a) VALUES (1)",
    "INSERT OR REPLACE INTO t (a, b) VALUES (2, total_changes())",
    "UPDATE t SET b = coalesce(b, 0) + changes() + 1 WHERE id > 1",
    "UPDATE t SET a = 1",
    "DELETE FROM t WHERE a = 3 OR b > 40",
    "SELECT a, changes(), total_changes(), last_insert_rowid() FROM t, log",
    "SELECT no_such_column FROM t",
    "CREATE TABLE other (x DEFAULT (random()))",
    "INSERT INTO other DEFAULT VALUES RETURNING x",
    "DROP TABLE other",
    "CREATE INDEX IF NOT EXISTS by_b ON t (b)",
];

/// The recorded statements with their stamps and results.
#[derive(Default)]
struct Recorded {
    commands: Vec<Command>,
    stamps: Vec<Stamp>,
    results: Vec<CommandResult>,
}

impl Recorded {
    fn add(&mut self, sql: &str, ran: DryRunResult) {
        if let Some(stamp) = ran.recorded {
            self.commands.push(command(sql));
            self.stamps.push(stamp);
            self.results.push(ran.result);
        }
    }

    fn proposal(&self, index: u64) -> Proposal {
        let dry_run = Some(DryRunRecord { index, stamps: self.stamps.clone() });
        Proposal { dry_run, ..Proposal::new(None, self.commands.clone()) }
    }
}

impl Node {
    fn applied(&mut self) -> u64 {
        self.applier().applied().index()
    }

    fn dry_run(&mut self, number: u64, sql: &str, seed: u64) -> Result<DryRunResult, DryRunError> {
        self.applier().dry_run(number, Stamp { now: START, seed }, command(sql))
    }

    /// Dry-runs statements, of which some may fail.
    fn dry_run_all(&mut self, statements: &[usize]) -> Recorded {
        let mut recorded = Recorded::default();
        self.applier().begin_dry_run(7).unwrap();
        for (seed, number) in (100..).zip(statements) {
            match self.dry_run(7, STATEMENTS[*number], seed) {
                Ok(ran) => recorded.add(STATEMENTS[*number], ran),
                Err(DryRunError::Failed(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        recorded
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_node_repeats_the_dry_run(statements in prop::collection::vec(0..STATEMENTS.len(), 0..12)) {
        let (mut node, mut other) = (Node::with(SETUP), Node::with(SETUP));
        let before = node.applied();
        let recorded = node.dry_run_all(&statements);
        let proposal = recorded.proposal(before);
        let outcome = node.propose(&proposal).unwrap();
        prop_assert_eq!(outcome.results.to_vec(), recorded.results);
        prop_assert_eq!(Ok(outcome), other.propose(&proposal));
        prop_assert_eq!(node.hashes(), other.hashes());
        prop_assert_eq!(node.ok(STATEMENTS[8]), other.ok(STATEMENTS[8]));
    }
}

#[test]
fn an_entry_in_between_aborts_it() {
    let mut node = Node::with(SETUP);
    let before = node.applied();
    let proposal = node.dry_run_all(&[0, 5]).proposal(before);
    node.ok("INSERT INTO log VALUES ('another')");
    let failure = node.propose(&proposal).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Aborted);
    let text = "another write came between its statements and its commit";
    assert_eq!(failure.to_string(), text);
    assert_eq!(node.value("SELECT count(*) FROM t"), 2.into());
    // A second proposal of the same dry run is aborted too.
    let before = node.applied();
    let proposal = node.dry_run_all(&[1]).proposal(before);
    node.propose(&proposal).unwrap();
    assert_eq!(node.propose(&proposal).unwrap_err().kind, FailureKind::Aborted);
}

#[test]
fn a_later_clock_in_the_dry_run_aborts_it() {
    let mut node = Node::with(SETUP);
    let index = node.applied();
    let dry_run = Some(DryRunRecord { index, stamps: vec![Stamp { now: u64::MAX, seed: 0 }] });
    let commands = vec![command("DELETE FROM t")];
    let failure = node.propose(&Proposal { dry_run, ..Proposal::new(None, commands) }).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Aborted);
}

#[test]
fn other_use_of_the_connection_ends_a_dry_run() {
    let mut node = Node::with(SETUP);
    let next = node.next;
    let blank = || Entry { log_id: log_id(next), payload: Payload::Blank };
    let others: [&dyn Fn(&mut Node); 5] = [
        &|node| node.applier().prefetch(&[blank()]),
        &|node| node.applier().give_way(),
        &|node| node.applier().begin_dry_run(8).unwrap(),
        &|node| node.applier().end_dry_run(7),
        &|node| drop(node.apply(&[blank()])),
    ];
    for other in others {
        node.dry_run_all(&[0, 1]);
        other(&mut node);
        assert_eq!(node.dry_run(7, STATEMENTS[8], 1), Err(DryRunError::Over));
        assert_eq!(node.dry_run(7, STATEMENTS[0], 1), Err(DryRunError::Over));
    }
    assert_eq!(node.value("SELECT count(*) FROM t"), 2.into());
}

#[test]
fn a_dry_run_refuses_what_an_entry_refuses() {
    let mut node = Node::with(SETUP);
    node.applier().begin_dry_run(1).unwrap();
    for sql in
        ["COMMIT", "SAVEPOINT x", "VACUUM", "ATTACH 'x' AS x", "PRAGMA foreign_keys = 0", "DROP TABLE _quorate_applied"]
    {
        let refused = node.dry_run(1, sql, 1).unwrap_err();
        assert!(
            matches!(&refused, DryRunError::Failed(failure) if failure.kind == FailureKind::Refused),
            "{sql}: {refused}"
        );
    }
    node.dry_run(1, STATEMENTS[1], 1).unwrap();
}

#[test]
fn a_dry_run_goes_on_after_a_slow_statement_fails() {
    let mut node = Node::with(SETUP);
    node.applier().begin_dry_run(1).unwrap();
    node.dry_run(1, STATEMENTS[1], 1).unwrap();
    node.applier().machine().determinism.budget.allow(Some(std::time::Duration::ZERO));
    let work = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9999) SELECT count(*) FROM n";
    let failed = node.dry_run(1, work, 2).unwrap_err();
    assert!(matches!(&failed, DryRunError::Failed(failure) if failure.kind == FailureKind::Budget), "{failed}");
    node.applier().machine().determinism.budget.allow(None);
    node.dry_run(1, work, 3).unwrap();
}
