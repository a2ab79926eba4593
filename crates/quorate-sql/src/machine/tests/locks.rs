//! Commands of locks in entries, and what SQL sees of them.

use quorate_apply::suite::{self, Act, Fixture};
use quorate_apply::{Scope, Stores};
use quorate_locks::{Lease, LocksCommand, LocksReply, Token};
use quorate_model::Topic;

use super::suite::InFile;
use super::*;
use crate::locks::topic;

/// The longest lease. Entries of these tests are an hour apart.
const DAY: u64 = 24 * HOUR;
const HOUR: u64 = 3600 * SECOND;

fn acquire(name: u8, holder: u8, ttl: u64) -> LocksCommand {
    LocksCommand::Acquire {
        name: vec![name].into(),
        holder: vec![holder].into(),
        ttl,
        permits: 1,
        wait: Some(DAY),
        note: "n".into(),
    }
}

fn release(name: u8, holder: u8) -> LocksCommand {
    LocksCommand::Release { name: vec![name].into(), holder: vec![holder].into() }
}

fn alone(command: LocksCommand) -> Proposal {
    Proposal::new(None, vec![command.into()])
}

fn reply(outcome: &Outcome) -> LocksReply {
    match outcome.as_ref().map(|reply| reply.results.as_slice()) {
        Ok([CommandResult::Locks(reply)]) => reply.clone(),
        other => panic!("{other:?}"),
    }
}

fn token(reply: &LocksReply) -> Token {
    let LocksReply::Held(Lease { token, .. }) = reply else { panic!("not held: {reply:?}") };
    *token
}

/// A machine whose acts are commands of locks.
struct OfLocks(InFile);

impl Fixture for OfLocks {
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
        match act {
            Act::Add(key, value, ttl) => acquire(key, value, (1 + u64::from(ttl)) * 9 * SECOND).into(),
            Act::Take(key) => LocksCommand::Force { name: vec![key].into(), token: None }.into(),
            Act::Expect(key, _) => LocksCommand::Expect { name: vec![key].into(), token: Token(0) }.into(),
            Act::Abort => self.0.command(act),
        }
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
    suite::nothing_depends_on_where_batches_end::<OfLocks>();
}

#[test]
fn a_fault_is_never_an_outcome() {
    suite::a_fault_is_never_an_outcome::<OfLocks>();
}

#[test]
fn a_batch_is_fenced_by_a_token() {
    let mut node = Node::with(&["CREATE TABLE t (a)"]);
    let first = token(&reply(&node.propose(&alone(acquire(1, 1, DAY)))));
    let fenced = |token: Token| {
        let expect = LocksCommand::Expect { name: vec![1].into(), token };
        Proposal::new(None, vec![expect.into(), command("INSERT INTO t VALUES (1)")])
    };
    node.propose(&fenced(first)).unwrap();
    node.propose(&alone(release(1, 1))).unwrap();
    let failure = node.propose(&fenced(first)).unwrap_err();
    assert_eq!((failure.kind, failure.command), (FailureKind::NotHeld, Some(0)));
    let second = token(&reply(&node.propose(&alone(acquire(1, 2, DAY)))));
    assert!(second > first);
    node.propose(&fenced(second)).unwrap();
    assert_eq!(node.value("SELECT count(*) FROM t"), Value::Integer(2));
}

#[test]
fn a_command_alone_costs_no_savepoint_and_keeps_the_batch_if_it_fails() {
    let mut node = Node::new();
    let expect = LocksCommand::Expect { name: vec![1].into(), token: Token(5) };
    let proposals = [acquire(1, 1, DAY), expect, acquire(1, 2, DAY)].map(alone);
    for proposal in &proposals {
        assert_eq!(node.applier().machine_mut().scope_of(proposal), Scope::Bare);
    }
    let entries: Vec<_> = (1..).zip(&proposals).map(|(index, proposal)| entry(index, proposal)).collect();
    let outcomes = node.apply(&entries);
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind, FailureKind::NotHeld);
    assert!(matches!(reply(&outcomes[0]), LocksReply::Held(_)));
    assert!(matches!(reply(&outcomes[2]), LocksReply::Waiting(_)));
}

#[test]
fn a_command_in_a_pipeline_costs_no_savepoint_and_keeps_the_others_if_it_fails() {
    let mut node = Node::new();
    let expect = LocksCommand::Expect { name: vec![1].into(), token: Token(5) };
    let commands = [acquire(1, 1, DAY), expect, acquire(1, 2, DAY)].map(Command::from);
    for command in &commands {
        assert_eq!(node.applier().machine_mut().scope_of_step(command), Scope::Bare);
    }
    let pipeline = Proposal { mode: Mode::Pipeline, ..Proposal::new(None, commands.into()) };
    let results = node.propose(&pipeline).unwrap().results;
    let [CommandResult::Locks(first), CommandResult::Failed(failure), CommandResult::Locks(second)] = &results[..]
    else {
        panic!("{results:?}")
    };
    assert_eq!(failure.kind, FailureKind::NotHeld);
    assert!(matches!((first, second), (LocksReply::Held(_), LocksReply::Waiting(_))), "{first:?}, {second:?}");
}

#[test]
fn a_release_wakes_the_one_that_is_next() {
    let mut node = Node::new();
    for holder in 1..4 {
        node.propose(&alone(acquire(1, holder, DAY))).unwrap();
    }
    node.applier().take_touched();
    node.propose(&alone(release(1, 1))).unwrap();
    let touched: Vec<Topic> = node.applier().take_touched().topics.into_iter().map(|(_, topic)| topic).collect();
    assert_eq!(touched, [topic(&[1], &[2])]);
}

#[test]
fn sql_sees_who_holds_a_lock_and_who_waits() {
    let mut node = Node::new();
    for holder in [1, 2] {
        node.propose(&alone(acquire(1, holder, DAY))).unwrap();
    }
    let rows = "SELECT group_concat(hex(name) || hex(holder) || state || permits || note, ',' ORDER BY token)
        FROM quorate_locks";
    assert_eq!(node.value(rows), Value::Text("0101held1n,0102waiting1n".into()));
    for sql in ["DELETE FROM quorate_locks", "DELETE FROM _quorate_locks_claims"] {
        let refused = node.propose(&Proposal::new(None, vec![command(sql)])).unwrap_err();
        assert!(matches!(refused.kind, FailureKind::Refused | FailureKind::Sql), "{sql}: {refused:?}");
    }
}

#[test]
fn a_tick_grants_what_a_lease_has_left() {
    let mut node = Node::new();
    let first = token(&reply(&node.propose(&alone(acquire(1, 1, 2 * HOUR)))));
    node.propose(&alone(acquire(1, 2, DAY))).unwrap();
    assert_eq!(node.applier().applied().due, Some(START + 3 * HOUR));
    node.applier().take_touched();
    node.restart();
    node.propose(&Proposal::new(None, vec![ControlCommand::Tick.into()])).unwrap();
    assert_eq!(node.applier().take_touched().topics, [(3, topic(&[1], &[1])), (3, topic(&[1], &[2]))]);
    assert_eq!(node.applier().applied().due, Some(START + 27 * HOUR));
    let second = token(&reply(&node.propose(&alone(acquire(1, 2, DAY)))));
    assert!(second > first && second >= Token::first(3) && second < Token::first(4), "{second:?}");
}

#[test]
fn locks_leave_the_last_rowid_of_sql_alone() {
    let mut node = Node::with(&["CREATE TABLE t (a)", "INSERT INTO t (rowid) VALUES (70)"]);
    let commands = vec![
        command("INSERT INTO t VALUES (1)"),
        acquire(1, 1, DAY).into(),
        command("INSERT INTO t SELECT last_insert_rowid()"),
    ];
    node.propose(&Proposal::new(None, commands)).unwrap();
    assert_eq!(node.value("SELECT max(a) FROM t"), Value::Integer(71));
}

/// So that `verify` and the comparison of nodes see them.
#[test]
fn locks_are_part_of_the_hash_of_what_users_see() {
    let mut node = Node::new();
    let before = crate::logical_hash::user(node.conn()).unwrap();
    node.propose(&alone(acquire(1, 1, DAY))).unwrap();
    assert_ne!(crate::logical_hash::user(node.conn()).unwrap(), before);
}
