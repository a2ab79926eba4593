//! Events in entries: of commands, of statements, and of triggers.

use quorate_model::events::limits::{ENTRY_EVENTS_MAX, PAYLOAD_BYTES_MAX};
use quorate_model::events::{EVENTS_LEVEL, EventId, EventsCommand, EventsReply};
use quorate_model::{DryRunRecord, ReadCheck};

use super::*;
use crate::events::Retention;

const SETUP: [&str; 3] = [
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE)",
    "CREATE TABLE child (t INTEGER REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)",
    "CREATE TRIGGER tell AFTER INSERT ON t BEGIN SELECT notify('t', new.a); END",
];

/// A node on whose state there are events.
fn node() -> Node {
    let mut node = Node::with(&SETUP);
    node.propose(&Proposal::new(None, vec![ControlCommand::Raise(EVENTS_LEVEL).into()])).unwrap();
    node
}

fn notify(channel: &str, payload: &'static str) -> Command {
    EventsCommand::Notify { channel: channel.to_owned(), payload: payload.into() }.into()
}

/// The events, as the view shows them: position, ordinal, channel and payload.
fn events(node: &Node) -> Vec<(i64, i64, String, String)> {
    let sql = "SELECT position, ordinal, channel, CAST(payload AS TEXT) FROM quorate_events ORDER BY id";
    let mut query = node.conn().prepare(sql).unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

/// What the events of the last entry say, in their order; their ordinals rise by one from 0.
fn last_events(node: &Node) -> Vec<String> {
    let last = i64::try_from(node.next - 1).unwrap();
    let events: Vec<_> = events(node).into_iter().filter(|event| event.0 == last).collect();
    assert!(events.iter().map(|event| event.1).eq(0..i64::try_from(events.len()).unwrap()), "{events:?}");
    events.into_iter().map(|event| event.3).collect()
}

#[test]
fn commands_statements_and_triggers_of_an_entry_add_their_events_in_order() {
    let mut node = node();
    let commands = vec![
        notify("c", "first"),
        command("SELECT notify('s', 'second')"),
        command("INSERT INTO t (a) VALUES ('third'), ('fourth')"),
        notify("c", "fifth"),
    ];
    let outcome = node.propose(&Proposal::new(None, commands)).unwrap();
    assert_eq!(last_events(&node), ["first", "second", "third", "fourth", "fifth"]);
    let index = node.next - 1;
    let notified = |ordinal| CommandResult::Events(EventsReply::Notified(EventId::new(index, ordinal)));
    assert_eq!((&outcome.results[0], &outcome.results[3]), (&notified(0), &notified(4)));
    node.ok("INSERT INTO t (a) VALUES ('next')");
    assert_eq!(last_events(&node), ["next"]);
}

#[test]
fn a_batch_that_fails_leaves_no_event() {
    let mut node = node();
    let commands =
        vec![notify("c", "x"), command("INSERT INTO t (a) VALUES (1)"), command("INSERT INTO t VALUES (1, 1)")];
    node.propose(&Proposal::new(None, commands)).unwrap_err();
    let open_key = vec![notify("c", "x"), command("INSERT INTO child VALUES (77)")];
    assert_eq!(node.propose(&Proposal::new(None, open_key)).unwrap_err().kind, FailureKind::ForeignKey);
    assert_eq!(node.fails("INSERT OR FAIL INTO t (a) VALUES ('y'), ('y')").kind, FailureKind::Constraint);
    assert_eq!(events(&node), []);
}

#[test]
fn the_commands_of_a_pipeline_add_their_events_one_by_one() {
    let mut node = node();
    let commands = vec![
        notify("c", "first"),
        command("INSERT INTO t (a) VALUES ('lost'), ('lost')"),
        command("INSERT INTO t (a) VALUES ('second')"),
        notify("c", "third"),
    ];
    node.propose(&Proposal { mode: Mode::Pipeline, ..Proposal::new(None, commands) }).unwrap();
    assert_eq!(last_events(&node), ["first", "second", "third"]);
    let commands =
        vec![notify("c", "kept"), command("INSERT OR ROLLBACK INTO t (a) VALUES ('second')"), notify("c", "no")];
    node.propose(&Proposal { mode: Mode::Pipeline, ..Proposal::new(None, commands) }).unwrap();
    assert_eq!(last_events(&node), ["kept"]);
}

/// The outcomes do not depend on how many entries share a transaction.
#[test]
fn entries_that_are_applied_together_add_the_same_events_as_one_by_one() {
    let texts =
        ["INSERT INTO t (a) VALUES (1)", "INSERT OR ROLLBACK INTO t (a) VALUES (2), (1)", "SELECT notify('c', 3)"];
    let mut nodes = [node(), node()];
    let first = nodes[0].next;
    let entries: Vec<_> = (first..).zip(texts).map(|(index, sql)| entry(index, &single(sql))).collect();
    nodes[0].apply(&entries);
    entries.chunks(1).for_each(|entry| drop(nodes[1].apply(entry)));
    assert_eq!(nodes[0].hashes(), nodes[1].hashes());
    let said: Vec<_> = events(&nodes[0]).into_iter().map(|event| (event.0, event.3)).collect();
    let index = i64::try_from(first).unwrap();
    assert_eq!(said, [(index, "1".to_owned()), (index + 2, "3".to_owned())]);
}

#[test]
fn a_dry_run_sees_the_events_that_its_entry_adds_and_leaves_none() {
    let mut node = node();
    let before = events(&node);
    let index = node.applier().applied().index();
    let (stamp, look) = (Stamp { now: START * 2, seed: 1 }, "SELECT count(*), max(position) FROM quorate_events");
    node.applier().begin_dry_run(1).unwrap();
    let texts = ["INSERT INTO t (a) VALUES ('x')", "SELECT notify('c', 'y')"];
    let ran = texts.map(|sql| node.applier().dry_run(1, stamp, command(sql)).unwrap());
    assert!(ran.iter().all(|ran| ran.recorded.is_some()), "{ran:?}");
    node.applier().dry_run(1, stamp, command("INSERT INTO t (a) VALUES ('z'), ('x')")).unwrap_err();
    let seen = node.applier().dry_run(1, stamp, command(look)).unwrap();
    assert_eq!(seen.recorded, None);
    node.applier().end_dry_run(1);
    assert_eq!(events(&node), before);
    let dry_run = Some(DryRunRecord { index, stamps: vec![ran[0].recorded.unwrap(), ran[1].recorded.unwrap()] });
    let proposal = Proposal { dry_run, ..Proposal::new(None, texts.map(command).into()) };
    let entry = stamped(index + 1, stamp.now, &proposal);
    let results = node.apply(&[entry]).remove(0).unwrap().results;
    assert!(results.iter().eq(ran.iter().map(|ran| &ran.result)));
    assert_eq!(last_events(&node), ["x", "y"]);
    assert_eq!(CommandResult::Sql(SqlReply::Statement(node.ok(look))), seen.result);
}

#[test]
fn the_function_is_unknown_until_the_level_of_events() {
    let mut node = Node::with(&SETUP);
    let unknown = |node: &mut Node| {
        for sql in ["SELECT notify('c', 'x')", "INSERT INTO t (a) VALUES (1)"] {
            let failure = node.fails(sql);
            assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Sql, "no such function: notify"));
        }
    };
    unknown(&mut node);
    let raise = Proposal::new(None, vec![ControlCommand::Raise(EVENTS_LEVEL).into()]);
    let index = node.next;
    let outcomes = node.apply(&[
        entry(index, &single("SELECT notify('c', 'x')")),
        entry(index + 1, &raise),
        entry(index + 2, &single("SELECT notify('c', 'x')")),
    ]);
    assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, true]);
    node.restart();
    node.ok("INSERT INTO t (a) VALUES (1)");
    assert_eq!(events(&node).len(), 2);
}

#[test]
fn what_is_no_event_fails_and_says_why() {
    let mut node = node();
    let failure = |node: &mut Node, sql: &str| {
        let failure = node.fails(sql);
        (failure.kind, failure.message)
    };
    let name = "the name of a channel has at least one character, and no control characters; choose another";
    assert_eq!(failure(&mut node, "SELECT notify('', 'x')"), (FailureKind::Refused, name.to_owned()));
    let text = "the first argument of notify() is the name of a channel, a text in UTF-8";
    assert_eq!(failure(&mut node, "SELECT notify(NULL, 'x')"), (FailureKind::Refused, text.to_owned()));
    let large = format!("SELECT notify('c', zeroblob({}))", PAYLOAD_BYTES_MAX + 1);
    assert_eq!(failure(&mut node, &large).0, FailureKind::TooBig);
    let series = "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s LIMIT";
    let many = |count: usize| format!("{series} {count}) SELECT count(notify('c', n)) FROM s");
    assert_eq!(failure(&mut node, &many(ENTRY_EVENTS_MAX + 1)).0, FailureKind::TooBig);
    let batch = vec![notify("c", "x"), command(&many(ENTRY_EVENTS_MAX))];
    assert_eq!(node.propose(&Proposal::new(None, batch)).unwrap_err().kind, FailureKind::TooBig);
    let bytes = format!("{series} 17) SELECT count(notify('c', zeroblob(1048576))) FROM s");
    assert_eq!(failure(&mut node, &bytes).0, FailureKind::TooBig);
    assert_eq!(events(&node), []);
    node.ok(&many(ENTRY_EVENTS_MAX));
    assert_eq!(last_events(&node).len(), ENTRY_EVENTS_MAX);
}

#[test]
fn a_read_check_can_not_add_an_event() {
    let mut node = node();
    let read = quorate_model::Read::Sql(Statement { sql: "SELECT notify('c', 'x')".into(), ..Statement::default() });
    let check = ReadCheck { read, stamp: Stamp::default(), answer: 0 };
    let proposal = Proposal { read_checks: vec![check], ..single("INSERT INTO t (a) VALUES (1)") };
    assert_eq!(node.propose(&proposal).unwrap_err().kind, FailureKind::Refused);
    assert_eq!(events(&node), []);
}

#[test]
fn users_can_not_write_the_events_or_take_the_function_away() {
    let mut node = node();
    assert_eq!(node.fails("DELETE FROM quorate_events").kind, FailureKind::Sql);
    for sql in ["DELETE FROM _quorate_events", "SELECT id FROM _quorate_events", "DROP VIEW quorate_events"] {
        assert_eq!(node.fails(sql).kind, FailureKind::Refused, "{sql}");
    }
    node.ok(
        "CREATE TRIGGER again AFTER INSERT ON child BEGIN INSERT INTO t (a) SELECT count(*) FROM quorate_events; END",
    );
}

#[test]
fn adding_events_leaves_the_last_rowid_as_it_is() {
    let mut node = node();
    node.ok("INSERT INTO t VALUES (40, 'x')");
    let batch =
        vec![command("INSERT INTO t VALUES (41, 'y')"), notify("c", "z"), command("SELECT last_insert_rowid()")];
    let outcome = node.propose(&Proposal::new(None, batch)).unwrap();
    let CommandResult::Sql(SqlReply::Statement(result)) = &outcome.results[2] else { panic!("{outcome:?}") };
    assert_eq!(result.rows[0][0], Value::Integer(41));
}

#[test]
fn a_trigger_that_runs_dry_of_budget_leaves_no_event() {
    let mut node = node();
    let slow =
        "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s) SELECT notify('c', n) FROM s LIMIT 60000";
    let outcome = node.propose(&Proposal { budget: 10_000, ..single(slow) });
    assert_eq!(outcome.unwrap_err().kind, FailureKind::Budget);
    assert_eq!(events(&node), []);
    let poor = Proposal { budget: 10, ..Proposal::new(None, vec![notify("c", "x")]) };
    assert_eq!(node.propose(&poor).unwrap_err().kind, FailureKind::Budget);
}

#[test]
fn the_oldest_events_go_first() {
    let mut node = node();
    let conn = connection::open_writer(&node.generations.current(), 1 << 20).unwrap();
    node.applier = None;
    let machine = SqlMachine::open(conn, &IDENTITY, &Extensions::default()).unwrap();
    let machine = machine.keeping_events(Retention { events: 3, bytes: 300 });
    node.applier = Some(Applier::new(machine, FORMAT_LEVEL).unwrap());
    for payload in ["1", "2", "3", "4"] {
        node.propose(&Proposal::new(None, vec![notify("c", payload)])).unwrap();
    }
    let said = |node: &Node| events(node).into_iter().map(|event| event.3).collect::<Vec<_>>();
    assert_eq!(said(&node), ["2", "3", "4"]);
    node.ok("SELECT notify('c', printf('%.*c', 150, 'x')), notify('c', 'z')");
    assert_eq!(said(&node), ["x".repeat(150), "z".to_owned()]);
}
