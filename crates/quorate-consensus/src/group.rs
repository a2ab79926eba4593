//! A node's part in one group: a core, the log that it replicates, and the store that applies the log.
//!
//! The groups of a node share its log file, its connections and its identity; each has its own elections, writes,
//! reads, images and purges. `main` decides who the members of the cluster are, and the other groups follow it
//! ([`membership::follow`](crate::membership::follow)).
//!
//! Invariant: a position names the group whose log it is a place in. Positions of different groups are never compared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::rt::WatchReceiver;
use quorate_env::{Instant, timeout_at};
use quorate_model::{Applied, GroupId, NodeId, Outcome, Position, StateMachine, StoreFault};
use quorate_wire::StreamReceiver;
use tokio::sync::watch;

use crate::Member;
use crate::archive::Kept;
use crate::combiner::{Combiner, HOLD_MAX, Hold};
use crate::config::ConsensusConfig;
use crate::error::{Ended, ProposeError, ReadPositionError};
use crate::group_log::GroupLog;
use crate::images::{self, ImageError, ImagePieces, ImageSender};
use crate::leader_contact::LeaderContact;
use crate::metrics::GroupMetrics;
use crate::peers::Peers;
use crate::raft::Raft;
use crate::reads::ReadPositions;
use crate::stages::{Stages, WriteTrace};
use crate::verdict::Verdicts;

/// A node's part in one group. Cheap to clone; every method may be called from any thread and runtime.
#[derive(Clone)]
pub struct Group {
    pub(crate) log: GroupLog,
    pub(crate) config: Arc<ConsensusConfig>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) raft: Raft,
    pub(crate) store: Arc<dyn StateMachine>,
    pub(crate) combiner: Combiner,
    pub(crate) verdicts: Arc<Verdicts>,
    pub(crate) images: Arc<ImageSender>,
    pub(crate) reads: ReadPositions,
    pub(crate) stages: Arc<Stages>,
    /// When messages of the leader have arrived.
    pub(crate) leader_contact: Arc<LeaderContact>,
    pub(crate) metrics: Arc<GroupMetrics>,
    /// What the log keeps for the archive.
    pub(crate) kept: Arc<Kept>,
}

/// The groups of a node.
pub(crate) struct Groups {
    pub(crate) main: Group,
    pub(crate) others: BTreeMap<GroupId, Group>,
}

impl Groups {
    pub(crate) fn get(&self, id: GroupId) -> Option<&Group> {
        if id == GroupId::MAIN { Some(&self.main) } else { self.others.get(&id) }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Group> {
        [&self.main].into_iter().chain(self.others.values())
    }
}

impl Group {
    /// Returns the group's id.
    pub fn id(&self) -> GroupId {
        self.log.group()
    }

    /// Replicates a proposal ([`quorate_model::codec::encode_proposal`]) and returns its position and its outcome. A
    /// node that does not lead forwards it to the leader, together with other queued proposals.
    pub async fn propose(&self, proposal: Bytes) -> Result<(Position, Outcome), ProposeError> {
        self.check_member()?;
        let (index, outcome) = self.combiner.propose(proposal).await?;
        Ok((self.position(index), outcome))
    }

    /// Waits until all earlier writes are applied, and then holds back all other writes as long as the caller keeps the
    /// returned value, at most for `limit` and at most for [`HOLD_MAX`](crate::HOLD_MAX). Only the leader can do this.
    pub async fn hold(&self, limit: Duration) -> Result<Hold, ProposeError> {
        self.check_member()?;
        self.combiner.hold(limit.min(HOLD_MAX), self.position(0)).await
    }

    /// Fails if this node was removed from its cluster.
    fn check_member(&self) -> Result<(), ProposeError> {
        match self.log.home().removed() {
            Some(why) => Err(ProposeError::Stopped(why.to_owned())),
            None => Ok(()),
        }
    }

    /// Returns the position up to which a linearizable read that begins now must see the state. Any node can find it
    /// out. The reader waits until its store has applied this position.
    pub async fn read_position(&self) -> Result<Position, ReadPositionError> {
        if self.log.home().removed().is_some() {
            return Err(ReadPositionError::Stopped);
        }
        self.reads.get().await.map(|index| self.position(index))
    }

    /// Returns the position for a read that may see an older state, but none that is older than `age`.
    pub async fn read_position_within(&self, age: Duration) -> Result<Position, ReadPositionError> {
        if self.log.home().removed().is_some() {
            return Err(ReadPositionError::Stopped);
        }
        self.reads.get_within(age).await.map(|index| self.position(index))
    }

    /// Returns the leader, as far as this node knows.
    pub fn leader(&self) -> Option<(NodeId, Member)> {
        let leader = self.raft.metrics().borrow_watched().current_leader?;
        self.peers.leader_member(leader, None)
    }

    /// Whether this node leads.
    pub fn is_leader(&self) -> bool {
        self.raft.is_leader()
    }

    /// Waits until this node knows a leader, at most until `deadline`, and returns the leader.
    pub async fn wait_leader(&self, deadline: Instant) -> Option<(NodeId, Member)> {
        let mut metrics = self.raft.metrics();
        loop {
            if let Some(leader) = self.leader() {
                return Some(leader);
            }
            timeout_at(deadline, metrics.changed()).await.ok()?.ok()?;
        }
    }

    /// Begins an image of the store's present state that is not for a member, so that the log need not be kept for its
    /// receiver. Call it in the node's runtime.
    pub async fn image(&self) -> Result<ImagePieces, StoreFault> {
        ImagePieces::begin(self.log.env(), &self.store).await
    }

    /// Sets whether images for members are withheld, so that data in doubt does not spread.
    pub fn withhold_images(&self, withheld: bool) {
        self.images.withhold(withheld);
    }

    /// Receives an image from another member and replaces the store's state with it. The store must not have applied
    /// more than the image holds, and must not apply entries meanwhile. Later the store gets the entries up to the
    /// image's end again and skips them. Call it in the node's runtime.
    pub async fn replace_store(&self, pieces: &mut StreamReceiver) -> Result<Applied, ImageError> {
        images::replace(&self.log, &self.store, pieces).await
    }

    /// Returns the metrics of this node's part in the group.
    pub fn metrics(&self) -> GroupMetrics {
        GroupMetrics::clone(&self.metrics)
    }

    /// Returns a receiver of write traces: for each batch, one of the write that waited longest. Traces are made only
    /// while there is a receiver.
    pub fn write_traces(&self) -> watch::Receiver<Option<WriteTrace>> {
        self.stages.traces()
    }

    /// Waits until the node's part in the group has ended, and returns the reason.
    pub(crate) async fn ended(&self) -> Ended {
        // Unlike the metrics that tell the reason, these don't change with each entry. Both end with the core.
        let mut metrics = self.raft.server_metrics();
        while metrics.changed().await.is_ok() {}
        let Err(fatal) = self.raft.metrics().borrow_watched().running_state.clone() else { return Ended::Stopped };
        match (fatal, self.log.home().removed()) {
            (_, Some(why)) => Ended::Removed(why.to_owned()),
            (openraft::errors::Fatal::Stopped, None) => match self.store.fault() {
                Some(fault @ StoreFault::Damaged(_)) => Ended::Store(fault),
                _ => Ended::Stopped,
            },
            (other, None) => match self.verdicts.ended_by() {
                Some(fault) => Ended::Store(fault),
                None => Ended::Core(other.to_string()),
            },
        }
    }

    pub(crate) fn position(&self, index: u64) -> Position {
        Position { epoch: self.log.home().identity().epoch(), group: self.id(), index }
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("id", &self.id()).finish_non_exhaustive()
    }
}
