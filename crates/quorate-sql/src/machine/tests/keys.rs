//! Commands of keys in entries, and what SQL sees of them.

use quorate_apply::suite::{self, Act, Fixture};
use quorate_apply::{Scope, Stores};
use quorate_keys::{
    Collection, Condition, ElementCommand, End, Expiry, ExpiryCondition, HashCommand, KeyCommand, KeysCommand,
    KeysReply, ListCommand, SortedSetCommand, StringCommand,
};
use quorate_model::RequestKey;
use quorate_model::keys::SpaceCommand;

use super::suite::InFile;
use super::*;
use crate::keys::tests::{get, one_of_each, set};
use crate::keys::{topic, topic_of_changes, topic_of_space};

mod changes;
mod cost;
mod views;

/// A command on the keys of space 0.
fn keys(command: KeysCommand) -> Command {
    SpaceCommand { space: 0, command }.into()
}

fn alone(command: KeysCommand) -> Proposal {
    Proposal::new(None, vec![keys(command)])
}

fn delete(names: &[&'static str]) -> KeysCommand {
    let names = names.iter().map(|name| (*name).into()).collect();
    KeysCommand::Key(KeyCommand::Delete { keys: names, condition: Condition::Always })
}

/// Fails on a string.
fn push(key: &'static str) -> KeysCommand {
    let (key, values) = (key.into(), vec!["v".into()]);
    KeysCommand::List(ListCommand::Push { key, values, end: End::Left, existing: false })
}

fn reply(outcome: &Outcome) -> KeysReply {
    match outcome.as_ref().map(|reply| reply.results.as_slice()) {
        Ok([CommandResult::Keys(reply)]) => reply.clone(),
        other => panic!("{other:?}"),
    }
}

/// A machine whose acts are commands of keys: on strings, and on the fields of one hash.
struct OfKeys(InFile);

impl Fixture for OfKeys {
    type Machine = SqlMachine;

    fn new() -> (Self, SqlMachine) {
        let (fixture, machine) = InFile::new();
        (Self(fixture), machine)
    }

    fn restart(&mut self, machine: SqlMachine) -> SqlMachine {
        self.0.restart(machine)
    }

    fn setup(&self) -> Vec<Command> {
        self.0.setup()
    }

    fn command(&self, act: Act) -> Command {
        let name = |key: u8| bytes::Bytes::from(vec![key]);
        let expiry = |ttl: u8| if ttl == 0 { Expiry::Never } else { Expiry::At(START + u64::from(ttl) * 9 * SECOND) };
        keys(match act {
            Act::Add(key, value, ttl) if key < 3 => KeysCommand::String(StringCommand::Set {
                key: name(key),
                value: name(value),
                condition: Condition::Missing,
                expiry: expiry(ttl),
                get: false,
            }),
            Act::Add(key, value, ttl) => KeysCommand::Hash(HashCommand::Set {
                key: "hash".into(),
                fields: vec![(name(key), name(value))],
                condition: Condition::Missing,
                expiry: expiry(ttl),
            }),
            Act::Take(key) if key < 3 => KeysCommand::String(StringCommand::Take { key: name(key) }),
            Act::Take(key) => {
                let (of, key, fields) = (Collection::Hash, "hash".into(), vec![name(key)]);
                KeysCommand::Element(ElementCommand::Remove { of, key, fields })
            }
            Act::Expect(key, _) if key < 3 => KeysCommand::Key(KeyCommand::Expect { key: name(key), version: None }),
            Act::Expect(key, _) => push(if key == 3 { "hash" } else { "list" }),
            Act::Abort => return self.0.command(act),
        })
    }

    fn contents(&self, machine: &mut SqlMachine) -> String {
        self.0.contents(machine)
    }

    fn set_room(&self, machine: &mut SqlMachine, changes: Option<u64>) {
        self.0.set_room(machine, changes);
    }
}

#[test]
fn nothing_depends_on_where_batches_end() {
    suite::nothing_depends_on_where_batches_end::<OfKeys>();
}

#[test]
fn a_fault_is_never_an_outcome() {
    suite::a_fault_is_never_an_outcome::<OfKeys>();
}

#[test]
fn a_command_alone_costs_no_savepoint_and_keeps_the_batch_if_it_fails() {
    let mut node = Node::new();
    let proposals = [set("a", "1", Expiry::Never), push("a"), set("b", "2", Expiry::Never)].map(alone);
    for proposal in &proposals {
        assert_eq!(node.applier().machine_mut().scope_of(proposal), Scope::Bare);
    }
    let entries: Vec<_> = (1..).zip(&proposals).map(|(index, proposal)| entry(index, proposal)).collect();
    let outcomes = node.apply(&entries);
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind, FailureKind::WrongType);
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
    assert_eq!(reply(&node.propose(&alone(get("a")))), KeysReply::Value("1".into()));
    assert_eq!(reply(&node.propose(&alone(get("b")))), KeysReply::Value("2".into()));
}

fn pipeline(commands: Vec<KeysCommand>) -> Proposal {
    Proposal { mode: Mode::Pipeline, ..Proposal::new(None, commands.into_iter().map(keys).collect()) }
}

#[test]
fn a_command_of_a_pipeline_costs_a_savepoint_only_if_it_writes_and_its_reply_may_be_large() {
    let mut node = Node::new();
    let take = KeysCommand::String(StringCommand::Take { key: "a".into() });
    let commands = [set("a", "1", Expiry::Never), get("a"), delete(&["a"]), push("a"), take];
    let scopes = commands.map(|command| node.applier().machine_mut().scope_of_step(&keys(command)));
    assert_eq!(scopes, [Scope::Bare, Scope::Bare, Scope::Bare, Scope::Bare, Scope::Undoable]);
}

#[test]
fn a_pipeline_costs_no_savepoint_beside_those_of_its_commands() {
    let mut node = Node::new();
    let take = KeysCommand::String(StringCommand::Take { key: "a".into() });
    let first = pipeline(vec![set("a", "1", Expiry::Never), push("a"), get("a")]);
    let second = pipeline(vec![take, push("b")]);
    for proposal in [&first, &second] {
        assert_eq!(node.applier().machine_mut().scope_of(proposal), Scope::Bare);
    }
    let entries: Vec<_> = (1..).zip([&first, &second]).map(|(index, proposal)| entry(index, proposal)).collect();
    let outcomes = node.apply(&entries);
    let failed = |outcome: &Outcome| {
        let results = outcome.as_ref().unwrap().results.iter();
        results.map(|result| matches!(result, CommandResult::Failed(_))).collect::<Vec<_>>()
    };
    assert_eq!(outcomes.iter().map(failed).collect::<Vec<_>>(), [vec![false, true, false], vec![false, false]]);

    let keyed = first.clone().with_key(RequestKey::new("k", [1; 32]).unwrap());
    let with_sql = Proposal { commands: vec![command("SELECT 1"), keys(get("a"))], ..first };
    for proposal in [&keyed, &with_sql] {
        assert_eq!(node.applier().machine_mut().scope_of(proposal), Scope::Undoable);
    }
}

#[test]
fn a_request_whose_result_is_too_large_is_undone() {
    let mut node = Node::new();
    let large = StringCommand::SetRange { key: "a".into(), offset: 0, value: vec![7; 70_000].into() };
    node.propose(&alone(KeysCommand::String(large))).unwrap();
    let take = alone(KeysCommand::String(StringCommand::Take { key: "a".into() }));
    let outcome = node.propose(&take.clone().with_key(RequestKey::new("k", [1; 32]).unwrap()));
    assert_eq!(outcome.unwrap_err().kind, FailureKind::TooBig);
    let KeysReply::Value(value) = reply(&node.propose(&take)) else { panic!("the key is gone") };
    assert_eq!(value.len(), 70_000);
}

#[test]
fn a_command_that_may_return_nothing_any_more_writes_nothing_and_the_rest_of_its_pipeline_runs() {
    let mut node = Node::new();
    let large = StringCommand::SetRange { key: "large".into(), offset: 0, value: vec![7; 9 << 20].into() };
    node.propose(&alone(KeysCommand::String(large))).unwrap();
    let rest = vec![get("large"), push("large"), get("large"), set("a", "1", Expiry::Never), delete(&["large"])];
    let outcome = node.propose(&pipeline(rest)).unwrap();
    let kind = |result: &CommandResult| match result {
        CommandResult::Failed(failure) => Some(failure.kind),
        _ => None,
    };
    let kinds: Vec<_> = outcome.results.iter().map(kind).collect();
    let too_big = Some(FailureKind::TooBig);
    assert_eq!(kinds, [None, Some(FailureKind::WrongType), too_big, too_big, too_big]);
    let keys = "SELECT group_concat(CAST(key AS TEXT)) FROM quorate_keys";
    assert_eq!(node.value(keys), Value::from("large"));
}

#[test]
fn keys_and_rows_change_together_or_not_at_all() {
    let mut node = Node::with(&["CREATE TABLE t (a UNIQUE)"]);
    let both = |value: &'static str| {
        let set = keys(set("k", value, Expiry::Never));
        Proposal::new(None, vec![set, command("INSERT INTO t VALUES (1)")])
    };
    node.propose(&both("first")).unwrap();
    assert_eq!(node.propose(&both("second")).unwrap_err().kind, FailureKind::Constraint);
    assert_eq!(reply(&node.propose(&alone(get("k")))), KeysReply::Value("first".into()));
    let insert = Proposal::new(None, vec![command("INSERT INTO t VALUES (2)"), keys(push("k"))]);
    assert_eq!(node.propose(&insert).unwrap_err().kind, FailureKind::WrongType);
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(1));
}

#[test]
fn trouble_in_the_middle_of_a_command_undoes_all_of_it() {
    let mut node = Node::new();
    node.propose(&alone(set("a", "1", Expiry::Never))).unwrap();
    node.propose(&alone(set("b", "2", Expiry::Never))).unwrap();
    node.conn().execute("UPDATE _quorate_keys SET kind = 9 WHERE key = x'62'", []).unwrap();
    let fault = node.fault(&[entry(3, &alone(delete(&["a", "b"])))]);
    assert!(matches!(fault, StoreFault::Damaged(_)), "{fault}");
    node.conn().execute("UPDATE _quorate_keys SET kind = 1", []).unwrap();
    assert_eq!(reply(&node.apply(&[entry(3, &alone(delete(&["a", "b"])))])[0]), KeysReply::Count(2));
}

#[test]
fn versions_are_the_index_and_the_number_of_the_command() {
    let mut node = Node::new();
    let two = vec![keys(set("a", "1", Expiry::Never)), keys(set("b", "2", Expiry::Never))];
    node.propose(&Proposal::new(None, two)).unwrap();
    let versions = node.ok("SELECT version FROM quorate_keys ORDER BY key").rows;
    assert_eq!(versions, [[Value::Integer(1 << 16)], [Value::Integer(1 << 16 | 1)]]);
}

#[test]
fn what_has_expired_is_swept_by_ticks_and_by_other_entries() {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    let at = |index: u64| START + index * 3600 * SECOND;
    node.propose(&alone(set("a", "1", Expiry::At(at(4))))).unwrap();
    node.propose(&alone(set("b", "2", Expiry::At(at(5))))).unwrap();
    let rows = |node: &Node| {
        node.conn().query_row("SELECT count(*) FROM _quorate_keys", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!((node.applier().applied().due, rows(&node)), (Some(at(4)), 2));
    let tick = Proposal::new(None, vec![ControlCommand::Tick.into()]);
    node.applier().take_touched();
    node.propose(&tick).unwrap();
    assert_eq!((node.applier().applied().due, rows(&node)), (Some(at(5)), 1));
    assert_eq!(node.applier().take_touched().topics, [(4, topic(0, b"a")), (4, topic_of_changes(0))]);
    node.restart();
    node.ok("INSERT INTO t VALUES (1)");
    assert_eq!((node.applier().applied().due, rows(&node)), (None, 0));
}

#[test]
fn a_flush_touches_the_topic_of_its_space() {
    let mut node = Node::new();
    node.propose(&alone(set("a", "1", Expiry::Never))).unwrap();
    let flush = |space| SpaceCommand { space, command: KeysCommand::Key(KeyCommand::Flush) }.into();
    node.applier().take_touched();
    node.propose(&Proposal::new(None, vec![flush(0), flush(0), flush(7)])).unwrap();
    let index = node.next - 1;
    let touched = [topic_of_space(0), topic_of_changes(0)].map(|topic| (index, topic));
    assert_eq!(node.applier().take_touched().topics, touched, "the others had no keys");
    assert!(topic_of_space(0) != topic(0, b"") && topic_of_space(0) != topic_of_space(7));
}

#[test]
fn an_expiry_may_count_from_the_stamp_of_its_entry() {
    let mut node = Node::new();
    let hour = 3600 * SECOND;
    node.propose(&alone(set("a", "1", Expiry::In(2 * hour)))).unwrap();
    let (at, condition) = (Some(hour), quorate_keys::ExpiryCondition::Always);
    node.propose(&alone(set("b", "1", Expiry::Never))).unwrap();
    let expire = KeyCommand::Expire { key: "b".into(), at, condition, relative: true };
    node.propose(&alone(KeysCommand::Key(expire))).unwrap();
    // The first key has been swept.
    assert_eq!(node.applier().applied().due, Some(START + 4 * hour));
    let found = |node: &mut Node| reply(&node.propose(&alone(get("b"))));
    assert_eq!(node.next, 4);
    assert_eq!(found(&mut node), KeysReply::Missing);
    assert_eq!(node.applier().applied().due, None);
}

#[test]
fn keys_leave_the_last_rowid_of_sql_alone() {
    let mut node = Node::with(&["CREATE TABLE t (a)", "INSERT INTO t (rowid) VALUES (70)"]);
    let commands = vec![
        command("INSERT INTO t VALUES (1)"),
        keys(set("k", "v", Expiry::Never)),
        command("INSERT INTO t SELECT last_insert_rowid()"),
    ];
    node.propose(&Proposal::new(None, commands)).unwrap();
    assert_eq!(node.value("SELECT max(a) FROM t"), Value::Integer(71));
}

#[test]
fn a_large_value_that_takes_too_long_is_tried_again() {
    let name = "machine::tests::keys::a_large_value_that_takes_too_long_is_tried_again";
    crate::usage::tests::in_its_own_process(name, || {
        let mut node = Node::new();
        let value = vec![7; 9 << 20].into();
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set = StringCommand::Set { key: "large".into(), value, condition, expiry, get: false };
        let entries = [entry(node.next, &alone(KeysCommand::String(set)))];
        node.applier().machine().determinism.budget.allow(Some(std::time::Duration::ZERO));
        let fault = node.fault(&entries);
        // Not a lack of memory, for which an entry is rejected at once.
        assert!(matches!(fault, StoreFault::Slow(_)), "{fault}");
        node.applier().machine().determinism.budget.allow(None);
        assert!(node.apply(&entries)[0].is_ok());
    });
}
