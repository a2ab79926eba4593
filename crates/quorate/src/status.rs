//! How a node and its cluster stand.

use std::time::Duration;

use quorate_consensus::{self as consensus, Blocked, ClusterId, ClusterStatus, MemberStatus, Standing};
use quorate_model::{NodeId, Position, StoreFault};

/// How a node and its cluster stand, as that node sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node that tells.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// The leader, if the node knows one and has heard of it lately.
    pub leader: Option<NodeId>,
    /// The present term.
    pub term: u64,
    /// The last index of the node's log; 0 for none.
    pub last_index: u64,
    /// Up to where it knows the log to be committed.
    pub committed_index: u64,
    /// Up to where its database is.
    pub applied: Position,
    /// Up to where its database is without the log.
    pub durable_index: u64,
    /// Bytes of its log's files.
    pub log_bytes: u64,
    /// Bytes of its database's files.
    pub database_bytes: u64,
    /// All members, by Raft id.
    pub members: Vec<MemberStatus>,
    /// The entry that the node does not apply for the time being, if there is one: it or the cluster can't.
    pub blocked: Option<Blocked>,
    /// What is wrong with its database, if anything is: it applies nothing then.
    pub fault: Option<String>,
    /// Why the node takes no part any more, if it doesn't.
    pub stopped: Option<String>,
    /// What the node knows of its own place in the cluster.
    pub standing: Standing,
}

impl Status {
    /// Committed entries that the node has not applied yet; `None` while it hears of no leader, and so does not know
    /// what is committed, or while it has no database.
    pub fn lag(&self) -> Option<u64> {
        self.leader.and_then(|_| self.lag_behind(self.committed_index))
    }

    /// How many of the entries up to `committed` the node has not applied yet; `None` while it has no database.
    pub fn lag_behind(&self, committed: u64) -> Option<u64> {
        consensus::lag(self.applied.index, committed)
    }

    /// How many voters can be reached, and how many there are. One of which nothing was heard for longer than
    /// `silence_max` can't be.
    pub fn reachable_voters(&self, silence_max: Duration) -> (usize, usize) {
        let voters = || self.members.iter().filter(|member| member.voter);
        (voters().filter(|voter| voter.silent_for <= silence_max).count(), voters().count())
    }

    /// The leader, if the node knows one.
    pub fn leader(&self) -> Option<&MemberStatus> {
        self.members.iter().find(|member| Some(member.id) == self.leader)
    }

    /// `durable_index`, `database_bytes` and `fault` are those of its database.
    pub(crate) fn new(
        cluster: ClusterStatus,
        durable_index: u64,
        database_bytes: u64,
        fault: Option<&StoreFault>,
    ) -> Self {
        Self {
            cluster: cluster.cluster,
            node: cluster.node,
            name: cluster.name,
            leader: cluster.leader,
            term: cluster.term,
            last_index: cluster.last.map_or(0, |id| id.index),
            committed_index: cluster.committed.map_or(0, |id| id.index),
            applied: cluster.applied,
            durable_index,
            log_bytes: cluster.log_bytes,
            database_bytes,
            members: cluster.members,
            blocked: cluster.blocked,
            fault: fault.map(StoreFault::to_string),
            stopped: cluster.stopped,
            standing: cluster.standing,
        }
    }
}
