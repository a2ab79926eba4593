//! How nodes and clusters stand, as JSON: what `/status` answers and `quorate status --json` prints.
//!
//! Invariant: a field keeps its name and its meaning; new ones may come.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate::{NodeId, Status};
use serde::Serialize;

/// A cluster, as its members tell when each is asked itself.
#[derive(Debug, Serialize)]
pub struct ClusterStatus {
    /// The name of the member that leads; none if no member does, or can be reached.
    pub leader: Option<String>,
    /// The cluster's own id, in hexadecimal.
    pub cluster: String,
    /// The history that it is in.
    pub epoch: u64,
    /// All members, by name.
    pub members: Vec<Member<Answer>>,
}

/// A node and the members of its cluster, as that node tells.
#[derive(Debug, Serialize)]
pub struct NodeStatus {
    /// The node's name.
    pub name: String,
    /// The id of its data directory in the cluster, in hexadecimal.
    pub raft_id: String,
    /// Whether it is one of the members.
    pub member: bool,
    /// The name of the member that leads, if the node knows one and has heard of it lately.
    pub leader: Option<String>,
    /// The name of the member that led last, as far as the node knows.
    pub last_leader: Option<String>,
    /// Milliseconds since entries or heartbeats of a leader came last, 0 on the leader; none if none ever came.
    pub leader_silent_ms: Option<u64>,
    /// Whether the node votes, and the cluster counts on no former node in its place.
    pub votes: bool,
    /// Members that vote.
    pub voters: usize,
    /// Those of them that the node heard of lately, itself among them.
    pub voters_reachable: usize,
    /// The cluster's own id, in hexadecimal.
    pub cluster: String,
    /// The history that it is in.
    pub epoch: u64,
    /// How far the node is.
    #[serde(flatten)]
    pub positions: Positions,
    /// Why the node takes no part any more, if it doesn't.
    pub stopped: Option<String>,
    /// All members, by name.
    pub members: Vec<Member<Heard>>,
}

/// A member of a cluster, and what is told of it.
#[derive(Debug, Serialize)]
pub struct Member<T> {
    /// Its name.
    pub name: String,
    /// The id of its data directory in the cluster, in hexadecimal.
    pub raft_id: String,
    /// `host:port` where it listens for nodes and clients.
    pub addr: String,
    /// Whether it votes.
    pub voter: bool,
    /// Whether it leads.
    pub leader: bool,
    /// Whether it answers.
    pub reachable: bool,
    /// The rest.
    #[serde(flatten)]
    pub told: T,
}

/// What a member answered.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// Why it can't be reached.
    pub error: Option<String>,
    /// How far it is.
    #[serde(flatten)]
    pub positions: Option<Positions>,
}

/// What a node heard of a member.
#[derive(Debug, Serialize)]
pub struct Heard {
    /// Milliseconds since it was last heard of; 0 for the node that tells.
    pub silent_ms: u64,
    /// The last index that its database held then.
    pub applied: u64,
}

/// How far a node is, and what it keeps.
#[derive(Debug, Serialize)]
pub struct Positions {
    /// The present term.
    pub term: u64,
    /// The last index in its log.
    pub last: u64,
    /// The last that it knows to be committed.
    pub committed: u64,
    /// The last that its database holds.
    pub applied: u64,
    /// The last that its database holds without the help of the log.
    pub durable: u64,
    /// Committed entries that its database does not hold; none while no leader is heard of, and so it is not known, and
    /// while it has no database.
    pub lag: Option<u64>,
    /// Bytes of its log's files.
    pub log_bytes: u64,
    /// Bytes of its database's files.
    pub database_bytes: u64,
    /// The entry that it does not apply for the time being.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// What is wrong with its database: it applies nothing then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// An entry that a node does not apply for the time being.
#[derive(Clone, Debug, Serialize)]
pub struct Blocked {
    /// Its index.
    pub index: u64,
    /// Why it can't be applied, or for what the node waits.
    pub why: String,
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
            log_bytes: status.log_bytes,
            database_bytes: status.database_bytes,
            blocked: status.blocked.as_ref().map(|blocked| Blocked { index: blocked.index, why: blocked.why.clone() }),
            fault: status.fault.clone(),
        }
    }
}

impl NodeStatus {
    /// What a node tells. A member that was silent for longer than `silence_max` counts as unreachable.
    pub fn of(status: &Status, silence_max: Duration) -> Self {
        let members = members(status, status.leader, |member| {
            let silent_ms = millis(member.silent_for);
            (member.silent_for <= silence_max, Heard { silent_ms, applied: member.applied_index })
        });
        let (voters_reachable, voters) = status.reachable_voters(silence_max);
        Self {
            name: status.name.clone(),
            raft_id: status.node.to_string(),
            member: status.members.iter().any(|member| member.id == status.node),
            leader: status.leader().map(|leader| leader.name.clone()),
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
        }
    }
}

/// The name of a member.
fn name_of(status: &Status, node: Option<NodeId>) -> Option<String> {
    status.members.iter().find(|member| Some(member.id) == node).map(|member| member.name.clone())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl ClusterStatus {
    /// Puts side by side what the members at each address answered. `known` says who the members are. The leader is the
    /// member that says of itself that it leads, in the latest term: what others last heard of it may be old.
    pub fn assemble<E: ToString>(known: &Status, answers: &BTreeMap<String, Result<Status, E>>) -> Self {
        let reached = || answers.values().flatten();
        let leading = reached().filter(|status| status.leader == Some(status.node)).max_by_key(|status| status.term);
        let committed = leading.and_then(|_| reached().map(|status| status.committed_index).max());
        let members = members(known, leading.map(|status| status.node), |member| {
            let answer = answers.get(&member.addr).map(Result::as_ref);
            // A former member of the same name may have had the address.
            let status = answer.and_then(Result::ok).filter(|status| status.node == member.id);
            let error = answer.and_then(Result::err).map(ToString::to_string);
            let positions = status.map(|status| Positions::of(status, committed));
            (status.is_some(), Answer { error, positions })
        });
        let leader = members.iter().find(|member| member.leader).map(|member| member.name.clone());
        Self { leader, cluster: known.cluster.to_string(), epoch: known.applied.epoch.0, members }
    }
}

/// The members that a node knows, each with whether it can be reached and what else is told of it.
fn members<T>(
    status: &Status,
    leader: Option<NodeId>,
    tell: impl Fn(&quorate::MemberStatus) -> (bool, T),
) -> Vec<Member<T>> {
    let mut listed: Vec<_> = status.members.iter().collect();
    listed.sort_by(|a, b| (a.name.parse::<u64>().ok(), &a.name).cmp(&(b.name.parse().ok(), &b.name)));
    let members = listed.into_iter().map(|member| {
        let (reachable, told) = tell(member);
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

    use quorate::{ClusterId, Epoch, GroupId, MemberStatus, Position, Standing};
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
        });
        Status {
            cluster: ClusterId(0xc0ffee),
            node: NodeId(1),
            name: "a".to_owned(),
            leader: Some(NodeId(2)),
            term: 4,
            last_index: 101,
            committed_index: 100,
            applied: Position { epoch: Epoch(1), group: GroupId::MAIN, index: 90 },
            durable_index: 80,
            log_bytes: 1 << 20,
            database_bytes: 4096,
            members: members.into(),
            blocked: None,
            fault: None,
            stopped: None,
            standing: Standing {
                last_leader: Some(NodeId(2)),
                leader_silent_for: Some(Duration::from_millis(80)),
                joined: true,
                votes: true,
            },
        }
    }

    #[test]
    fn what_a_node_tells_has_stable_names() {
        let told = serde_json::to_value(NodeStatus::of(&status(), Duration::from_secs(5))).unwrap_or_default();
        let member = |id: u64, name: &str, leader, reachable, silent_ms| {
            json!({
                "name": name, "raft_id": format!("{id:016x}"), "addr": format!("{name}:1"), "voter": true,
                "leader": leader, "reachable": reachable, "silent_ms": silent_ms, "applied": 90,
            })
        };
        let expected = json!({
            "name": "a", "raft_id": "0000000000000001", "member": true, "leader": "b", "last_leader": "b",
            "leader_silent_ms": 80, "votes": true, "voters": 3, "voters_reachable": 2,
            "cluster": "00000000000000000000000000c0ffee", "epoch": 1, "term": 4,
            "last": 101, "committed": 100, "applied": 90, "durable": 80, "lag": 10, "log_bytes": 1 << 20,
            "database_bytes": 4096, "stopped": null,
            "members": [
                member(1, "a", false, true, 0), member(2, "b", true, true, 0), member(3, "c", false, false, 60_000),
            ],
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn a_node_that_hears_no_leader_names_none_and_tells_no_lag() {
        let told = NodeStatus::of(&Status { leader: None, ..status() }, Duration::from_secs(5));
        assert_eq!((told.leader, told.last_leader, told.positions.lag), (None, Some("b".to_owned()), None));
    }

    #[test]
    fn the_leader_of_the_latest_term_counts_and_the_dead_are_shown() {
        let old = Status { leader: Some(NodeId(1)), ..status() };
        let new = Status { node: NodeId(2), term: 5, committed_index: 120, ..status() };
        let dead = Err("connection refused");
        let answers = [("a:1".to_owned(), Ok(old)), ("b:1".to_owned(), Ok(new)), ("c:1".to_owned(), dead)];
        let told = serde_json::to_value(ClusterStatus::assemble(&status(), &answers.into())).unwrap_or_default();
        assert_eq!((&told["leader"], &told["members"][0]["leader"]), (&json!("b"), &json!(false)));
        assert_eq!((&told["members"][0]["lag"], &told["members"][0]["error"]), (&json!(30), &Value::Null));
        let dead = &told["members"][2];
        assert_eq!((&dead["reachable"], &dead["error"]), (&json!(false), &json!("connection refused")));
        assert!(dead.get("applied").is_none());
    }
}
