//! The server's handler: it answers the calls and streams of other nodes and of clients.
//!
//! Before the core runs, the node answers only the calls that find or found a cluster; all others fail as unavailable.
//! Methods from [`method::SERVICE`] on belong to the layers above.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{StreamExt, unfold};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, TransferLeaderRequest};
use openraft::rt::WatchReceiver;
use prost::Message;
use quorate_env::mutant::Mutant;
use quorate_env::{Instant, timeout};
use quorate_model::{DecodeError, GroupId, LogId};
use quorate_wire::{CallFailure, FailureKind, PeerInfo, Purpose, Role, StreamReceiver, StreamSender, User};

use crate::birth;
use crate::combiner::forward;
use crate::config::ConsensusConfig;
use crate::group::{Group, Groups};
use crate::home::Home;
use crate::identity::durability_number;
use crate::images;
use crate::membership;
use crate::peer::messages::{
    Append, Appended, Forward, GroupReply, ImageHead, Join, MemberInfo, Promise, Promised, Pull, ReadPositionAsk,
    ReadPositionReply, StandAsk, StatusReply, Transfer, VoteAnswer, VoteAsk, decode, encode, method,
};
use crate::peers::Peers;
use crate::permits::Permits;
use crate::raft::types::{Member, RaftLogId, TypeConfig, to_raft};
use crate::reads;
use crate::verdict::Verdicts;

/// If nothing arrives on a stream of entries for this long, the follower ends it, and the leader opens a new one.
const APPEND_IDLE_MAX: Duration = Duration::from_secs(60);

/// The maximum time for the first item of a stream to arrive.
const ASK_MAX: Duration = Duration::from_secs(30);

/// How long a follower that receives entries all the time delays the news that some of them are committed.
const COMMIT_PAUSE: Duration = Duration::from_millis(5);

/// Methods from this number on belong to the layers above.
pub const SERVICE_METHODS: u16 = method::SERVICE;

/// Answers the methods of the layers above.
pub trait Service: Send + Sync + 'static {
    /// Answers a call. The method's number is at least [`SERVICE_METHODS`].
    fn call(&self, peer: &PeerInfo, method: u16, body: Bytes) -> BoxFuture<'static, Result<Bytes, CallFailure>>;

    /// Lets a user in; see [`quorate_wire::Handler::login`]. The default lets nobody in.
    fn login(&self, _credentials: Bytes, _from: &str) -> BoxFuture<'static, Result<User, String>> {
        Box::pin(std::future::ready(Err("there are no users here".to_owned())))
    }

    /// Serves a stream until both directions are finished. The method's number is at least [`SERVICE_METHODS`]. The
    /// default refuses all streams.
    fn stream(
        &self,
        _peer: &PeerInfo,
        method: u16,
        sender: StreamSender,
        _receiver: StreamReceiver,
    ) -> BoxFuture<'static, ()> {
        sender.fail(unknown_stream(method));
        Box::pin(std::future::ready(()))
    }
}

fn unknown_stream(method: u16) -> CallFailure {
    CallFailure::new(FailureKind::UnknownMethod, format!("stream {method}"))
}

/// The state of the handler: the node as a member of its cluster.
pub(crate) struct PeerService {
    pub(crate) home: Home,
    pub(crate) config: Arc<ConsensusConfig>,
    pub(crate) peers: Arc<Peers>,
    /// The groups, once their cores run.
    pub(crate) groups: OnceLock<Arc<Groups>>,
    /// Answers the methods of the layers above.
    pub(crate) upper: Arc<dyn Service>,
    pub(crate) permits: Permits,
    /// Set once the node has applied its own admission.
    pub(crate) joined: AtomicBool,
    /// The highest format level that this node has proposed to raise to.
    pub(crate) raising: AtomicU32,
}

type CallResult = Result<Bytes, CallFailure>;

impl PeerService {
    pub(crate) fn new(
        home: &Home,
        config: &Arc<ConsensusConfig>,
        peers: &Arc<Peers>,
        upper: Arc<dyn Service>,
    ) -> Arc<Self> {
        Arc::new(Self {
            home: home.clone(),
            config: Arc::clone(config),
            peers: Arc::clone(peers),
            groups: OnceLock::new(),
            upper,
            permits: Permits::default(),
            joined: AtomicBool::new(false),
            raising: AtomicU32::new(0),
        })
    }

    /// Returns a group, if the peer is of the same cluster.
    fn group_for(&self, peer: &PeerInfo, group: u32) -> Result<&Group, CallFailure> {
        let starting = || CallFailure::new(FailureKind::Unavailable, "the node is starting");
        let groups = self.groups.get().ok_or_else(starting)?;
        if peer.cluster != self.home.identity().cluster().0 {
            return Err(CallFailure::new(FailureKind::Forbidden, "only members of the cluster may ask for this"));
        }
        let unknown = || CallFailure::new(FailureKind::Unavailable, format!("this node has no group {group}"));
        groups.get(GroupId(group)).ok_or_else(unknown)
    }

    async fn answer(self: Arc<Self>, peer: PeerInfo, method: u16, body: Bytes) -> CallResult {
        if let Some(why) = self.home.removed() {
            return Err(CallFailure::new(FailureKind::Unavailable, why));
        }
        if method >= method::SERVICE {
            return self.upper.call(&peer, method, body).await;
        }
        if method == method::STATUS {
            return Ok(encode(&self.status()));
        }
        if peer.role != Role::Peer {
            return Err(CallFailure::new(FailureKind::Forbidden, "only nodes may ask for this"));
        }
        match method {
            method::PROMISE => self.promise(decode_body(body)?).await,
            method::JOIN => {
                let join: Join = decode_body(body)?;
                let main = self.group_for(&peer, GroupId::MAIN.0)?;
                Ok(encode(&membership::admit(&self, main, &join).await))
            }
            method::VOTE => {
                let ask: VoteAsk = decode_body(body)?;
                let raft = &self.group_for(&peer, ask.group)?.raft;
                let response = raft.vote(ask.into()).await.map_err(|error| internal(&error))?;
                Ok(encode(&VoteAnswer::from(&response)))
            }
            method::PRE_VOTE => {
                let ask: VoteAsk = decode_body(body)?;
                let raft = &self.group_for(&peer, ask.group)?.raft;
                let response = raft.pre_vote(ask.into()).await.map_err(|error| internal(&error))?;
                Ok(encode(&VoteAnswer::from(&response)))
            }
            method::HEARTBEAT => self.heartbeat(&peer, decode_body(body)?).await,
            method::TRANSFER => self.transfer(&peer, decode_body(body)?).await,
            method::READ_POSITION => {
                let ask: ReadPositionAsk = decode_body(body)?;
                let asked = if Mutant::PositionOfMain.is_on() { GroupId::MAIN.0 } else { ask.group };
                let raft = &self.group_for(&peer, asked)?.raft;
                let index = if raft.is_leader() { reads::lead_round(raft).await.ok() } else { None };
                Ok(encode(&ReadPositionReply { index }))
            }
            method::STAND => {
                let ask: StandAsk = decode_body(body)?;
                Ok(encode(&self.group_for(&peer, ask.group)?.verdicts.stand(&ask).await))
            }
            _ => Err(CallFailure::new(FailureKind::UnknownMethod, format!("method {method}"))),
        }
    }

    async fn promise(&self, promise: Promise) -> CallResult {
        let kept = birth::keep(&self.home, &self.config, promise).await.map_err(|error| internal(&error))?;
        let answer = match kept {
            Ok(()) => Promised { kept: true, why: String::new() },
            Err(why) => Promised { kept: false, why },
        };
        Ok(encode(&answer))
    }

    async fn heartbeat(&self, peer: &PeerInfo, append: Append) -> CallResult {
        let group = self.group_for(peer, append.group)?;
        let request = decode_append(&group.verdicts, append).map_err(|error| malformed(&error))?;
        let leader = request.vote.leader_id.node_id;
        let response = group.raft.append_entries(request).await.map_err(|error| internal(&error))?;
        if !matches!(response, AppendEntriesResponse::HigherVote(_)) {
            group.leader_contact.heard(leader);
        }
        // A heartbeat names the entry up to which the leader believes the logs to match, so a conflict needs no id.
        Ok(encode(&Appended { applied: Some(group.store.applied().index()), ..Appended::from_unary(response) }))
    }

    async fn transfer(&self, peer: &PeerInfo, transfer: Transfer) -> CallResult {
        let last = transfer.last.map(|id| to_raft(LogId::from(id)));
        let request = TransferLeaderRequest::new(transfer.from.into(), transfer.to, last);
        let raft = &self.group_for(peer, transfer.group)?.raft;
        // A refusal means that the request is outdated. The leader sees which node leads.
        let _ = raft.handle_transfer_leader(request).await.map_err(|error| internal(&error))?;
        Ok(Bytes::new())
    }

    /// Returns the status that this node reports to others.
    pub(crate) fn status(&self) -> StatusReply {
        let identity = self.home.identity();
        let mut status = StatusReply {
            id: identity.id,
            name: identity.name.clone(),
            cluster: identity.cluster.clone(),
            epoch: identity.epoch,
            member: self.home.is_member(),
            attempt: birth::promised_attempt(&self.home),
            now: self.home.env.unix_nanos(),
            last_index: self.home.wal.last_log_id(GroupId::MAIN).map_or(0, |id| id.index),
            log_bytes: self.home.wal.disk_bytes(),
            durability: durability_number(self.config.durability),
            level: self.config.level,
            archives: self.config.archives,
            belonged: identity.has_belonged(),
            ..StatusReply::default()
        };
        if let Some(groups) = self.groups.get() {
            status.applied_index = groups.main.store.applied().index();
            let other = |(id, group): (&GroupId, &Group)| GroupReply {
                group: id.0,
                applied_index: group.store.applied().index(),
            };
            status.groups = groups.others.iter().map(other).collect();
            let metrics = groups.main.raft.metrics();
            let metrics = metrics.borrow_watched();
            status.leader = metrics.current_leader;
            status.term = metrics.current_term;
            status.committed_index = metrics.local_committed.as_ref().map_or(0, |id| id.index);
            let membership = metrics.membership_config.membership();
            let voters: Vec<u64> = membership.voter_ids().collect();
            let info = |(id, node): (&u64, &Member)| MemberInfo {
                id: *id,
                name: node.name.clone(),
                addr: node.addr.clone(),
                voter: voters.contains(id),
            };
            status.members = membership.nodes().map(info).collect();
        }
        status
    }

    async fn append_stream(&self, peer: &PeerInfo, mut sender: StreamSender, mut receiver: StreamReceiver) {
        let first = match next_append(&mut receiver).await {
            Some(first) => first,
            None => return sender.fail(CallFailure::new(FailureKind::Malformed, "entries are missing")),
        };
        let group = match self.group_for(peer, first.group) {
            Ok(group) => group.clone(),
            Err(failure) => return sender.fail(failure),
        };
        let state = (Some(first), receiver, CommitDelay::default(), group.clone());
        let requests = unfold(state, |(first, mut receiver, mut delay, group)| async move {
            let append = match first {
                Some(first) => first,
                None => next_append(&mut receiver).await?,
            };
            if append.group != group.id().0 {
                return None;
            }
            let mut request = decode_append(&group.verdicts, append).ok()?;
            delay.apply(&mut request);
            Some((request, (None, receiver, delay, group)))
        });
        let mut results = std::pin::pin!(group.raft.stream_append(requests));
        while let Some(result) = results.next().await {
            let Ok(result) = result else { break };
            if !matches!(result, Err(StreamAppendError::HigherVote(_))) {
                // Only the leader opens such a stream.
                group.leader_contact.heard(peer.node);
            }
            let appended = Appended { applied: Some(group.store.applied().index()), ..Appended::from(result) };
            if sender.send(encode(&appended)).await.is_err() {
                return;
            }
        }
        sender.finish();
    }

    async fn forward_stream(&self, peer: &PeerInfo, sender: StreamSender, mut receiver: StreamReceiver) {
        let forward = match ask_of::<Forward>(&mut receiver).await {
            Ok(forward) => forward,
            Err(failure) => return sender.fail(failure),
        };
        match self.group_for(peer, forward.group) {
            Ok(group) => forward::serve(&group.combiner, sender, forward.proposals).await,
            Err(failure) => sender.fail(failure),
        }
    }

    /// Sends an image of this node's data to a member that asks for it.
    async fn pull_stream(&self, peer: &PeerInfo, mut sender: StreamSender, mut receiver: StreamReceiver) {
        let pull = ask_of::<Pull>(&mut receiver).await;
        let group = match pull.and_then(|pull| self.group_for(peer, pull.group)) {
            Ok(group) => group,
            Err(failure) => return sender.fail(failure),
        };
        match group.images.give(&mut sender).await {
            Ok(()) => sender.finish(),
            Err(error) => sender.fail(internal(&error)),
        }
    }

    async fn image_stream(&self, peer: &PeerInfo, mut sender: StreamSender, mut receiver: StreamReceiver) {
        let head = match ask_of::<ImageHead>(&mut receiver).await {
            Ok(head) => head,
            Err(failure) => return sender.fail(failure),
        };
        let group = match self.group_for(peer, head.group) {
            Ok(group) => group,
            Err(failure) => return sender.fail(failure),
        };
        if group.verdicts.blocked().is_some() {
            // The core can't install an image before that entry is applied, so the image replaces the store's state
            // without the core. Later the leader sends another image, or the entries that the log lacks.
            match images::replace(&group.log, &group.store, &mut receiver).await {
                Ok(_) => group.verdicts.healed(),
                Err(error) => tracing::warn!(%error, "this node could not receive an image"),
            }
            let why = "this node was stopped before an entry that it could not apply; send it what it lacks now";
            return sender.fail(CallFailure::new(FailureKind::Unavailable, why));
        }
        match images::receive(&group.log, &group.store, &group.raft, &head, &mut receiver).await {
            Ok(vote) => {
                group.metrics.images_received.inc();
                // The sender may have given up. The image is installed nevertheless.
                let _ = sender.send(vote).await;
                sender.finish();
            }
            Err(error) => {
                group.metrics.images_not_received.inc();
                tracing::warn!(%error, "this node could not receive an image");
                sender.fail(CallFailure::new(FailureKind::Internal, error.to_string()));
            }
        }
    }
}

/// Receives the first item of a stream, which says what is asked for. A stream without items asks for `main`.
async fn ask_of<M: Message + Default>(receiver: &mut StreamReceiver) -> Result<M, CallFailure> {
    match timeout(ASK_MAX, receiver.recv()).await {
        Ok(Ok(Some(item))) => decode_body(item),
        Ok(Ok(None)) => Ok(M::default()),
        Ok(Err(error)) => Err(malformed(&error)),
        Err(elapsed) => Err(CallFailure::new(FailureKind::Malformed, elapsed.to_string())),
    }
}

/// Receives the next request of a stream of entries; `None` at its end.
async fn next_append(receiver: &mut StreamReceiver) -> Option<Append> {
    let item = timeout(APPEND_IDLE_MAX, receiver.recv()).await.ok()?.ok()??;
    decode(item).ok()
}

/// Decodes a leader's request. Removes the commit index from it if this node may not accept that yet.
fn decode_append(verdicts: &Verdicts, append: Append) -> Result<AppendEntriesRequest<TypeConfig>, DecodeError> {
    let rejected = append.rejected.clone();
    let mut request = AppendEntriesRequest::try_from(append)?;
    let (committed, previous) = (request.leader_commit, request.prev_log_id);
    request.leader_commit = committed.filter(|_| verdicts.may_accept_commit(committed, previous, &rejected));
    Ok(request)
}

/// Delays commits, so that a follower applies entries in fewer and larger batches than the leader. A request with new
/// entries passes a new commit index on only if [`COMMIT_PAUSE`] has passed since the last one. A request without
/// entries always passes it on, and the leader sends such a request when it has no more entries.
#[derive(Default)]
struct CommitDelay {
    /// The commit that was passed on last, and when.
    passed: Option<RaftLogId>,
    at: Option<Instant>,
}

impl CommitDelay {
    fn apply(&mut self, request: &mut AppendEntriesRequest<TypeConfig>) {
        let now = Instant::now();
        let early = self.at.is_some_and(|at| now.saturating_duration_since(at) < COMMIT_PAUSE);
        if early && !request.entries.is_empty() && request.leader_commit >= self.passed {
            request.leader_commit = self.passed;
        } else {
            (self.passed, self.at) = (request.leader_commit, Some(now));
        }
    }
}

/// The handler, in the form that the server needs.
pub(crate) struct Handler(pub(crate) Arc<PeerService>);

impl quorate_wire::Handler for Handler {
    fn login(&self, credentials: Bytes, from: &str) -> BoxFuture<'static, Result<User, String>> {
        self.0.upper.login(credentials, from)
    }

    fn call(&self, peer: &PeerInfo, method: u16, body: Bytes) -> BoxFuture<'static, CallResult> {
        Box::pin(Arc::clone(&self.0).answer(peer.clone(), method, body))
    }

    fn stream(
        &self,
        peer: &PeerInfo,
        method: u16,
        sender: StreamSender,
        receiver: StreamReceiver,
    ) -> BoxFuture<'static, ()> {
        if method >= method::SERVICE {
            return self.0.upper.stream(peer, method, sender, receiver);
        }
        let (service, peer) = (Arc::clone(&self.0), peer.clone());
        Box::pin(async move {
            match (method, peer.role, peer.purpose) {
                (method::APPEND, Role::Peer, Purpose::Data) => service.append_stream(&peer, sender, receiver).await,
                (method::FORWARD, Role::Peer, Purpose::Data) => service.forward_stream(&peer, sender, receiver).await,
                (method::PULL, Role::Peer, Purpose::Image) => service.pull_stream(&peer, sender, receiver).await,
                (method::IMAGE, Role::Peer, Purpose::Image) => service.image_stream(&peer, sender, receiver).await,
                _ => sender.fail(unknown_stream(method)),
            }
        })
    }
}

fn decode_body<M: Message + Default>(body: Bytes) -> Result<M, CallFailure> {
    decode(body).map_err(|error| malformed(&error))
}

fn malformed(error: &dyn std::fmt::Display) -> CallFailure {
    CallFailure::new(FailureKind::Malformed, error.to_string())
}

fn internal(error: &dyn std::fmt::Display) -> CallFailure {
    CallFailure::new(FailureKind::Internal, error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use openraft::EntryPayload;

    use super::*;
    use crate::raft::types::{RaftEntry, RaftLeaderId, RaftVote};

    fn id(index: u64) -> RaftLogId {
        RaftLogId::new(RaftLeaderId { term: 1, node_id: 1 }, index)
    }

    /// Passes a request with a commit at `index` through, and returns the commit index that is left in it.
    fn passed(delay: &mut CommitDelay, index: u64, has_entries: bool) -> u64 {
        let entry = RaftEntry { log_id: id(index + 1), payload: EntryPayload::Blank };
        let mut request = AppendEntriesRequest {
            vote: RaftVote { leader_id: RaftLeaderId { term: 1, node_id: 1 }, committed: true },
            prev_log_id: Some(id(index)),
            entries: if has_entries { vec![entry] } else { vec![] },
            leader_commit: Some(id(index)),
        };
        delay.apply(&mut request);
        request.leader_commit.unwrap().index
    }

    #[test]
    fn commits_are_delayed_only_with_entries() {
        // Later than any moment of this test.
        let later = Instant::now() + Duration::from_secs(3_600);
        let mut delay = CommitDelay::default();
        assert_eq!(passed(&mut delay, 1, true), 1, "the first of a stream");
        delay.at = Some(later);
        assert_eq!(passed(&mut delay, 2, true), 1);
        assert_eq!(passed(&mut delay, 3, false), 3);
        delay.at = Some(later);
        assert_eq!(passed(&mut delay, 4, true), 3);
        assert_eq!(passed(&mut delay, 2, true), 2, "another leader may know less");
        delay.at = delay.at.map(|at| at - COMMIT_PAUSE);
        assert_eq!(passed(&mut delay, 5, true), 5);
    }
}
