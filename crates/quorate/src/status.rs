//! The state of a node and its cluster.

use std::time::Duration;

use quorate_consensus::{self as consensus, Blocked, ClusterId, ClusterStatus, GroupStatus, MemberStatus, Standing};
use quorate_model::{Archiver, NodeId, Position, StoreFault};

/// The state of a node and its cluster, as that node sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node that reports.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// The leader, if the node knows one and has heard of it recently.
    pub leader: Option<NodeId>,
    /// The node that writes the archive, as the node's database has it, if one was appointed.
    pub archiver: Option<Archiver>,
    /// How far the archive has come, if the node that reports writes it.
    pub archive: Option<ArchiveStatus>,
    /// The current term.
    pub term: u64,
    /// The last index of the node's log; 0 for none.
    pub last_index: u64,
    /// The last index that the node knows to be committed.
    pub committed_index: u64,
    /// The position of its database.
    pub applied: Position,
    /// The last index that its database contains without the log.
    pub durable_index: u64,
    /// The format level that the cluster uses. It rises once all members understand a higher one.
    pub format_level: u32,
    /// Bytes of the log's files.
    pub log_bytes: u64,
    /// Bytes of the database's files.
    pub database_bytes: u64,
    /// All members, in the order of their Raft ids.
    pub members: Vec<MemberStatus>,
    /// The entry before which the node waits because the entry can't be applied, if there is one.
    pub blocked: Option<Blocked>,
    /// The fault of its database, if it has one: it then applies nothing.
    pub fault: Option<String>,
    /// Why the node has stopped, if it has.
    pub stopped: Option<String>,
    /// What the node knows of its own role in the cluster.
    pub standing: Standing,
    /// The groups beside `main`, in the order of their ids. What is said above about a log is about that of `main`.
    pub groups: Vec<GroupStatus>,
}

/// How far an archive has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveStatus {
    /// The last entry up to which everything is archived.
    pub archived_index: u64,
    /// The last entry that is in the last archived boundary.
    pub boundary_index: u64,
    /// For how long something has waited to be archived.
    pub lag: Duration,
    /// How often archiving has failed since the node has started.
    pub failures: u64,
    /// The last failure, if nothing has succeeded since.
    pub failure: Option<String>,
    /// When this node has last rehearsed a restore with success, in seconds since 1970.
    pub rehearsed_at: Option<u64>,
}

impl Status {
    /// Returns how many committed entries the node has not applied yet; `None` while it hears of no leader, and so does
    /// not know what is committed, or while it has no database.
    pub fn lag(&self) -> Option<u64> {
        self.leader.and_then(|_| self.lag_behind(self.committed_index))
    }

    /// Returns how many entries up to `committed` the node has not applied yet; `None` while it has no database.
    pub fn lag_behind(&self, committed: u64) -> Option<u64> {
        consensus::lag(self.applied.index, committed)
    }

    /// Returns how many voters can be reached, and how many there are. A voter that was silent for longer than
    /// `silence_max` counts as unreachable.
    pub fn reachable_voters(&self, silence_max: Duration) -> (usize, usize) {
        let voters = || self.members.iter().filter(|member| member.voter);
        (voters().filter(|voter| voter.silent_for <= silence_max).count(), voters().count())
    }

    /// Returns the leader, if the node knows one.
    pub fn leader(&self) -> Option<&MemberStatus> {
        self.members.iter().find(|member| Some(member.id) == self.leader)
    }

    /// Combines the status of the cluster with that of the database: `durable_index`, `database_bytes`, `fault` and
    /// `archiver`. The node adds `archive`.
    pub(crate) fn new(
        cluster: ClusterStatus,
        durable_index: u64,
        database_bytes: u64,
        fault: Option<&StoreFault>,
        archiver: Option<Archiver>,
    ) -> Self {
        Self {
            cluster: cluster.cluster,
            node: cluster.node,
            name: cluster.name,
            leader: cluster.main.leader,
            archiver,
            archive: None,
            term: cluster.main.term,
            last_index: cluster.main.last.map_or(0, |id| id.index),
            committed_index: cluster.main.committed.map_or(0, |id| id.index),
            applied: cluster.main.applied,
            durable_index,
            format_level: cluster.main.format_level,
            log_bytes: cluster.log_bytes,
            database_bytes,
            members: cluster.members,
            blocked: cluster.main.blocked,
            fault: fault.map(StoreFault::to_string),
            stopped: cluster.main.stopped,
            standing: cluster.standing,
            groups: cluster.groups,
        }
    }
}
