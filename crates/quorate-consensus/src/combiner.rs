//! The write combiner: collects proposals while one batch is in flight, and passes them to the core as the next batch.
//!
//! Callers run on other threads and runtimes. If each of them woke the core, each batch would hold one proposal. So one
//! task on the core's thread takes all queued proposals, stamps them and proposes them together. The thread that
//! produces an outcome sends it to the caller. The next batch starts when the last caller has received its response, or
//! has proposed again ([`returns`]): callers often do so at once, so all of them are in the next batch, and not in two
//! groups that wait for each other.
//!
//! A node that does not lead forwards its batches to the leader ([`forward`]). A request for a [`Hold`] waits in the
//! same queue. While a hold lasts, no batch is proposed.
//!
//! Invariants:
//! - The queue holds at most [`WAITING_MAX`] proposals and [`WAITING_BYTES_MAX`] bytes. Beyond that a proposal fails
//!   with [`ProposeError::Overloaded`] at once.
//! - If the caller goes away before its proposal is proposed, the proposal is dropped.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::{Either, select};
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use quorate_env::{Env, Instant, lock, sleep, timeout};
use quorate_model::codec::entry::{PROPOSAL_HEADER, encode_proposal};
use quorate_model::{GroupId, Outcome};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::coop::unconstrained;

pub(crate) mod forward;
mod hold;
pub(crate) mod returns;

use forward::{FORWARDED_BATCHES_MAX, leader_elsewhere, led_by_another};
use hold::HoldRequest;
pub use hold::{HOLD_MAX, Hold};
use returns::{Patience, Returns};

use crate::error::ProposeError;
use crate::metrics::GroupMetrics;
use crate::pace::Pacer;
use crate::peers::Peers;
use crate::raft::Raft;
use crate::raft::types::{Proposed, ResponseCallback, TypeConfig};
use crate::stages::Stages;
use crate::stamp::Stamper;

/// The maximum number of proposals that may be queued.
pub(crate) const WAITING_MAX: usize = 65_536;

/// The maximum number of bytes of proposals that have no response yet.
pub(crate) const WAITING_BYTES_MAX: usize = 128 << 20;

/// The maximum number of proposals in one batch.
const BATCH_MAX: usize = 4_096;

/// The maximum number of bytes in one batch. A single larger proposal forms a batch of its own.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// How long the next batch waits for responses that another node has to give. It is also the time for which callers
/// still wait for a batch that this node proposed as the leader, once another node leads.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(100);

/// How long the next batch waits for the callers of the previous one to receive their responses.
const DELIVERY_MAX: Duration = Duration::from_millis(1);

/// The index and the outcome of a proposal.
pub(crate) type ProposeResult = Result<(u64, Outcome), ProposeError>;

/// Each undelivered response of a batch holds a clone; dropping the last one releases the next batch.
type BatchGuard = Arc<oneshot::Sender<Infallible>>;

/// A response on its way to its caller. The caller drops the guard when it receives the response.
struct Response {
    result: ProposeResult,
    _guard: BatchGuard,
}

/// The channel to a caller that waits for its response.
type Caller = (oneshot::Sender<Response>, BatchGuard);

/// Receives the response to a proposal.
struct ResponseReceiver(oneshot::Receiver<Response>);

impl ResponseReceiver {
    async fn result(self, else_unknown: &str) -> ProposeResult {
        let response = self.0.await.map_err(|_| unknown(&else_unknown))?;
        response.result
    }
}

/// Why an outcome is unknown if the node stopped before it had the outcome.
const WENT_DOWN: &str = "the node went down";

/// An item of the queue.
enum Request {
    Propose(QueuedProposal),
    Hold(HoldRequest),
}

/// The node that may propose a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// Only this node.
    Local,
    /// The leader, whichever node that is.
    Leader,
}

/// A proposal in the queue.
struct QueuedProposal {
    bytes: Bytes,
    destination: Destination,
    arrived: Instant,
    responder: oneshot::Sender<Response>,
    room: OwnedSemaphorePermit,
}

/// The callers' end of the queue. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Combiner {
    queue: mpsc::Sender<Request>,
    returns: Arc<Returns>,
    room: Arc<Semaphore>,
    metrics: Arc<GroupMetrics>,
}

/// The other end of the queue, which runs on the core's thread.
pub(crate) struct Gatherer {
    group: GroupId,
    queue: mpsc::Receiver<Request>,
    returns: Arc<Returns>,
    patience: Patience,
    pacer: Pacer,
    env: Env,
    raft: Raft,
    peers: Arc<Peers>,
    stages: Arc<Stages>,
    stamper: Stamper,
    metrics: Arc<GroupMetrics>,
    /// One permit for each forwarded batch that the leader has not answered.
    forward_permits: Arc<Semaphore>,
}

/// Creates an empty queue.
pub(crate) fn combiner(
    env: &Env,
    group: GroupId,
    raft: &Raft,
    peers: &Arc<Peers>,
    stages: &Arc<Stages>,
    metrics: &Arc<GroupMetrics>,
    pacer: Pacer,
) -> (Combiner, Gatherer) {
    let (sender, queue) = mpsc::channel(WAITING_MAX);
    let room = Arc::new(Semaphore::new(WAITING_BYTES_MAX));
    let (returns, patience) = (Arc::<Returns>::default(), Patience::default());
    let combiner = Combiner { queue: sender, returns: Arc::clone(&returns), room, metrics: Arc::clone(metrics) };
    let (peers, stages, metrics) = (Arc::clone(peers), Arc::clone(stages), Arc::clone(metrics));
    let (env, raft, stamper) = (env.clone(), raft.clone(), Stamper::new(env.clone()));
    let forward_permits = Arc::new(Semaphore::new(FORWARDED_BATCHES_MAX));
    let gatherer = Gatherer {
        group,
        queue,
        returns,
        patience,
        pacer,
        env,
        raft,
        peers,
        stages,
        stamper,
        metrics,
        forward_permits,
    };
    (combiner, gatherer)
}

impl Combiner {
    /// Has the leader propose an encoded proposal, and waits for its outcome.
    pub(crate) async fn propose(&self, bytes: Bytes) -> ProposeResult {
        self.enqueue(bytes, Destination::Leader)?.result(WENT_DOWN).await
    }

    /// Returns the bytes of proposals that have no response yet.
    #[cfg(test)]
    pub(crate) fn waiting_bytes(&self) -> usize {
        WAITING_BYTES_MAX.saturating_sub(self.room.available_permits())
    }

    fn enqueue(&self, bytes: Bytes, destination: Destination) -> Result<ResponseReceiver, ProposeError> {
        let enqueued = self.prepare(bytes, destination).and_then(|(queued, response)| {
            self.send(Request::Propose(queued))?;
            Ok(response)
        });
        enqueued.inspect_err(|error| self.metrics.writes.count_error(error))
    }

    /// Reserves room for a proposal. Returns the item for the queue, and the receiver of its response.
    fn prepare(
        &self,
        bytes: Bytes,
        destination: Destination,
    ) -> Result<(QueuedProposal, ResponseReceiver), ProposeError> {
        let size = u32::try_from(bytes.len()).map_err(|_| ProposeError::Overloaded)?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(size).map_err(|_| ProposeError::Overloaded)?;
        let (sender, receiver) = oneshot::channel();
        Ok((
            QueuedProposal { bytes, destination, arrived: Instant::now(), responder: sender, room },
            ResponseReceiver(receiver),
        ))
    }

    fn send(&self, request: Request) -> Result<(), ProposeError> {
        // Counted before, since the gatherer may take it at once.
        self.returns.queued();
        self.queue.try_send(request).map_err(|error| {
            self.returns.taken();
            match error {
                mpsc::error::TrySendError::Full(_) => ProposeError::Overloaded,
                mpsc::error::TrySendError::Closed(_) => ProposeError::Stopped("it is shutting down".to_owned()),
            }
        })
    }
}

impl Gatherer {
    /// Proposes batch after batch until all senders of the queue are dropped.
    pub(crate) async fn run(mut self) {
        let mut taken = Vec::new();
        while let Some(first) = self.queue.recv().await {
            let hold = self.gather(first, &mut taken);
            self.run_batch(&mut taken).await;
            if let Some(request) = hold {
                taken.extend(self.hold(request).await);
                self.run_batch(&mut taken).await;
            }
            self.pacer.keep(&self.raft).await;
            self.returns.all_back(&mut self.patience).await;
        }
    }

    /// Proposes a batch, here or through the leader, and waits until the callers have received their responses.
    async fn run_batch(&mut self, taken: &mut Vec<QueuedProposal>) {
        taken.retain(|queued| !queued.responder.is_closed());
        let (guard, all_delivered) = oneshot::channel();
        let guard = Arc::new(guard);
        if let Some(leader) = leader_elsewhere(&self.raft) {
            self.forward(leader, taken, &guard).await;
        }
        if !taken.is_empty() {
            self.propose_measured(taken, &guard).await;
        }
        drop(guard);
        // An error and a timeout both only mean that the next batch may start.
        let _ = timeout(DELIVERY_MAX, all_delivered).await;
    }

    /// Proposes a batch on this node, and measures it.
    async fn propose_measured(&mut self, taken: &mut Vec<QueuedProposal>, guard: &BatchGuard) {
        let arrived: Vec<Instant> = taken.iter().map(|queued| queued.arrived).collect();
        let proposed = self.stages.begin();
        // Without this, tokio would let the core run after about 128 proposals, and split the batch.
        let outcomes = unconstrained(self.propose(taken, guard)).await;
        self.stages.end(proposed, if outcomes == arrived.len() { &arrived } else { &[] });
    }

    /// Takes queued proposals for one batch. Stops at a request for a hold, and returns that request.
    fn gather(&mut self, first: Request, taken: &mut Vec<QueuedProposal>) -> Option<HoldRequest> {
        let (mut next, mut bytes) = (Some(first), 0_usize);
        while let Some(request) = next {
            self.returns.taken();
            match request {
                Request::Hold(request) => return Some(request),
                Request::Propose(queued) => {
                    bytes = bytes.saturating_add(queued.bytes.len());
                    taken.push(queued);
                }
            }
            let has_room = bytes < BATCH_BYTES_MAX && taken.len() < BATCH_MAX;
            next = if has_room { self.queue.try_recv().ok() } else { None };
        }
        None
    }

    /// Proposes a batch, waits until all of its callers have responses, and returns the number of outcomes. If another
    /// node becomes the leader, it does not wait any longer, because this node may be unable to apply the batch: the
    /// callers get [`ProposeError::Unknown`] and can ask the new leader.
    async fn propose(&mut self, taken: &mut Vec<QueuedProposal>, guard: &BatchGuard) -> usize {
        let mut offsets = self.peers.voter_clock_offsets(&self.raft);
        let size = |queued: &QueuedProposal| queued.bytes.len().saturating_add(PROPOSAL_HEADER);
        let mut buffer = BytesMut::with_capacity(taken.iter().map(size).sum());
        let (sender, mut ended) = oneshot::channel();
        let caller =
            |queued: QueuedProposal| (Some((queued.responder, Arc::clone(guard))), (queued.bytes, queued.room));
        let (callers, proposals): (Vec<_>, Vec<_>) = taken.drain(..).map(caller).unzip();
        let batch = Arc::new(Batch {
            peers: Arc::clone(&self.peers),
            metrics: Arc::clone(&self.metrics),
            returns: Arc::clone(&self.returns),
            outcomes: AtomicUsize::new(0),
            callers: Mutex::new(callers),
            ended: Some(sender),
        });
        for (place, (bytes, room)) in proposals.into_iter().enumerate() {
            let stamped = encode_proposal(&mut buffer, self.stamper.stamp(&mut offsets), &bytes);
            let pending = Pending { place, batch: Arc::clone(&batch), _room: room };
            let responder = ResponseCallback::new(move |result| pending.answer(result));
            // If this fails, the core has stopped and has dropped the responder. Its drop has answered the caller.
            let _ = self.raft.client_write_ff(Proposed(stamped), Some(responder)).await;
        }
        let left = Arc::downgrade(&batch);
        drop(batch);
        if let Ok(outcomes) = timeout(BATCH_WAIT_MAX, &mut ended).await {
            return outcomes.unwrap_or(0);
        }
        match select(ended, pin!(led_by_another(&self.raft, *self.raft.node_id()))).await {
            Either::Left((outcomes, _)) => outcomes.unwrap_or(0),
            Either::Right(_) => {
                drop(self.env.spawn(async move {
                    sleep(BATCH_WAIT_MAX).await;
                    left.upgrade().iter().for_each(|batch| batch.give_up());
                }));
                0
            }
        }
    }
}

/// The state that the proposals of one batch share. Dropping it signals the end of the batch.
struct Batch {
    peers: Arc<Peers>,
    metrics: Arc<GroupMetrics>,
    returns: Arc<Returns>,
    outcomes: AtomicUsize,
    /// The callers by the place of their proposals in the batch. `None` for a caller that has its response.
    callers: Mutex<Vec<Option<Caller>>>,
    ended: Option<oneshot::Sender<usize>>,
}

impl Batch {
    /// Answers one caller, unless it has its response already.
    fn respond(&self, place: usize, result: impl FnOnce() -> ProposeResult) {
        let caller = lock(&self.callers).get_mut(place).and_then(Option::take);
        if let Some((caller, guard)) = caller {
            let result = result();
            self.metrics.writes.count(&result);
            // The caller may have gone away.
            let _ = caller.send(Response { result, _guard: guard });
        }
    }

    /// Answers the callers that have no response yet.
    fn give_up(&self) {
        let callers = lock(&self.callers).len();
        for place in 0..callers {
            self.respond(place, || Err(unknown(&"another node leads now, and this node has not applied the entry")));
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(ended) = self.ended.take() {
            // The receiver is gone if the node is stopping.
            let _ = ended.send(*self.outcomes.get_mut());
        }
    }
}

/// A proposal in flight. Its caller gets a response in any case, from the thread that produces the outcome or that
/// drops this value.
struct Pending {
    place: usize,
    batch: Arc<Batch>,
    _room: OwnedSemaphorePermit,
}

impl Pending {
    fn answer(self, result: ClientWriteResult<TypeConfig>) {
        let result = match result {
            Ok(written) => {
                if self.batch.outcomes.fetch_add(1, Ordering::Relaxed) == 0 {
                    self.batch.returns.answering(lock(&self.batch.callers).len());
                }
                Ok((written.log_id.index, written.data.0))
            }
            Err(error) => Err(refused(&self.batch.peers, error)),
        };
        self.batch.respond(self.place, || result);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.batch.respond(self.place, || Err(unknown(&WENT_DOWN)));
    }
}

fn unknown(why: &dyn std::fmt::Display) -> ProposeError {
    ProposeError::Unknown(why.to_string())
}

fn refused(peers: &Peers, error: ClientWriteError<TypeConfig>) -> ProposeError {
    match error {
        ClientWriteError::ForwardToLeader(to) => {
            ProposeError::NotLeader { leader: to.leader_id.and_then(|id| peers.leader_member(id, to.leader_node)) }
        }
        ClientWriteError::LogEntryDiscarded(discarded) => unknown(&discarded),
        other => unknown(&other),
    }
}
