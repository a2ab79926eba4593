//! Changes of keys, for those who watch.

use quorate_apply::Touched;
use quorate_model::keys::{EventClasses, KeyChange};

use super::*;

/// Returns what happened to keys since this was last asked, as `event:key`.
fn changes(node: &mut Node) -> String {
    let Touched { changes, .. } = node.applier().take_touched();
    let change = |KeyChange { key, event, .. }: &KeyChange| format!("{}:{}", event.name(), key.escape_ascii());
    changes.iter().map(change).collect::<Vec<_>>().join(" ")
}

fn noting() -> Node {
    let mut node = Node::with(&["CREATE TABLE t (a INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)"]);
    node.applier().machine_mut().note_changes(EventClasses::ALL);
    node
}

fn set_key(key: &'static str) -> Command {
    keys(set(key, "1", Expiry::Never))
}

#[test]
fn only_what_takes_effect_is_noted() {
    let mut node = noting();
    node.propose(&Proposal::new(None, vec![set_key("a"), keys(push("a"))])).unwrap_err();
    assert_eq!(changes(&mut node), "", "an atomic entry that failed");
    let pipeline = |commands| Proposal { mode: Mode::Pipeline, ..Proposal::new(None, commands) };
    node.propose(&pipeline(vec![set_key("a"), keys(push("a")), set_key("a")])).unwrap();
    assert_eq!(changes(&mut node), "new:a set:a set:a");
    // The failure of the statement ends the transaction: the command before it runs again, the one after it does not
    // run.
    let ends = command("INSERT OR ROLLBACK INTO t VALUES (1)");
    node.propose(&pipeline(vec![set_key("b"), ends, set_key("c")])).unwrap();
    assert_eq!(changes(&mut node), "new:b set:b");
    node.applier().begin_dry_run(1).unwrap();
    node.applier().dry_run(1, Stamp { now: START, seed: 1 }, set_key("d")).unwrap();
    node.applier().end_dry_run(1);
    node.propose(&alone(delete(&["a", "d"]))).unwrap();
    assert_eq!(changes(&mut node), "del:a", "a dry run is not noted");
}

#[test]
fn entries_that_run_ahead_are_noted_once_they_are_committed() {
    let mut node = noting();
    let entries = [set_key("a"), set_key("b")].map(|command| Proposal::new(None, vec![command]));
    let entries: Vec<_> = (node.next..).zip(&entries).map(|(index, proposal)| entry(index, proposal)).collect();
    node.applier().prefetch(&entries);
    assert_eq!(changes(&mut node), "");
    node.apply(&entries);
    assert_eq!(changes(&mut node), "new:a set:a new:b set:b");
}

#[test]
fn nothing_is_noted_that_nobody_wants() {
    let mut node = noting();
    node.applier().machine_mut().note_changes(EventClasses::GENERIC);
    node.propose(&alone(set("a", "1", Expiry::In(SECOND)))).unwrap();
    assert_eq!(changes(&mut node), "expire:a");
    node.applier().machine_mut().note_changes(EventClasses::EXPIRED);
    node.propose(&alone(set("b", "1", Expiry::Never))).unwrap();
    assert_eq!(changes(&mut node), "expired:a");
    node.applier().machine_mut().note_changes(EventClasses::NONE);
    node.propose(&alone(delete(&["b"]))).unwrap();
    assert_eq!(changes(&mut node), "");
}
