//! The state of the cluster and of its groups, as this node knows it.

use std::time::Duration;

use openraft::rt::WatchReceiver;
use quorate_model::{GroupId, LogId, NodeId, Position};

use crate::group::Group;
use crate::identity::ClusterId;
use crate::levels;
use crate::membership;
use crate::peer_service::PeerService;
use crate::raft::types::from_raft;
use crate::standing::{Standing, standing};
use crate::verdict::Blocked;

/// The state of the cluster, as one node knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterStatus {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node that reports this status.
    pub node: NodeId,
    /// The node's name.
    pub name: String,
    /// The size of the node's log files in bytes.
    pub log_bytes: u64,
    /// All members, including learners.
    pub members: Vec<MemberStatus>,
    /// What the node knows about its own place in the cluster.
    pub standing: Standing,
    /// The state of the group `main`.
    pub main: GroupStatus,
    /// The states of the other groups.
    pub groups: Vec<GroupStatus>,
}

/// The state of a group, as one node knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupStatus {
    /// The leader, if the node knows one that is in contact with it or with a majority.
    pub leader: Option<NodeId>,
    /// The present term.
    pub term: u64,
    /// The last entry of the node's log.
    pub last: Option<LogId>,
    /// The last entry that the node knows to be committed.
    pub committed: Option<LogId>,
    /// The position up to which the node's store has applied the log.
    pub applied: Position,
    /// The format level that the group uses.
    pub format_level: u32,
    /// The members that vote.
    pub voters: Vec<NodeId>,
    /// The entry that the node does not apply for now, if there is one.
    pub blocked: Option<Blocked>,
    /// Why the group's core stopped, if it did.
    pub stopped: Option<String>,
}

impl GroupStatus {
    /// Returns the group's id.
    pub fn id(&self) -> GroupId {
        self.applied.group
    }

    /// Returns how many of the committed entries the node has not applied; `None` while it knows no leader, and so not
    /// what is committed, or while its store has applied nothing.
    pub fn lag(&self) -> Option<u64> {
        self.leader.and_then(|_| lag(self.applied.index, self.committed.map_or(0, |id| id.index)))
    }
}

impl Group {
    /// Returns the state of the group, as this node knows it.
    pub fn status(&self) -> GroupStatus {
        self.status_under(standing(self).0)
    }

    /// Returns the state of the group, given its leader.
    fn status_under(&self, leader: Option<NodeId>) -> GroupStatus {
        let (term, committed, voters, error) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            let voters = metrics.membership_config.membership().voter_ids().map(NodeId).collect();
            let error = metrics.running_state.as_ref().err().map(ToString::to_string);
            (metrics.current_term, metrics.local_committed.as_ref().map(from_raft), voters, error)
        };
        let applied = self.store.applied();
        GroupStatus {
            leader,
            term,
            last: self.log.last(),
            committed,
            applied: self.position(applied.index()),
            format_level: applied.level,
            voters,
            blocked: self.verdicts.blocked(),
            // A node that was removed takes no part in any group.
            stopped: self.log.home().removed().map(str::to_owned).or(error),
        }
    }
}

/// A member, as one node knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberStatus {
    /// The member's Raft id.
    pub id: NodeId,
    /// The member's name.
    pub name: String,
    /// The member's address.
    pub addr: String,
    /// Whether the member votes.
    pub voter: bool,
    /// The time since the member's last answer; zero for the node that reports this status.
    pub silent_for: Duration,
    /// The member's applied index in its last answer.
    pub applied_index: u64,
    /// The highest format level that the member's program understands; 0 if it has not said so lately.
    pub format_level: u32,
}

impl MemberStatus {
    /// Returns how many of the entries up to `committed` the member had not applied at its last answer; `None` while it
    /// has no database.
    pub fn lag(&self, committed: u64) -> Option<u64> {
        lag(self.applied_index, committed)
    }
}

/// Returns how many of the entries up to `committed` a node lacks that has applied those up to `applied`. Returns
/// `None` if the node has applied none: then it gets the database, and after a restore the difference of the indexes
/// does not count entries.
pub fn lag(applied: u64, committed: u64) -> Option<u64> {
    (applied > 0 || committed == 0).then(|| committed.saturating_sub(applied))
}

pub(crate) fn cluster_status(service: &PeerService, main: &Group) -> ClusterStatus {
    let identity = service.home.identity();
    let (leader, standing) = standing(main);
    let current = membership::current(&main.raft);
    let membership = current.membership();
    let voters: Vec<u64> = membership.voter_ids().collect();
    let members = membership.nodes().map(|(id, member)| {
        let own = *id == identity.id;
        MemberStatus {
            id: NodeId(*id),
            name: member.name.clone(),
            addr: member.addr.clone(),
            voter: voters.contains(id),
            silent_for: if own { Duration::ZERO } else { service.peers.silence(*id) },
            applied_index: if own {
                main.store.applied().index()
            } else {
                service.peers.seen(*id).map_or(0, |seen| seen.applied_index(GroupId::MAIN))
            },
            format_level: levels::announced(main, *id).unwrap_or(0),
        }
    });
    ClusterStatus {
        cluster: identity.cluster(),
        node: identity.node(),
        name: identity.name.clone(),
        log_bytes: service.home.wal.disk_bytes(),
        members: members.collect(),
        standing,
        main: main.status_under(leader),
        groups: service.groups.get().into_iter().flat_map(|groups| groups.others.values()).map(Group::status).collect(),
    }
}
