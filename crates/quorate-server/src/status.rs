//! The status of nodes and clusters as JSON, as answered by `/status` and printed by `quorate status --json`.
//!
//! Invariant: a field keeps its name and its meaning. New fields may be added.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate::{ArchiveStatus, Status, admin, types::NodeId};
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
    /// The node that writes the archive, as the member knows it that has applied the most; none if no node does.
    pub archiver: Option<Archiver>,
    /// How far the archive has come, if the archiver has answered.
    pub archive: Option<Archive>,
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
    /// How far the archive has come, if this node writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<Archive>,
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

impl Archiver {
    /// Returns the archiver as a node knows it.
    fn of(status: &Status) -> Option<Self> {
        let archiver = status.archiver?;
        let node = name_of(status, Some(archiver.node)).unwrap_or_else(|| archiver.node.to_string());
        Some(Self { node, token: archiver.token })
    }
}

/// How far an archive has come.
#[derive(Debug, Serialize)]
pub struct Archive {
    /// The last entry up to which everything is archived.
    pub archived_index: u64,
    /// The last entry that is in the last archived boundary.
    pub boundary_index: u64,
    /// For how long something has waited to be archived, in seconds.
    pub lag_seconds: f64,
    /// How often archiving has failed since the node has started.
    pub failures: u64,
    /// The last failure, if nothing has succeeded since.
    pub failure: Option<String>,
    /// When this node has last rehearsed a restore with success, in seconds since 1970.
    pub rehearsed_at: Option<u64>,
}

impl From<&ArchiveStatus> for Archive {
    fn from(archive: &ArchiveStatus) -> Self {
        let ArchiveStatus { archived_index, boundary_index, lag, failures, failure, rehearsed_at } = archive.clone();
        Self { archived_index, boundary_index, lag_seconds: lag.as_secs_f64(), failures, failure, rehearsed_at }
    }
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
            archiver: Archiver::of(status),
            archive: status.archive.as_ref().map(Archive::from),
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
        let newest = reached().max_by_key(|status| status.applied);
        let own = newest.and_then(|newest| newest.archiver);
        let own = own.and_then(|archiver| reached().find(|status| status.node == archiver.node));
        Self {
            leader,
            cluster: known.cluster.to_string(),
            epoch: known.applied.epoch.0,
            archiver: newest.and_then(Archiver::of),
            archive: own.and_then(|own| own.archive.as_ref()).map(Archive::from),
            members,
        }
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
mod tests;
