//! The handle to a node's part in consensus.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select_all;
use quorate_env::{lock, timeout};
use quorate_model::{GroupId, NodeId};
use quorate_wal::{WalMetrics, WalStats};
use quorate_wire::{CallError, Connections, Purpose, Server, StreamReceiver, StreamSender};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::belong;
use crate::config::Timing;
use crate::error::{Ended, MembershipError};
use crate::group::{Group, Groups};
use crate::membership;
use crate::peer_service::PeerService;
use crate::permits::{self, Admission, Admitted};
use crate::raft::Raft;
use crate::status::{ClusterStatus, cluster_status};

/// The maximum time for calls in progress to end when the node stops.
const STOP_MAX: Duration = Duration::from_secs(2);

/// A node's part in consensus. Cheap to clone; every method may be called from any thread and runtime.
///
/// Dropping all clones does not stop the node: call [`Consensus::stop`], or end its runtime.
#[derive(Clone)]
pub struct Consensus(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) service: Arc<PeerService>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) addr: String,
    pub(crate) server: Mutex<Option<Server>>,
    pub(crate) tasks: Mutex<Vec<AbortHandle>>,
}

impl Consensus {
    /// Returns the group `main`, which every cluster has.
    pub fn main(&self) -> &Group {
        &self.0.groups.main
    }

    /// Returns a group by its id.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.0.groups.get(id)
    }

    /// Returns the groups beside `main`, in the order of their ids.
    pub fn others(&self) -> impl Iterator<Item = &Group> {
        self.0.groups.others.values()
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

    /// Returns the state of the cluster, as this node knows it.
    pub fn status(&self) -> ClusterStatus {
        cluster_status(&self.0.service, self.main())
    }

    /// Whether this node has applied its own admission to the cluster, and so everything that was committed before it.
    /// Until then its store may be empty.
    pub fn has_joined(&self) -> bool {
        let joined = &self.0.service.joined;
        if !joined.load(Ordering::Relaxed) {
            let own = self.0.service.home.identity().id;
            let membership = belong::applied_membership(&self.main().store.applied());
            joined.store(membership.is_some_and(|(_, all)| all.get_node(&own).is_some()), Ordering::Relaxed);
        }
        joined.load(Ordering::Relaxed)
    }

    /// Hands leadership to the voter with the name `to`, or to the most suitable voter, and returns the new leader.
    /// Only the leader can do this.
    pub async fn transfer_leadership(&self, to: Option<&str>) -> Result<NodeId, MembershipError> {
        let to = to.map(str::to_owned);
        let transfer = |service: Arc<PeerService>, raft: Raft| async move {
            membership::transfer_to(&service.peers, &raft, to.as_deref()).await
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

    /// Permits a node to become a member, and returns how far the admission has come. The permit lasts for 15 seconds:
    /// call this about once a second, on the present leader, until the node is a voter. Only the leader can do this.
    pub async fn admit(&self, admission: Admission) -> Result<Admitted, MembershipError> {
        let admit =
            |service: Arc<PeerService>, raft: Raft| async move { permits::permit(&service, &raft, &admission).await };
        self.change(admit).await
    }

    /// Returns whether a member can write an archive, if it has said so, or has said that it can't, lately.
    pub fn can_archive(&self, id: NodeId) -> Option<bool> {
        let service = &self.0.service;
        if id == service.home.identity().node() { Some(service.config.archives) } else { service.peers.archives(id) }
    }

    /// Returns the reason if this node was removed from its cluster, and so takes no further part in it.
    pub fn removed(&self) -> Option<&str> {
        self.0.service.home.removed()
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

    /// Returns the address that this node listens on.
    pub fn local_addr(&self) -> &str {
        &self.0.addr
    }

    /// Returns the size of the log's files in bytes.
    pub fn log_bytes(&self) -> u64 {
        self.0.service.home.wal.disk_bytes()
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

    /// Waits until the node's part in a group has ended, and returns the reason.
    pub async fn ended(&self) -> Ended {
        let all = self.0.groups.all().map(|group| Box::pin(group.ended()));
        select_all(all).await.0
    }

    /// Stops in an orderly way: hands leadership over, ends the calls in progress, stops the core, closes the log. The
    /// caller has to close the store. Call it on the node's own runtime.
    pub async fn stop(&self) {
        for group in self.0.groups.all().filter(|group| group.is_leader()) {
            group.hand_over().await;
        }
        let server = lock(&self.0.server).take();
        if let Some(server) = server {
            server.stop(STOP_MAX).await;
        }
        for task in lock(&self.0.tasks).drain(..) {
            task.abort();
        }
        for group in self.0.groups.all() {
            group.verdicts.close();
            // If this fails, the core had ended already.
            let _ = timeout(STOP_MAX, group.raft.shutdown()).await;
        }
        let (sender, receiver) = oneshot::channel();
        let done = Box::new(move |result| drop(sender.send(result)));
        if self.0.service.home.wal.close_clean(done).is_ok() {
            let _ = timeout(STOP_MAX, receiver).await;
        }
    }

    /// Runs a change of the members to its end, even if the caller does not wait for it.
    async fn change<T, F>(&self, change: impl FnOnce(Arc<PeerService>, Raft) -> F) -> Result<T, MembershipError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, MembershipError>> + Send + 'static,
    {
        let done = self.on_core(change(Arc::clone(&self.0.service), self.main().raft.clone()));
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
}
