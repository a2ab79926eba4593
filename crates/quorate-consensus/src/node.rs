//! The handle to a node's part in consensus.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use openraft::rt::WatchReceiver;
use quorate_env::{Instant, lock, timeout, timeout_at};
use quorate_model::{Applied, GroupId, NodeId, Outcome, Position, StoreFault};
use quorate_wal::{WalMetrics, WalStats};
use quorate_wire::{CallError, Connections, Purpose, Server, StreamReceiver, StreamSender};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::Member;
use crate::belong;
use crate::combiner::{HOLD_MAX, Hold};
use crate::config::Timing;
use crate::error::{Ended, MembershipError, ProposeError, ReadPositionError};
use crate::images::{self, ImageError, ImagePieces};
use crate::levels::{self, LevelTooLow};
use crate::membership;
use crate::metrics::ConsensusMetrics;
use crate::peer_service::{PeerService, Running};
use crate::permits::{self, Admission, Admitted};
use crate::raft::Raft;
use crate::reads::ReadPositions;
use crate::stages::{Stages, WriteTrace};
use crate::status::{ClusterStatus, cluster_status};

/// The maximum time for calls in progress to end when the node stops.
const STOP_MAX: Duration = Duration::from_secs(2);

/// How long a stopping leader waits for the answers of voters that could take over.
const HAND_OVER_ASK_MAX: Duration = Duration::from_millis(300);

/// A node's part in consensus. Cheap to clone; every method may be called from any thread and runtime.
///
/// Dropping all clones does not stop the node: call [`Consensus::stop`], or end its runtime.
#[derive(Clone)]
pub struct Consensus(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) service: Arc<PeerService>,
    pub(crate) running: Running,
    pub(crate) stages: Arc<Stages>,
    pub(crate) reads: ReadPositions,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) addr: String,
    pub(crate) server: Mutex<Option<Server>>,
    pub(crate) tasks: Mutex<Vec<AbortHandle>>,
}

impl Consensus {
    /// Replicates a proposal ([`quorate_model::codec::encode_proposal`]) and returns its position and its outcome. A
    /// node that does not lead forwards it to the leader, together with other queued proposals.
    pub async fn propose(&self, proposal: Bytes) -> Result<(Position, Outcome), ProposeError> {
        if let Some(why) = self.removed() {
            return Err(ProposeError::Stopped(why.to_owned()));
        }
        let (index, outcome) = self.0.running.combiner.propose(proposal).await?;
        Ok((self.position(index), outcome))
    }

    /// Fails unless the cluster uses a format level that is at least `needed`.
    pub fn check_level(&self, needed: u32) -> Result<(), LevelTooLow> {
        levels::check(&self.0.service, &self.0.running, needed)
    }

    /// Waits until all earlier writes are applied, and then holds back all other writes as long as the caller keeps the
    /// returned value, at most for `limit` and at most for [`HOLD_MAX`](crate::HOLD_MAX). Only the leader can do this.
    pub async fn hold(&self, limit: Duration) -> Result<Hold, ProposeError> {
        if let Some(why) = self.removed() {
            return Err(ProposeError::Stopped(why.to_owned()));
        }
        self.0.running.combiner.hold(limit.min(HOLD_MAX), self.0.service.home.identity().epoch()).await
    }

    /// Opens a stream for a method of the layers above to a member, on the connection for `purpose`.
    pub async fn open_stream(
        &self,
        id: NodeId,
        purpose: Purpose,
        method: u16,
    ) -> Option<(StreamSender, StreamReceiver)> {
        let peers = Arc::clone(&self.0.service.peers);
        self.on_core(async move { peers.open_stream(id.0, purpose, method).await }).await.flatten()
    }

    /// Returns the position up to which a linearizable read that begins now must see the state. Any node can find it
    /// out. The reader waits until its store has applied this position.
    pub async fn read_position(&self) -> Result<Position, ReadPositionError> {
        if self.removed().is_some() {
            return Err(ReadPositionError::Stopped);
        }
        self.0.reads.get().await.map(|index| self.position(index))
    }

    /// Returns the position for a read that may see an older state, but none that is older than `age`.
    pub async fn read_position_within(&self, age: Duration) -> Result<Position, ReadPositionError> {
        if self.removed().is_some() {
            return Err(ReadPositionError::Stopped);
        }
        self.0.reads.get_within(age).await.map(|index| self.position(index))
    }

    /// Returns the state of the cluster, as this node knows it.
    pub fn status(&self) -> ClusterStatus {
        cluster_status(&self.0.service, &self.0.running)
    }

    /// Whether this node has applied its own admission to the cluster, and so everything that was committed before it.
    /// Until then its store may be empty.
    pub fn has_joined(&self) -> bool {
        let joined = &self.0.service.joined;
        if !joined.load(Ordering::Relaxed) {
            let own = self.0.service.home.identity().id;
            let membership = belong::applied_membership(&self.0.running.store.applied());
            joined.store(membership.is_some_and(|(_, all)| all.get_node(&own).is_some()), Ordering::Relaxed);
        }
        joined.load(Ordering::Relaxed)
    }

    /// Returns the leader, as far as this node knows.
    pub fn leader(&self) -> Option<(NodeId, Member)> {
        let leader = self.0.running.raft.metrics().borrow_watched().current_leader?;
        self.0.service.peers.leader_member(leader, None)
    }

    /// Whether this node leads.
    pub fn is_leader(&self) -> bool {
        self.0.running.raft.is_leader()
    }

    /// Waits until this node knows a leader, at most until `deadline`, and returns the leader.
    pub async fn wait_leader(&self, deadline: Instant) -> Option<(NodeId, Member)> {
        let mut metrics = self.0.running.raft.metrics();
        loop {
            if let Some(leader) = self.leader() {
                return Some(leader);
            }
            timeout_at(deadline, metrics.changed()).await.ok()?.ok()?;
        }
    }

    /// Hands leadership to the voter with the name `to`, or to the most suitable voter, and returns the new leader.
    /// Only the leader can do this.
    pub async fn transfer_leadership(&self, to: Option<&str>) -> Result<NodeId, MembershipError> {
        let to = to.map(str::to_owned);
        let transfer = |service: Arc<PeerService>, raft: Raft| async move {
            membership::transfer_to(&service, &raft, to.as_deref()).await
        };
        self.change(transfer).await
    }

    /// Removes a member by its name, for ever: its ids never come back. Only the leader can do this. If the member is
    /// the leader itself, it only hands leadership over and names the new leader ([`MembershipError::NotLeader`]).
    ///
    /// Unless `force` is set, refuses if no majority of the remaining voters can be reached.
    pub async fn remove(&self, name: &str, force: bool) -> Result<(), MembershipError> {
        let name = name.to_owned();
        let remove = |service: Arc<PeerService>, raft: Raft| async move {
            membership::remove(&service, &raft, &name, force).await
        };
        self.change(remove).await
    }

    /// Rejects the entry at which the leader waits for voters that can't be reached. Only the leader can do this.
    ///
    /// A voter that has applied the entry takes a copy of the others' data when it comes back.
    pub async fn reject_entry(&self, index: u64) -> Result<(), MembershipError> {
        let verdicts = Arc::clone(&self.0.running.verdicts);
        let reject = |service: Arc<PeerService>, raft: Raft| async move {
            membership::leading(&service, &raft)?;
            verdicts.force(index).map_err(MembershipError::Refused)
        };
        self.change(reject).await
    }

    /// Permits a node to become a member, and returns how far the admission has come. The permit lasts for 15 seconds:
    /// call this about once a second, on the present leader, until the node is a voter. Only the leader can do this.
    pub async fn admit(&self, admission: Admission) -> Result<Admitted, MembershipError> {
        let admit =
            |service: Arc<PeerService>, raft: Raft| async move { permits::permit(&service, &raft, &admission).await };
        self.change(admit).await
    }

    /// Returns the reason if this node was removed from its cluster, and so takes no further part in it.
    pub fn removed(&self) -> Option<&str> {
        self.0.service.removed.get().map(String::as_str)
    }

    /// Returns the intervals and deadlines in the configuration.
    pub fn timing(&self) -> Timing {
        self.0.service.config.timing
    }

    /// Calls a method of the layers above on a member.
    pub async fn call_member(&self, id: NodeId, method: u16, body: Bytes, limit: Duration) -> Result<Bytes, CallError> {
        let peers = Arc::clone(&self.0.service.peers);
        let call = self.on_core(async move { peers.call_member(id.0, method, body, limit).await });
        // If the runtime ended, the call may have been sent.
        call.await.unwrap_or(Err(CallError::Broken))
    }

    /// Begins an image of the store's present state that is not for a member, so that the log need not be kept for its
    /// receiver. Call it in the node's runtime.
    pub async fn image(&self) -> Result<ImagePieces, StoreFault> {
        ImagePieces::begin(&self.0.service.home.env, &self.0.running.store).await
    }

    /// Sets whether images for members are withheld, so that data in doubt does not spread.
    pub fn withhold_images(&self, withheld: bool) {
        self.0.running.images.withhold(withheld);
    }

    /// Receives an image from another member and replaces the store's state with it. The store must not have applied
    /// more than the image holds, and must not apply entries meanwhile. Later the store gets the entries up to the
    /// image's end again and skips them. Call it in the node's runtime.
    pub async fn replace_store(&self, pieces: &mut StreamReceiver) -> Result<Applied, ImageError> {
        images::replace(&self.0.service.home, &self.0.running.store, pieces).await
    }

    /// Returns the address that this node listens on.
    pub fn local_addr(&self) -> &str {
        &self.0.addr
    }

    /// Returns the size of the log's files in bytes.
    pub fn log_bytes(&self) -> u64 {
        self.0.service.home.wal.disk_bytes()
    }

    /// Returns the metrics of this node's part in consensus.
    pub fn metrics(&self) -> ConsensusMetrics {
        ConsensusMetrics::clone(&self.0.service.metrics)
    }

    /// Returns the metrics of the log.
    pub fn log_metrics(&self) -> (WalStats, WalMetrics) {
        let wal = &self.0.service.home.wal;
        (wal.stats(), wal.metrics())
    }

    /// Whether the log waits for space on the disk.
    pub fn is_log_full(&self) -> bool {
        self.0.service.home.wal.is_disk_full()
    }

    /// Returns the connections to this node; none once it stops.
    pub fn connections(&self) -> Connections {
        lock(&self.0.server).as_ref().map(Server::connections).unwrap_or_default()
    }

    /// Returns the longest silence after which a member still counts as reachable.
    pub fn silence_max(&self) -> Duration {
        self.0.service.peers.silence_max()
    }

    /// Returns the clocks of the other members that can be reached, minus this node's, in nanoseconds.
    pub fn clock_offsets(&self) -> Vec<(NodeId, i64)> {
        self.0.service.peers.clock_offsets()
    }

    /// Returns a receiver of write traces: for each batch, one of the write that waited longest. Traces are made only
    /// while there is a receiver.
    pub fn write_traces(&self) -> watch::Receiver<Option<WriteTrace>> {
        self.0.stages.traces()
    }

    /// Waits until the node's part in consensus has ended, and returns the reason.
    pub async fn ended(&self) -> Ended {
        let mut metrics = self.0.running.raft.metrics();
        loop {
            if let Err(fatal) = &metrics.borrow_watched().running_state {
                return match (fatal, self.removed()) {
                    (_, Some(why)) => Ended::Removed(why.to_owned()),
                    (openraft::errors::Fatal::Stopped, None) => match self.0.running.store.fault() {
                        Some(fault @ StoreFault::Damaged(_)) => Ended::Store(fault),
                        _ => Ended::Stopped,
                    },
                    (other, None) => match self.0.running.verdicts.ended_by() {
                        Some(fault) => Ended::Store(fault),
                        None => Ended::Core(other.to_string()),
                    },
                };
            }
            if metrics.changed().await.is_err() {
                return Ended::Stopped;
            }
        }
    }

    /// Stops in an orderly way: hands leadership over, ends the calls in progress, stops the core, closes the log. The
    /// caller has to close the store. Call it on the node's own runtime.
    pub async fn stop(&self) {
        if self.is_leader() {
            self.hand_over().await;
        }
        let server = lock(&self.0.server).take();
        if let Some(server) = server {
            server.stop(STOP_MAX).await;
        }
        for task in lock(&self.0.tasks).drain(..) {
            task.abort();
        }
        self.0.running.verdicts.close();
        // If this fails, the core had ended already.
        let _ = timeout(STOP_MAX, self.0.running.raft.shutdown()).await;
        let (sender, receiver) = oneshot::channel();
        let done = Box::new(move |result| drop(sender.send(result)));
        if self.0.service.home.wal.close_clean(done).is_ok() {
            let _ = timeout(STOP_MAX, receiver).await;
        }
    }

    /// Hands leadership to a voter that answers now. The latest status is not enough: a voter may have stopped since.
    async fn hand_over(&self) {
        let (raft, peers) = (&self.0.running.raft, &self.0.service.peers);
        let own = *raft.node_id();
        let voters: Vec<u64> = raft.voter_ids().filter(|id| *id != own).collect();
        let there = peers.answering(&voters, HAND_OVER_ASK_MAX).await;
        if there.is_empty() {
            return tracing::info!(event = "no_hand_over", "no other voter answers, so none can take over leadership");
        }
        match membership::transfer(raft, peers, |id| there.contains(&id)).await {
            Ok(leader) => {
                let name =
                    peers.leader_member(leader.0, None).map_or_else(|| leader.to_string(), |(_, member)| member.name);
                tracing::info!(event = "handed_over", member = name, "{name} has taken over leadership");
            }
            Err(error) => tracing::info!(event = "no_hand_over", %error, "no other voter took over leadership"),
        }
    }

    /// Runs a change of the members to its end, even if the caller does not wait for it.
    async fn change<T, F>(&self, change: impl FnOnce(Arc<PeerService>, Raft) -> F) -> Result<T, MembershipError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, MembershipError>> + Send + 'static,
    {
        let done = self.on_core(change(Arc::clone(&self.0.service), self.0.running.raft.clone()));
        done.await.unwrap_or_else(|| Err(MembershipError::Unconfirmed("the node went down".to_owned())))
    }

    /// Runs a future on the core's runtime, which owns the connections and timers.
    async fn on_core<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let task = {
            let _inside = self.0.runtime.enter();
            self.0.service.home.env.spawn(future)
        };
        task.await.ok()
    }

    fn position(&self, index: u64) -> Position {
        Position { epoch: self.0.service.home.identity().epoch(), group: GroupId::MAIN, index }
    }
}
