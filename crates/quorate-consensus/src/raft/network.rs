//! openraft's network over `quorate-wire`: heartbeats, entries and images on separate connections.
//!
//! Invariants:
//! - Every wait has a deadline of our own. openraft has none for streams of entries and images, so a lost answer would
//!   block a follower for ever.
//! - At most [`IN_FLIGHT_MAX`] requests with entries are in flight to a follower: a deeper pipeline makes smaller
//!   batches.
//! - A follower that no majority needs gets entries with pauses ([`super::thrift`]).
//! - A node that can't be reached gives an error, never a granted vote.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, Stream, StreamExt, unfold};
use openraft::OptionalSend;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use prost::Message;
use quorate_env::{Instant, sleep_until, timeout};
use quorate_model::GroupId;
use quorate_wire::{Purpose, StreamReceiver, StreamSender};

use super::machine::{Image, Snapshot};
use super::thrift::{PAUSE, Thrift};
use super::types::{Member, RaftLogId, RaftVote, TypeConfig};
use crate::images::ImageSender;
use crate::link::Link;
use crate::pace::Pace;
use crate::peer::messages::{
    Append, Appended, StreamResult, Transfer, VoteAnswer, VoteAsk, decode, encode, id_bytes, method,
};
use crate::peers::Peers;
use crate::verdict::Verdicts;

/// The maximum number of requests with entries in flight to one follower.
const IN_FLIGHT_MAX: usize = 2;

/// After a request of at least this many bytes there is no pause, because the follower has much to receive.
const PAUSE_BYTES_MAX: usize = 256 << 10;

/// How long a request that only reports a commit waits for entries to send with it. Alone it costs two messages, and
/// wakes two nodes.
const COMMIT_ONLY_DELAY: Duration = Duration::from_millis(2);

/// If a follower acknowledges nothing for this long while requests are in flight, the stream is opened again.
const APPEND_SILENCE_MAX: Duration = Duration::from_secs(5);

/// Makes the connections of one group to members.
pub(crate) struct Network(Arc<Sender>);

/// What all connections of a group share.
pub(crate) struct Sender {
    pub(crate) group: GroupId,
    pub(crate) peers: Arc<Peers>,
    pub(crate) images: Arc<ImageSender>,
    pub(crate) thrift: Arc<Thrift>,
    pub(crate) pace: Arc<Pace>,
    pub(crate) verdicts: Arc<Verdicts>,
}

impl Sender {
    /// Returns a request as it may be sent to a member now.
    fn append(&self, target: u64, request: &AppendEntriesRequest<TypeConfig>) -> Append {
        let (committed, rejected) = self.verdicts.announce(target, request.leader_commit);
        Append::new(self.group, request, committed, rejected)
    }
}

impl Network {
    pub(crate) fn new(sender: Sender) -> Self {
        Self(Arc::new(sender))
    }

    fn channel(&self, id: u64, member: &Member, purpose: Purpose) -> Channel {
        Channel { sender: Arc::clone(&self.0), addr: member.addr.clone(), target: id, purpose }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Channel;

    async fn new_client(&mut self, target: u64, node: &Member) -> Channel {
        self.channel(target, node, Purpose::Data)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Member) -> Channel {
        self.channel(target, node, Purpose::Heartbeat)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &Member) -> Channel {
        self.channel(target, node, Purpose::Image)
    }
}

/// The connection to one member for one purpose.
pub(crate) struct Channel {
    sender: Arc<Sender>,
    /// The member's address when this value was created.
    addr: String,
    target: u64,
    purpose: Purpose,
}

type RpcError = RPCError<TypeConfig>;

impl Channel {
    /// Returns the connection to the member's present address.
    fn link(&self) -> Link {
        let peers = &self.sender.peers;
        let addr = peers.addr_of(self.target);
        peers.link(addr.as_ref().unwrap_or(&self.addr), self.target, self.purpose)
    }

    async fn call<A: Message + Default>(
        &self,
        method: u16,
        ask: &impl Message,
        limit: Duration,
    ) -> Result<A, RpcError> {
        let body = self.link().call(method, encode(ask), limit).await.map_err(|error| unreachable(&error))?;
        decode(body).map_err(|error| network(&error))
    }
}

impl RaftNetworkV2<TypeConfig> for Channel {
    type SnapshotData = Image;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        let append = || encode(&self.sender.append(self.target, &rpc));
        let called = self.link().call_with(method::HEARTBEAT, append, option.hard_ttl()).await;
        let body = called.map_err(|error| unreachable(&error))?;
        let appended: Appended = decode(body).map_err(|error| network(&error))?;
        self.sender.pace.heard(self.target, appended.applied);
        Ok(match StreamResult::from(appended) {
            Ok(_) => AppendEntriesResponse::Success,
            Err(StreamAppendError::Conflict(_)) => AppendEntriesResponse::Conflict,
            Err(StreamAppendError::HigherVote(vote)) => AppendEntriesResponse::HigherVote(vote),
        })
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<StreamResult, RpcError>>, RpcError>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        if self.purpose == Purpose::Heartbeat {
            // A heartbeat is a stream of one request: a plain call is cheaper.
            return stream_append_sequential(self, input, option);
        }
        Box::pin(async move {
            // openraft pauses between attempts inside of this input stream. Without polling it first, a refused
            // connection would be tried again without end and without yielding.
            let mut input = input.peekable();
            let _ = Pin::new(&mut input).peek().await;
            let client = self.link().0.client().await.map_err(|error| unreachable(&error))?;
            let (sender, receiver) = client.open_stream(method::APPEND).map_err(|error| unreachable(&error))?;
            let state = Appending {
                target: self.target,
                group: Arc::clone(&self.sender),
                input,
                sender,
                receiver,
                in_flight: 0,
                more: true,
                sent: None,
                pause: None,
                commit_only: None,
            };
            Ok(unfold(Some(state), |state| async move { state?.next().await }).boxed())
        })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let answer: VoteAnswer =
            self.call(method::VOTE, &VoteAsk::new(self.sender.group, &rpc), option.hard_ttl()).await?;
        Ok(answer.into())
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let answer: VoteAnswer =
            self.call(method::PRE_VOTE, &VoteAsk::new(self.sender.group, &rpc), option.hard_ttl()).await?;
        Ok(answer.into())
    }

    async fn full_snapshot(
        &mut self,
        vote: RaftVote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let link = self.link();
        let sending = self.sender.images.send(&link, self.target, &vote, &snapshot.meta);
        let higher = tokio::select! {
            biased;
            closed = cancel => return Err(StreamingError::Closed(closed)),
            sent = sending => sent.map_err(|error| StreamingError::Network(NetworkError::new(&error)))?,
        };
        Ok(SnapshotResponse::new(higher))
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let transfer = Transfer {
            from: req.from_leader().into(),
            to: *req.to_node_id(),
            last: id_bytes(req.last_log_id()),
            group: self.sender.group.0,
        };
        self.link()
            .call(method::TRANSFER, encode(&transfer), option.hard_ttl())
            .await
            .map_err(|error| unreachable(&error))?;
        Ok(Ok(()))
    }
}

/// A stream of entries to one follower. The returned stream polls the input itself, because a separate task would
/// outlive it.
struct Appending<S> {
    target: u64,
    group: Arc<Sender>,
    input: S,
    sender: StreamSender,
    receiver: StreamReceiver,
    in_flight: usize,
    more: bool,
    /// The last entry that was sent.
    sent: Option<RaftLogId>,
    /// Until when the follower gets nothing more, unless a majority needs it.
    pause: Option<Instant>,
    /// A request that only reports a commit, and until when it waits.
    commit_only: Option<(AppendEntriesRequest<TypeConfig>, Instant)>,
}

impl<S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Unpin> Appending<S> {
    async fn next(mut self) -> Option<(Result<StreamResult, RpcError>, Option<Self>)> {
        loop {
            if self.in_flight == 0 && !self.more {
                return None;
            }
            let pause = self.pause.filter(|until| *until > Instant::now() && self.group.thrift.may_wait(self.target));
            let may_send = self.more && self.in_flight < IN_FLIGHT_MAX && pause.is_none();
            let commit_due = self.commit_only.as_ref().map(|(_, due)| *due);
            tokio::select! {
                biased;
                answer = timeout(APPEND_SILENCE_MAX, self.receiver.recv()), if self.in_flight > 0 => {
                    return Some(self.answered(answer));
                }
                request = self.input.next(), if may_send => match request {
                    None => self.more = false,
                    Some(request) if self.is_commit_only(&request) => {
                        let due = commit_due.unwrap_or_else(|| Instant::now() + COMMIT_ONLY_DELAY);
                        self.commit_only = Some((request, due));
                    }
                    Some(request) => {
                        if let Err(error) = self.send(&request).await {
                            return Some((Err(error), None));
                        }
                    }
                },
                () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {}
                () = sleep_until(commit_due.unwrap_or_else(Instant::now)), if may_send && commit_due.is_some() => {
                    if let Some((request, _)) = self.commit_only.take()
                        && let Err(error) = self.send(&request).await
                    {
                        return Some((Err(error), None));
                    }
                }
            }
        }
    }

    /// Whether a request only reports the commit of entries that this stream has sent. A request without entries may
    /// also ask where the follower's log ends, and must not wait then.
    fn is_commit_only(&self, request: &AppendEntriesRequest<TypeConfig>) -> bool {
        request.entries.is_empty() && self.sent.is_some() && self.sent == request.prev_log_id
    }

    /// Sends a request, which also reports the commit of a waiting one.
    async fn send(&mut self, request: &AppendEntriesRequest<TypeConfig>) -> Result<(), RpcError> {
        self.commit_only = None;
        let body = encode(&self.group.append(self.target, request));
        let is_small = body.len() < PAUSE_BYTES_MAX;
        self.sender.send(body).await.map_err(|error| unreachable(&error))?;
        self.sent = request.entries.last().map(|entry| entry.log_id).or(self.sent);
        if !request.entries.is_empty() {
            self.pause = is_small.then(|| Instant::now() + PAUSE);
        }
        self.in_flight = self.in_flight.saturating_add(1);
        Ok(())
    }

    fn answered(
        mut self,
        answer: Result<Result<Option<Bytes>, quorate_wire::StreamError>, quorate_env::Elapsed>,
    ) -> (Result<StreamResult, RpcError>, Option<Self>) {
        let body = match answer {
            Err(elapsed) => return (Err(unreachable(&elapsed)), None),
            Ok(Err(error)) => return (Err(unreachable(&error)), None),
            Ok(Ok(None)) => return (Err(unreachable(&io::Error::from(io::ErrorKind::UnexpectedEof))), None),
            Ok(Ok(Some(body))) => body,
        };
        match decode::<Appended>(body) {
            Err(error) => (Err(network(&error)), None),
            Ok(appended) => {
                self.group.pace.heard(self.target, appended.applied);
                let result = StreamResult::from(appended);
                self.in_flight = self.in_flight.saturating_sub(1);
                if let Ok(Some(matching)) = &result {
                    self.group.thrift.acknowledged(self.target, matching.index);
                }
                let go_on = result.is_ok();
                (Ok(result), go_on.then_some(self))
            }
        }
    }
}

fn unreachable(error: &(impl std::error::Error + 'static)) -> RpcError {
    RPCError::Unreachable(Unreachable::new(error))
}

fn network(error: &(impl std::error::Error + 'static)) -> RpcError {
    RPCError::Network(NetworkError::new(error))
}
