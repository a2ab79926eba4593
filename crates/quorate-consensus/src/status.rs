//! How the cluster stands, as this node sees it.

use std::time::Duration;

use openraft::rt::WatchReceiver;
use quorate_model::{Epoch, GroupId, LogId, NodeId, Position};

use crate::identity::ClusterId;
use crate::peer_service::{PeerService, Running};
use crate::raft::types::from_raft;
use crate::standing::{Standing, standing};
use crate::verdict::Blocked;

/// How the cluster stands, as one node sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterStatus {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node that tells.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// The leader, if it knows one and has heard of it lately.
    pub leader: Option<NodeId>,
    /// The present term.
    pub term: u64,
    /// The last entry of its log.
    pub last: Option<LogId>,
    /// What it knows to be committed.
    pub committed: Option<LogId>,
    /// Up to where its store is.
    pub applied: Position,
    /// Bytes of its log's files.
    pub log_bytes: u64,
    /// All members, learners too.
    pub members: Vec<MemberStatus>,
    /// The entry that it does not apply for the time being, if there is one.
    pub blocked: Option<Blocked>,
    /// Why its core stopped, if it did.
    pub stopped: Option<String>,
    /// What it knows of its own place.
    pub standing: Standing,
}

/// A member, as one node sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberStatus {
    /// Its Raft id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: String,
    /// Whether it votes.
    pub voter: bool,
    /// How long nothing was heard of it; zero for the node that tells.
    pub silent_for: Duration,
    /// Up to where its store was when it was last heard of.
    pub applied_index: u64,
}

impl MemberStatus {
    /// How many of the entries up to `committed` it had not applied when it was last heard of; `None` while it has no
    /// database at all.
    pub fn lag(&self, committed: u64) -> Option<u64> {
        lag(self.applied_index, committed)
    }
}

/// How many of the entries up to `committed` a node lacks that has applied those up to `applied`; `None` where it has
/// applied none: it is sent the database, and indexes do not count entries after a restore.
pub fn lag(applied: u64, committed: u64) -> Option<u64> {
    (applied > 0 || committed == 0).then(|| committed.saturating_sub(applied))
}

pub(crate) fn cluster_status(service: &PeerService, running: &Running) -> ClusterStatus {
    let identity = service.home.identity();
    let (leader, standing) = standing(service, running);
    let metrics = running.raft.metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let voters: Vec<u64> = membership.voter_ids().collect();
    let applied_index = running.store.applied().index();
    let members = membership.nodes().map(|(id, member)| {
        let own = *id == identity.id;
        MemberStatus {
            id: NodeId(*id),
            name: member.name.clone(),
            addr: member.addr.clone(),
            voter: voters.contains(id),
            silent_for: if own { Duration::ZERO } else { service.peers.silence(*id) },
            applied_index: if own {
                applied_index
            } else {
                service.peers.seen(*id).map_or(0, |seen| seen.status.applied_index)
            },
        }
    });
    ClusterStatus {
        cluster: identity.cluster(),
        node: identity.node(),
        name: identity.name.clone(),
        leader,
        term: metrics.current_term,
        last: service.home.wal.last_log_id(GroupId::MAIN),
        committed: metrics.local_committed.as_ref().map(from_raft),
        applied: Position { epoch: Epoch(identity.epoch), group: GroupId::MAIN, index: applied_index },
        log_bytes: service.home.wal.disk_bytes(),
        members: members.collect(),
        blocked: running.verdicts.blocked(),
        stopped: service.removed.get().cloned().or(metrics.running_state.as_ref().err().map(ToString::to_string)),
        standing,
    }
}
