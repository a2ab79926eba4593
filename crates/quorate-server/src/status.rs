//! The status of nodes and clusters as JSON, as answered by `/status` and printed by `quorate status --json`.
//!
//! Invariant: a field keeps its name and its meaning. New fields may be added.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate::{Status, admin, types::NodeId};
use quorate_backup::schedule::Seen;
use serde::Serialize;

mod backup;

pub use backup::BackupStatus;

/// The status of a cluster, assembled from the answers of its members.
#[derive(Debug, Serialize)]
pub struct ClusterStatus {
    /// The name of the leader; none if no member that can be reached leads.
    pub leader: Option<String>,
    /// The cluster id, in hexadecimal.
    pub cluster: String,
    /// The epoch of the cluster.
    pub epoch: u64,
    /// All members, by name.
    pub members: Vec<Member<Answer>>,
}

/// The status of a node and of the members of its cluster, as that node sees them.
#[derive(Debug, Serialize)]
pub struct NodeStatus {
    /// The node's name.
    pub name: String,
    /// The id of its data directory in the cluster, in hexadecimal.
    pub raft_id: String,
    /// Whether the node is one of the members.
    pub member: bool,
    /// The name of the leader, if the node knows one and has heard from it lately.
    pub leader: Option<String>,
    /// The node that writes the archive; none if no node does.
    pub archiver: Option<Archiver>,
    /// The name of the last leader, as far as the node knows.
    pub last_leader: Option<String>,
    /// Milliseconds since the last entries or heartbeats of a leader; 0 on the leader, none if there were none.
    pub leader_silent_ms: Option<u64>,
    /// Whether the node votes and has replaced the former node, if any, in whose place it joined.
    pub votes: bool,
    /// The number of members that vote.
    pub voters: usize,
    /// The number of voters that the node heard from lately, including itself.
    pub voters_reachable: usize,
    /// The cluster id, in hexadecimal.
    pub cluster: String,
    /// The epoch of the cluster.
    pub epoch: u64,
    /// The positions and sizes of the node.
    #[serde(flatten)]
    pub positions: Positions,
    /// Why the node has stopped; none while it runs.
    pub stopped: Option<String>,
    /// All members, by name.
    pub members: Vec<Member<Heard>>,
    /// The leader, where clients of rqlite look for it.
    pub store: Store,
    /// The scheduled backups, if there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupStatus>,
}

/// The part of rqlite's status that its clients read.
#[derive(Debug, Serialize)]
pub struct Store {
    /// The leader; empty names if the node knows of none.
    pub leader: StoreLeader,
}

/// The node that writes the archive.
#[derive(Debug, Serialize)]
pub struct Archiver {
    /// Its name, or its id if it is no member any more.
    pub node: String,
    /// The index of the entry that appointed it.
    pub token: u64,
}

/// The leader, as rqlite shows it.
#[derive(Debug, Default, Serialize)]
pub struct StoreLeader {
    /// The name of the member.
    pub node_id: String,
    /// The `host:port` where it listens for nodes and clients.
    pub addr: String,
}

/// A member of a cluster, with details that depend on the source of the status.
#[derive(Debug, Serialize)]
pub struct Member<T> {
    /// The name of the member.
    pub name: String,
    /// The id of its data directory in the cluster, in hexadecimal.
    pub raft_id: String,
    /// The `host:port` where it listens for nodes and clients.
    pub addr: String,
    /// Whether it votes.
    pub voter: bool,
    /// Whether it leads.
    pub leader: bool,
    /// Whether it can be reached.
    pub reachable: bool,
    /// The details.
    #[serde(flatten)]
    pub told: T,
}

/// The answer of a member.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// Why the member can't be reached.
    pub error: Option<String>,
    /// The positions and sizes of the member.
    #[serde(flatten)]
    pub positions: Option<Positions>,
}

/// What a node last heard from a member.
#[derive(Debug, Serialize)]
pub struct Heard {
    /// Milliseconds since the node last heard from it; 0 for the node itself.
    pub silent_ms: u64,
    /// The last index in its database at that time.
    pub applied: u64,
    /// The highest format level that its program understands; 0 if that is not known.
    pub format_level: u32,
}

/// The positions of a node in the log, and the sizes of its files.
#[derive(Debug, Serialize)]
pub struct Positions {
    /// The current term.
    pub term: u64,
    /// The last index in its log.
    pub last: u64,
    /// The last index that the node knows to be committed.
    pub committed: u64,
    /// The last index in its database.
    pub applied: u64,
    /// The last index that is durable in its database without the log.
    pub durable: u64,
    /// The number of committed entries that are not in its database yet. None while the node hears from no leader,
    /// because the number is then unknown, and while it has no database.
    pub lag: Option<u64>,
    /// The format level that the cluster uses. It rises once all members understand a higher one.
    pub format_level: u32,
    /// The size of the log's files, in bytes.
    pub log_bytes: u64,
    /// The size of the database's files, in bytes.
    pub database_bytes: u64,
    /// The entry before which the node has stopped applying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// The fault of its database. The node applies nothing while there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The groups beside `main`, by number. The fields above are about `main`.
    pub groups: Vec<Group>,
}

/// A group beside `main`, as one node sees it.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// The group's number.
    pub group: u32,
    /// The name of its leader, if the node knows one.
    pub leader: Option<String>,
    /// Its current term.
    pub term: u64,
    /// The last index in the node's log of the group.
    pub last: u64,
    /// The last index that the node knows to be committed in the group.
    pub committed: u64,
    /// The last index that the node has applied.
    pub applied: u64,
    /// The format level that the group uses.
    pub format_level: u32,
    /// The names of the members that vote in it. While it has not followed a change of the members yet, a former
    /// member among them is shown by its id.
    pub voters: Vec<String>,
    /// The entry before which the node has stopped applying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// Why the node's part in the group has stopped; none while it runs.
    pub stopped: Option<String>,
}

/// An entry before which a node has stopped applying.
#[derive(Clone, Debug, Serialize)]
pub struct Blocked {
    /// The index of the entry.
    pub index: u64,
    /// Why the entry can't be applied, or what the node waits for.
    pub why: String,
}

impl From<&admin::Blocked> for Blocked {
    fn from(blocked: &admin::Blocked) -> Self {
        Self { index: blocked.index, why: blocked.why.clone() }
    }
}

impl Group {
    /// Creates the status of a group beside `main`, which is part of `status`.
    fn of(group: &admin::GroupStatus, status: &Status) -> Self {
        let name = |id: NodeId| name_of(status, Some(id)).unwrap_or_else(|| id.to_string());
        Self {
            group: group.id().0,
            leader: group.leader.map(name),
            term: group.term,
            last: group.last.map_or(0, |id| id.index),
            committed: group.committed.map_or(0, |id| id.index),
            applied: group.applied.index,
            format_level: group.format_level,
            voters: group.voters.iter().copied().map(name).collect(),
            blocked: group.blocked.as_ref().map(Blocked::from),
            stopped: group.stopped.clone(),
        }
    }
}

impl Positions {
    fn of(status: &Status, committed: Option<u64>) -> Self {
        Self {
            term: status.term,
            last: status.last_index,
            committed: status.committed_index,
            applied: status.applied.index,
            durable: status.durable_index,
            lag: committed.and_then(|committed| status.lag_behind(committed)),
            format_level: status.format_level,
            log_bytes: status.log_bytes,
            database_bytes: status.database_bytes,
            blocked: status.blocked.as_ref().map(Blocked::from),
            fault: status.fault.clone(),
            groups: status.groups.iter().map(|group| Group::of(group, status)).collect(),
        }
    }
}

impl NodeStatus {
    /// Creates the status of a node. A member that was silent for longer than `silence_max` counts as unreachable.
    pub fn of(status: &Status, silence_max: Duration) -> Self {
        let members = members(status, status.leader, |member| {
            let silent_ms = millis(member.silent_for);
            let heard = Heard { silent_ms, applied: member.applied_index, format_level: member.format_level };
            (member.silent_for <= silence_max, heard)
        });
        let (voters_reachable, voters) = status.reachable_voters(silence_max);
        let store_leader =
            status.leader().map(|leader| StoreLeader { node_id: leader.name.clone(), addr: leader.addr.clone() });
        Self {
            name: status.name.clone(),
            raft_id: status.node.to_string(),
            member: status.members.iter().any(|member| member.id == status.node),
            leader: status.leader().map(|leader| leader.name.clone()),
            archiver: status.archiver.map(|archiver| Archiver {
                node: name_of(status, Some(archiver.node)).unwrap_or_else(|| archiver.node.to_string()),
                token: archiver.token,
            }),
            last_leader: name_of(status, status.standing.last_leader),
            leader_silent_ms: status.standing.leader_silent_for.map(millis),
            votes: status.standing.votes,
            voters,
            voters_reachable,
            cluster: status.cluster.to_string(),
            epoch: status.applied.epoch.0,
            positions: Positions::of(status, status.leader.map(|_| status.committed_index)),
            stopped: status.stopped.clone(),
            members,
            store: Store { leader: store_leader.unwrap_or_default() },
            backup: None,
        }
    }

    /// Adds what is known of scheduled backups.
    #[must_use]
    pub fn with_backups(self, seen: Option<Seen>) -> Self {
        Self { backup: seen.map(BackupStatus::of), ..self }
    }
}

/// Returns the name of a member.
fn name_of(status: &Status, node: Option<NodeId>) -> Option<String> {
    status.members.iter().find(|member| Some(member.id) == node).map(|member| member.name.clone())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl ClusterStatus {
    /// Assembles the answers of the members, by address. `known` lists the members. The leader is the member that
    /// itself reports that it leads, in the latest term, because the reports of other members may be outdated.
    pub fn assemble<E: ToString>(known: &Status, answers: &BTreeMap<String, Result<Status, E>>) -> Self {
        let reached = || answers.values().flatten();
        let leading = reached().filter(|status| status.leader == Some(status.node)).max_by_key(|status| status.term);
        let committed = leading.and_then(|_| reached().map(|status| status.committed_index).max());
        let members = members(known, leading.map(|status| status.node), |member| {
            let answer = answers.get(&member.addr).map(Result::as_ref);
            // Another node may answer at the address, such as a former member of the same name.
            let status = answer.and_then(Result::ok).filter(|status| status.node == member.id);
            let error = answer.and_then(Result::err).map(ToString::to_string);
            let positions = status.map(|status| Positions::of(status, committed));
            (status.is_some(), Answer { error, positions })
        });
        let leader = members.iter().find(|member| member.leader).map(|member| member.name.clone());
        Self { leader, cluster: known.cluster.to_string(), epoch: known.applied.epoch.0, members }
    }
}

/// Lists the members in `status`. `details` tells whether a member can be reached, and the details of it.
fn members<T>(
    status: &Status,
    leader: Option<NodeId>,
    details: impl Fn(&quorate::admin::MemberStatus) -> (bool, T),
) -> Vec<Member<T>> {
    let mut listed: Vec<_> = status.members.iter().collect();
    listed.sort_by(|a, b| (a.name.parse::<u64>().ok(), &a.name).cmp(&(b.name.parse().ok(), &b.name)));
    let members = listed.into_iter().map(|member| {
        let (reachable, told) = details(member);
        Member {
            name: member.name.clone(),
            raft_id: member.id.to_string(),
            addr: member.addr.clone(),
            voter: member.voter,
            leader: leader == Some(member.id),
            reachable,
            told,
        }
    });
    members.collect()
}

#[cfg(test)]
mod tests {
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
    fn an_archiver_that_left_is_shown_by_its_id() {
        for (node, name) in [(2, "b"), (9, "0000000000000009")] {
            let archiver = Some(quorate::types::Archiver { node: NodeId(node), token: 75 });
            let shown = NodeStatus::of(&Status { archiver, ..status() }, Duration::from_secs(5));
            assert_eq!(serde_json::to_value(shown.archiver).unwrap_or_default(), json!({ "node": name, "token": 75 }));
        }
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
}
