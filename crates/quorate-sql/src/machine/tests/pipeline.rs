//! Pipelines: each command succeeds or fails by itself, in one entry.

use super::*;

fn pipeline(texts: &[&str]) -> Proposal {
    Proposal { mode: Mode::Pipeline, ..Proposal::new(None, texts.iter().map(|sql| command(sql)).collect()) }
}

/// The kind of the failure of each command, `None` for one that succeeded.
fn kinds(outcome: &Outcome) -> Vec<Option<FailureKind>> {
    let results = &outcome.as_ref().unwrap().results;
    let kind = |(number, result): (usize, &CommandResult)| match result {
        CommandResult::Failed(failure) => {
            assert_eq!(failure.command, u32::try_from(number).ok(), "{failure:?}");
            Some(failure.kind)
        }
        _ => None,
    };
    results.iter().enumerate().map(kind).collect()
}

/// The contents of the table, in order.
fn rows(node: &Node) -> Vec<i64> {
    let mut query = node.conn().prepare("SELECT a FROM t ORDER BY a").unwrap();
    let rows = query.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

const SETUP: [&str; 2] = ["CREATE TABLE t (a INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (5)"];

#[test]
fn each_command_succeeds_or_fails_by_itself() {
    let mut node = Node::with(&SETUP);
    let texts = [
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (2), (5)",
        "INSERT INTO nowhere VALUES (1)",
        "INSERT INTO t SELECT count(*) + 10 FROM t",
    ];
    let outcome = node.propose(&pipeline(&texts));
    assert_eq!(kinds(&outcome), [None, Some(FailureKind::Constraint), Some(FailureKind::Sql), None]);
    assert_eq!(rows(&node), [1, 5, 12]);
}

/// This holds whatever else shares the transaction, and whether or not the entry ran ahead of its commit.
#[test]
fn commands_before_an_ended_transaction_are_kept() {
    let texts = ["INSERT INTO t VALUES (1)", "INSERT OR ROLLBACK INTO t VALUES (2), (5)", "INSERT INTO t VALUES (3)"];
    let run = |others: bool, ahead: bool| {
        let mut node = Node::with(&SETUP);
        let first = node.next;
        let mut proposals = vec![pipeline(&texts)];
        if others {
            proposals.insert(0, single("INSERT INTO t VALUES (20)"));
            proposals.push(single("INSERT INTO t VALUES (21)"));
        }
        let entries: Vec<_> = (first..).zip(&proposals).map(|(index, proposal)| entry(index, proposal)).collect();
        if ahead {
            node.applier().prefetch(&entries);
        }
        let outcomes = node.apply(&entries);
        let outcome = &outcomes[usize::from(others)];
        let expected: &[i64] = if others { &[1, 5, 20, 21] } else { &[1, 5] };
        assert_eq!(kinds(outcome), [None, Some(FailureKind::Constraint), Some(FailureKind::NotRun)]);
        assert_eq!(rows(&node), expected, "others {others}, ahead {ahead}");
        outcome.clone()
    };
    let expected = run(false, false);
    for (others, ahead) in [(false, true), (true, false), (true, true)] {
        assert_eq!(run(others, ahead), expected, "others {others}, ahead {ahead}");
    }
}

#[test]
fn an_exceeded_budget_keeps_the_earlier_commands() {
    let mut node = Node::with(&SETUP);
    let long =
        "INSERT INTO t WITH RECURSIVE c (n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM c LIMIT 100000) SELECT n FROM c";
    let texts = ["INSERT INTO t VALUES (1)", long, "INSERT INTO t VALUES (2)"];
    let outcome = node.propose(&Proposal { budget: 10_000, ..pipeline(&texts) });
    assert_eq!(kinds(&outcome), [None, Some(FailureKind::Budget), Some(FailureKind::NotRun)]);
    assert_eq!(rows(&node), [1, 5]);
}

#[test]
fn a_command_that_refers_to_a_failed_one_fails() {
    let mut node = Node::with(&SETUP);
    let refer = |step: u32| statement("INSERT INTO t SELECT ? + 50", vec![quorate_model::Step(step).column("a")]);
    let commands = vec![
        command("INSERT INTO t VALUES (5) RETURNING a"),
        SqlCommand::Statement(refer(0)).into(),
        command("INSERT INTO t VALUES (7) RETURNING a"),
        SqlCommand::Statement(refer(2)).into(),
    ];
    let outcome = node.propose(&Proposal { mode: Mode::Pipeline, ..Proposal::new(None, commands) });
    assert_eq!(kinds(&outcome), [Some(FailureKind::Constraint), Some(FailureKind::Sql), None, None]);
    let CommandResult::Failed(failure) = &outcome.unwrap().results[1] else { panic!("it succeeded") };
    assert_eq!(failure.message, "a parameter refers to the column a of statement 1, which failed");
    assert_eq!(rows(&node), [5, 7, 57]);
}

#[test]
fn an_open_deferred_key_fails_its_own_command() {
    let setup = [
        "CREATE TABLE parent (a INTEGER PRIMARY KEY)",
        "CREATE TABLE child (a REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
    ];
    let mut node = Node::with(&setup);
    let texts = ["INSERT INTO child VALUES (1)", "INSERT INTO parent VALUES (1)", "INSERT INTO child VALUES (1)"];
    let outcome = node.propose(&pipeline(&texts));
    assert_eq!(kinds(&outcome), [Some(FailureKind::ForeignKey), None, None]);
    assert_eq!(node.value("SELECT count(*) FROM child"), 1.into());
}

#[test]
fn a_retry_gets_the_results_of_each_command() {
    let mut node = Node::with(&SETUP);
    let session = node.next;
    node.propose(&open_session()).unwrap();
    let origin = Some(Origin { session: SessionId(session), sequence: 1, floor: 0 });
    let proposal = Proposal { origin, ..pipeline(&["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (5)"]) };
    let first = node.propose(&proposal);
    assert_eq!(kinds(&first), [None, Some(FailureKind::Constraint)]);
    node.restart();
    assert_eq!(node.propose(&proposal), first);
    assert_eq!(rows(&node), [1, 5]);
}

/// Whether the statement was interrupted while it wrote, or only found to be over at its end, must make no difference:
/// that depends on the node.
#[test]
fn each_way_to_exceed_the_budget_ends_a_pipeline() {
    let sum = "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 100000) SELECT sum(n) FROM c";
    let writes = "INSERT INTO t WITH RECURSIVE c (n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM c LIMIT 100000) \
                  SELECT n FROM c";
    let short =
        "INSERT INTO t WITH RECURSIVE c (n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM c LIMIT 20) SELECT n FROM c";
    for virtual_table in [false, true] {
        for (long, budget) in [(sum, 10_000), (writes, 10_000), (short, 100)] {
            let mut node = Node::with(&SETUP);
            if virtual_table {
                node.ok("CREATE VIRTUAL TABLE f USING fts5 (a)");
            }
            let texts = ["INSERT INTO t VALUES (1)", long, "INSERT INTO t VALUES (2)"];
            let outcome = node.propose(&Proposal { budget, ..pipeline(&texts) });
            assert_eq!(kinds(&outcome), [None, Some(FailureKind::Budget), Some(FailureKind::NotRun)], "{long}");
            assert_eq!(rows(&node), [1, 5], "{long}");
        }
    }
}

/// Else the outcome would not fit into a message, and its caller would never learn it.
#[test]
fn the_texts_of_many_failures_are_bounded() {
    let check = "x".repeat(1000);
    let mut node = Node::with(&[&format!("CREATE TABLE t (a CHECK (a <> '{check}' AND a > 0))")]);
    let texts = ["INSERT INTO t VALUES (-1)"; 500];
    let outcome = node.propose(&pipeline(&texts));
    let bytes = quorate_model::codec::encode_outcome(&outcome).len();
    assert!(bytes < 2 * quorate_model::limits::FAILURE_TEXTS_BYTES_MAX, "{bytes}");
    assert!(kinds(&outcome).iter().all(|kind| *kind == Some(FailureKind::Constraint)));
}

#[test]
fn commands_see_a_table_that_an_earlier_one_created() {
    let mut node = Node::with(&SETUP);
    let mut texts = vec!["CREATE TABLE IF NOT EXISTS u (a)"];
    texts.extend(["INSERT INTO u VALUES (1)"; 300]);
    let outcome = node.propose(&pipeline(&texts));
    assert!(kinds(&outcome).iter().all(Option::is_none));
    assert_eq!(node.value("SELECT count(*) FROM u"), 300.into());
}
