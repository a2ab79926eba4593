//! Tests of what the status shows.

#![allow(clippy::indexing_slicing, reason = "tests")]

use quorate::{
    Position,
    admin::{GroupStatus, MemberStatus, Standing},
    types::{ClusterId, Epoch, GroupId, LogId},
};
use serde_json::{Value, json};

use super::*;

fn status() -> Status {
    let members = [("c", 3), ("b", 2), ("a", 1)].map(|(name, id)| MemberStatus {
        id: NodeId(id),
        name: name.to_owned(),
        addr: format!("{name}:1"),
        voter: true,
        silent_for: Duration::from_secs(if id == 3 { 60 } else { 0 }),
        applied_index: 90,
        format_level: 1,
    });
    Status {
        cluster: ClusterId(0xc0ffee),
        node: NodeId(1),
        name: "a".to_owned(),
        leader: Some(NodeId(2)),
        archiver: None,
        archive: None,
        term: 4,
        last_index: 101,
        committed_index: 100,
        applied: Position { epoch: Epoch(1), group: GroupId::MAIN, index: 90 },
        durable_index: 80,
        format_level: 1,
        log_bytes: 1 << 20,
        database_bytes: 4096,
        members: members.into(),
        blocked: None,
        fault: None,
        stopped: None,
        groups: Vec::new(),
        standing: Standing {
            last_leader: Some(NodeId(2)),
            leader_silent_for: Some(Duration::from_millis(80)),
            joined: true,
            votes: true,
        },
    }
}

#[test]
fn field_names_are_stable() {
    let shown = serde_json::to_value(NodeStatus::of(&status(), Duration::from_secs(5))).unwrap_or_default();
    let member = |id: u64, name: &str, leader, reachable, silent_ms| {
        json!({
            "name": name, "raft_id": format!("{id:016x}"), "addr": format!("{name}:1"), "voter": true,
            "leader": leader, "reachable": reachable, "silent_ms": silent_ms, "applied": 90,
            "format_level": 1,
        })
    };
    let expected = json!({
        "name": "a", "raft_id": "0000000000000001", "member": true, "leader": "b", "archiver": null,
        "last_leader": "b",
        "leader_silent_ms": 80, "votes": true, "voters": 3, "voters_reachable": 2,
        "cluster": "00000000000000000000000000c0ffee", "epoch": 1, "term": 4,
        "last": 101, "committed": 100, "applied": 90, "durable": 80, "lag": 10, "format_level": 1,
        "log_bytes": 1 << 20, "database_bytes": 4096, "stopped": null, "groups": [],
        "members": [
            member(1, "a", false, true, 0), member(2, "b", true, true, 0), member(3, "c", false, false, 60_000),
        ],
        "store": { "leader": { "node_id": "b", "addr": "b:1" } },
    });
    assert_eq!(shown, expected);
}

#[test]
fn an_archiver_that_left_is_shown_by_its_id() {
    for (node, name) in [(2, "b"), (9, "0000000000000009")] {
        let archiver = Some(quorate::types::Archiver { node: NodeId(node), token: 75 });
        let shown = NodeStatus::of(&Status { archiver, ..status() }, Duration::from_secs(5));
        assert_eq!(serde_json::to_value(shown.archiver).unwrap_or_default(), json!({ "node": name, "token": 75 }));
    }
}

#[test]
fn the_archive_is_shown_by_who_writes_it() {
    let archiver = Some(quorate::types::Archiver { node: NodeId(2), token: 40 });
    let archive = ArchiveStatus {
        archived_index: 88,
        boundary_index: 70,
        lag: Duration::from_millis(1500),
        failures: 3,
        failure: Some("no bucket".to_owned()),
        rehearsed_at: Some(1_790_000_000),
    };
    let one = Status { archiver, ..status() };
    let two = Status { node: NodeId(2), archive: Some(archive), ..one.clone() };
    let shown = |status: &Status| serde_json::to_value(NodeStatus::of(status, Duration::ZERO)).unwrap_or_default();
    let expected = json!({
        "archived_index": 88, "boundary_index": 70, "lag_seconds": 1.5, "failures": 3, "failure": "no bucket",
        "rehearsed_at": 1_790_000_000,
    });
    assert_eq!(shown(&two)["archive"], expected);
    assert_eq!((shown(&one).get("archive"), &shown(&one)["archiver"]["node"]), (None, &json!("b")));
    let answers = [("a:1".to_owned(), Ok(one)), ("b:1".to_owned(), Ok::<_, String>(two.clone()))];
    let shown = serde_json::to_value(ClusterStatus::assemble(&two, &answers.into())).unwrap_or_default();
    assert_eq!((&shown["archiver"]["node"], &shown["archive"]), (&json!("b"), &expected));
}

/// The status of group 2, which node `a` leads.
fn group() -> GroupStatus {
    GroupStatus {
        leader: Some(NodeId(1)),
        term: 7,
        last: Some(LogId { term: 7, node: NodeId(1), index: 12 }),
        committed: Some(LogId { term: 6, node: NodeId(3), index: 11 }),
        applied: Position { epoch: Epoch(1), group: GroupId(2), index: 10 },
        format_level: 3,
        voters: vec![NodeId(2), NodeId(9)],
        blocked: None,
        stopped: None,
    }
}

#[test]
fn groups_are_shown_by_themselves() {
    let stuck = GroupStatus {
        leader: None,
        last: None,
        committed: None,
        applied: Position { group: GroupId(3), ..group().applied },
        blocked: Some(admin::Blocked { index: 11, why: "why".to_owned() }),
        stopped: Some("a reason".to_owned()),
        ..group()
    };
    let status = Status { groups: vec![group(), stuck], ..status() };
    let shown = serde_json::to_value(NodeStatus::of(&status, Duration::from_secs(5))).unwrap_or_default();
    let expected = json!([
        {
            "group": 2, "leader": "a", "term": 7, "last": 12, "committed": 11, "applied": 10, "format_level": 3,
            "voters": ["b", "0000000000000009"], "stopped": null,
        },
        {
            "group": 3, "leader": null, "term": 7, "last": 0, "committed": 0, "applied": 10, "format_level": 3,
            "voters": ["b", "0000000000000009"], "blocked": { "index": 11, "why": "why" }, "stopped": "a reason",
        },
    ]);
    assert_eq!(shown["groups"], expected);
    assert_eq!((&shown["term"], &shown["leader"]), (&json!(4), &json!("b")), "those of main");
}

#[test]
fn a_member_tells_its_own_positions_in_a_group() {
    let answer = |node, index| {
        let applied = Position { index, ..group().applied };
        Status { node: NodeId(node), groups: vec![GroupStatus { applied, ..group() }], ..status() }
    };
    let answers = [("a:1".to_owned(), Ok(answer(1, 10))), ("b:1".to_owned(), Err("refused"))];
    let shown = ClusterStatus::assemble(&answer(2, 3), &answers.into());
    let applied = |member: &Member<Answer>| Some(member.told.positions.as_ref()?.groups.first()?.applied);
    assert_eq!(shown.members.iter().map(applied).collect::<Vec<_>>(), [Some(10), None, None]);
}

#[test]
fn without_a_leader_there_is_no_leader_and_no_lag() {
    let shown = NodeStatus::of(&Status { leader: None, ..status() }, Duration::from_secs(5));
    assert_eq!((shown.leader, shown.last_leader, shown.positions.lag), (None, Some("b".to_owned()), None));
}

#[test]
fn the_leader_of_the_latest_term_counts() {
    let old = Status { leader: Some(NodeId(1)), ..status() };
    let new = Status { node: NodeId(2), term: 5, committed_index: 120, ..status() };
    let dead = Err("connection refused");
    let answers = [("a:1".to_owned(), Ok(old)), ("b:1".to_owned(), Ok(new)), ("c:1".to_owned(), dead)];
    let shown = serde_json::to_value(ClusterStatus::assemble(&status(), &answers.into())).unwrap_or_default();
    assert_eq!((&shown["leader"], &shown["members"][0]["leader"]), (&json!("b"), &json!(false)));
    assert_eq!((&shown["members"][0]["lag"], &shown["members"][0]["error"]), (&json!(30), &Value::Null));
    let dead = &shown["members"][2];
    assert_eq!((&dead["reachable"], &dead["error"]), (&json!(false), &json!("connection refused")));
    assert!(dead.get("applied").is_none());
}
