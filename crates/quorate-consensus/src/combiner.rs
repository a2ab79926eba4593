//! The write combiner: gathers proposals while one batch is in flight, and hands them to the core as the next batch.
//!
//! Callers live on other threads and runtimes. Each one waking the core alone would make batches of one; so one task on
//! the core's thread takes all that is there, stamps it and proposes it at once. Answers come from the thread that has
//! them, and the next batch follows when the last caller has its own: callers often ask again at once, and so they are
//! all in the next batch, in place of two groups that wait for each other.
//!
//! On a node that does not lead, batches are handed on to the leader ([`forward`]). Who asks for a [`Hold`] waits in
//! the same queue; while it lasts no batch is proposed.
//!
//! Invariants:
//! - What waits is bounded by [`WAITING_MAX`] proposals and [`WAITING_BYTES_MAX`] bytes; beyond that callers are told
//!   [`ProposeError::Overloaded`] at once.
//! - A proposal whose caller went away before it was proposed is not proposed.

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
use quorate_model::Outcome;
use quorate_model::codec::entry::{PROPOSAL_HEADER, encode_proposal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::coop::unconstrained;

pub(crate) mod forward;
mod hold;

use forward::{FORWARDED_BATCHES_MAX, leader_elsewhere, led_by_another};
use hold::HoldRequest;
pub use hold::{HOLD_MAX, Hold};

use crate::error::ProposeError;
use crate::metrics::ConsensusMetrics;
use crate::peers::Peers;
use crate::raft::Raft;
use crate::raft::types::{Proposed, ResponseCallback, TypeConfig};
use crate::stages::Stages;
use crate::stamp::Stamper;

/// Proposals that may wait.
pub(crate) const WAITING_MAX: usize = 65_536;

/// Bytes of proposals that may wait.
pub(crate) const WAITING_BYTES_MAX: usize = 128 << 20;

/// Proposals of one batch.
const BATCH_MAX: usize = 4_096;

/// Bytes of one batch, but for a single larger proposal.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// After this time the next batch does not wait for answers that another node has to give. Nobody waits longer for
/// those of a batch that this node proposed when it led, where another leads by now.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(100);

/// How long the next batch waits for the callers of the one before to take their answers.
const DELIVERY_MAX: Duration = Duration::from_millis(1);

/// The index and the outcome of what was proposed.
pub(crate) type ProposeResult = Result<(u64, Outcome), ProposeError>;

/// Held by the answers of a batch that are not taken yet: the last to go tells the gatherer.
type BatchGuard = Arc<oneshot::Sender<Infallible>>;

/// An answer on its way to its caller, who drops the guard on taking it.
struct Response {
    result: ProposeResult,
    _guard: BatchGuard,
}

/// Who waits for an answer.
type Caller = (oneshot::Sender<Response>, BatchGuard);

/// Where the answer to a proposal will come.
struct ResponseReceiver(oneshot::Receiver<Response>);

impl ResponseReceiver {
    async fn result(self, else_unknown: &str) -> ProposeResult {
        let response = self.0.await.map_err(|_| unknown(&else_unknown))?;
        response.result
    }
}

/// Why an outcome is unknown when nobody is there to give it.
const WENT_DOWN: &str = "the node went down";

/// What waits in the queue.
enum Request {
    Propose(QueuedProposal),
    Hold(HoldRequest),
}

/// Where a proposal may be proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// Here or not at all.
    Local,
    /// Wherever the leader is.
    Leader,
}

/// A proposal that waits.
struct QueuedProposal {
    bytes: Bytes,
    destination: Destination,
    arrived: Instant,
    responder: oneshot::Sender<Response>,
    room: OwnedSemaphorePermit,
}

/// Where callers leave their proposals. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Combiner {
    queue: mpsc::Sender<Request>,
    room: Arc<Semaphore>,
    metrics: Arc<ConsensusMetrics>,
}

/// The other end: what the core's thread runs.
pub(crate) struct Gatherer {
    queue: mpsc::Receiver<Request>,
    env: Env,
    raft: Raft,
    peers: Arc<Peers>,
    stages: Arc<Stages>,
    stamper: Stamper,
    metrics: Arc<ConsensusMetrics>,
    /// One permit for each batch that the leader has not answered.
    forward_permits: Arc<Semaphore>,
}

/// A new queue, empty.
pub(crate) fn combiner(
    env: &Env,
    raft: &Raft,
    peers: &Arc<Peers>,
    stages: &Arc<Stages>,
    metrics: &Arc<ConsensusMetrics>,
) -> (Combiner, Gatherer) {
    let (sender, queue) = mpsc::channel(WAITING_MAX);
    let room = Arc::new(Semaphore::new(WAITING_BYTES_MAX));
    let combiner = Combiner { queue: sender, room, metrics: Arc::clone(metrics) };
    let (peers, stages, metrics) = (Arc::clone(peers), Arc::clone(stages), Arc::clone(metrics));
    let (env, raft, stamper) = (env.clone(), raft.clone(), Stamper::new(env.clone()));
    let forward_permits = Arc::new(Semaphore::new(FORWARDED_BATCHES_MAX));
    (combiner, Gatherer { queue, env, raft, peers, stages, stamper, metrics, forward_permits })
}

impl Combiner {
    /// Has an encoded proposal proposed, wherever the leader is, and waits for its outcome.
    pub(crate) async fn propose(&self, bytes: Bytes) -> ProposeResult {
        self.enqueue(bytes, Destination::Leader)?.result(WENT_DOWN).await
    }

    /// Bytes of proposals that have no answer yet.
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

    /// A proposal in waiting, if there is room for it, and where its outcome will come.
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
        self.queue.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ProposeError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => ProposeError::Stopped("it is going down".to_owned()),
        })
    }
}

impl Gatherer {
    /// Proposes batch after batch until the queue's senders are gone.
    pub(crate) async fn run(mut self) {
        let mut taken = Vec::new();
        while let Some(first) = self.queue.recv().await {
            let hold = self.gather(first, &mut taken);
            self.run_batch(&mut taken).await;
            if let Some(request) = hold {
                taken.extend(self.hold(request).await);
                self.run_batch(&mut taken).await;
            }
        }
    }

    /// Proposes what was taken, here or at the leader, and waits until the answers are taken.
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
        // Both are fine: it only says when.
        let _ = timeout(DELIVERY_MAX, all_delivered).await;
    }

    /// Proposes a batch here, and measures it.
    async fn propose_measured(&mut self, taken: &mut Vec<QueuedProposal>, guard: &BatchGuard) {
        let arrived: Vec<Instant> = taken.iter().map(|queued| queued.arrived).collect();
        let proposed = self.stages.begin();
        // In one piece: tokio would let the core run after some 128 of them.
        let outcomes = unconstrained(self.propose(taken, guard)).await;
        self.stages.end(proposed, if outcomes == arrived.len() { &arrived } else { &[] });
    }

    /// Takes the proposals of a batch: those that wait, up to a hold, which is returned.
    fn gather(&mut self, first: Request, taken: &mut Vec<QueuedProposal>) -> Option<HoldRequest> {
        let (mut next, mut bytes) = (Some(first), 0_usize);
        while let Some(request) = next {
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

    /// Proposes a batch, waits until all of it is answered, and returns how many outcomes there were. If another node
    /// leads meanwhile it does not wait: this one may be unable to apply what it has proposed. It then tells the
    /// callers that their outcomes are unknown here, so that they ask the new leader.
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
            outcomes: AtomicUsize::new(0),
            callers: Mutex::new(callers),
            ended: Some(sender),
        });
        for (place, (bytes, room)) in proposals.into_iter().enumerate() {
            let stamped = encode_proposal(&mut buffer, self.stamper.stamp(&mut offsets), &bytes);
            let pending = Pending { place, batch: Arc::clone(&batch), _room: room };
            let responder = ResponseCallback::new(move |result| pending.answer(result));
            // The core has stopped where this fails; then the responder was dropped, and has answered.
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

/// What the answers of one batch share. Its end is told when the last of them was given.
struct Batch {
    peers: Arc<Peers>,
    metrics: Arc<ConsensusMetrics>,
    outcomes: AtomicUsize,
    /// Those that have no answer yet, each at its place.
    callers: Mutex<Vec<Option<Caller>>>,
    ended: Option<oneshot::Sender<usize>>,
}

impl Batch {
    /// Answers one caller, unless it has an answer.
    fn respond(&self, place: usize, result: impl FnOnce() -> ProposeResult) {
        let caller = lock(&self.callers).get_mut(place).and_then(Option::take);
        if let Some((caller, guard)) = caller {
            let result = result();
            self.metrics.writes.count(&result);
            // The caller may have gone away; then nobody wants the outcome.
            let _ = caller.send(Response { result, _guard: guard });
        }
    }

    /// Answers the callers that are left.
    fn give_up(&self) {
        let callers = lock(&self.callers).len();
        for place in 0..callers {
            self.respond(place, || Err(unknown(&"another node leads by now, and this one has not applied it")));
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(ended) = self.ended.take() {
            // Nobody waits for it when the node goes down.
            let _ = ended.send(*self.outcomes.get_mut());
        }
    }
}

/// A proposal in flight. Its caller gets an answer whatever becomes of it, on the thread that has the answer.
struct Pending {
    place: usize,
    batch: Arc<Batch>,
    _room: OwnedSemaphorePermit,
}

impl Pending {
    fn answer(self, result: ClientWriteResult<TypeConfig>) {
        let result = match result {
            Ok(written) => {
                self.batch.outcomes.fetch_add(1, Ordering::Relaxed);
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
