//! The write combiner: gathers proposals while one batch is in flight, and hands them to the core as the next batch.
//!
//! Callers live on other threads and runtimes. Each one waking the core alone would make batches of one; so one task
//! on the core's thread takes all that is there, stamps it, proposes it at once and answers it at once.
//!
//! Invariants:
//! - What waits is bounded by [`WAITING_MAX`] proposals and [`WAITING_BYTES_MAX`] bytes; beyond that callers are told
//!   [`ProposeError::Overloaded`] at once.
//! - A proposal whose caller went away before it was proposed is not proposed.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use openraft::errors::ClientWriteError;
use quorate_env::Instant;
use quorate_model::Outcome;
use quorate_model::codec::entry::{PROPOSAL_HEADER, encode_proposal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::error::ProposeError;
use crate::metrics::ConsensusMetrics;
use crate::peers::Peers;
use crate::raft::Raft;
use crate::raft::types::{Proposed, TypeConfig};
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

/// The index and the outcome of what was proposed.
pub(crate) type Proposal = Result<(u64, Outcome), ProposeError>;

struct Waiting {
    bytes: Bytes,
    arrived: Instant,
    answer: oneshot::Sender<Proposal>,
    _room: OwnedSemaphorePermit,
}

/// Where callers leave their proposals. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Combiner {
    queue: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
    metrics: Arc<ConsensusMetrics>,
}

/// The other end: what the core's thread runs.
pub(crate) struct Gatherer {
    queue: mpsc::Receiver<Waiting>,
    metrics: Arc<ConsensusMetrics>,
}

/// A new queue, empty.
pub(crate) fn combiner(metrics: &Arc<ConsensusMetrics>) -> (Combiner, Gatherer) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let room = Arc::new(Semaphore::new(WAITING_BYTES_MAX));
    let combiner = Combiner { queue: sender, room, metrics: Arc::clone(metrics) };
    (combiner, Gatherer { queue: receiver, metrics: Arc::clone(metrics) })
}

impl Combiner {
    /// Proposes an encoded proposal and waits for its outcome.
    pub(crate) async fn propose(&self, bytes: Bytes) -> Proposal {
        let answer = self.enqueue(bytes).inspect_err(|error| self.metrics.writes.count_error(error))?;
        answer.await.unwrap_or_else(|_| Err(ProposeError::Unknown("the node went down".to_owned())))
    }

    fn enqueue(&self, bytes: Bytes) -> Result<oneshot::Receiver<Proposal>, ProposeError> {
        let size = u32::try_from(bytes.len()).map_err(|_| ProposeError::Overloaded)?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(size).map_err(|_| ProposeError::Overloaded)?;
        let (sender, receiver) = oneshot::channel();
        let waiting = Waiting { bytes, arrived: Instant::now(), answer: sender, _room: room };
        self.queue.try_send(waiting).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ProposeError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => ProposeError::Stopped("it is going down".to_owned()),
        })?;
        Ok(receiver)
    }
}

impl Gatherer {
    /// Proposes batch after batch until the queue's senders are gone.
    pub(crate) async fn run(mut self, raft: Raft, peers: Arc<Peers>, stages: Arc<Stages>, mut stamper: Stamper) {
        let mut taken = Vec::new();
        while let Some(first) = self.queue.recv().await {
            let mut bytes = first.bytes.len();
            taken.push(first);
            while bytes < BATCH_BYTES_MAX && taken.len() < BATCH_MAX {
                let Ok(next) = self.queue.try_recv() else { break };
                bytes = bytes.saturating_add(next.bytes.len());
                taken.push(next);
            }
            taken.retain(|waiting| !waiting.answer.is_closed());
            if !taken.is_empty() {
                let arrived: Vec<Instant> = taken.iter().map(|waiting| waiting.arrived).collect();
                let proposed = stages.begin();
                let outcomes = self.propose(&raft, &peers, &mut stamper, &mut taken).await;
                stages.end(proposed, if outcomes == arrived.len() { &arrived } else { &[] });
            }
        }
    }

    /// Proposes a batch, answers it, and returns how many outcomes there were.
    async fn propose(&self, raft: &Raft, peers: &Peers, stamper: &mut Stamper, taken: &mut Vec<Waiting>) -> usize {
        let mut offsets = peers.voter_clock_offsets(raft);
        let size = |waiting: &Waiting| waiting.bytes.len().saturating_add(PROPOSAL_HEADER);
        let mut buffer = BytesMut::with_capacity(taken.iter().map(size).sum());
        let mut stamped =
            |waiting: &Waiting| Proposed(encode_proposal(&mut buffer, stamper.stamp(&mut offsets), &waiting.bytes));
        let stamped: Vec<Proposed> = taken.iter().map(&mut stamped).collect();
        let mut results = match raft.client_write_many(stamped).await {
            Ok(results) => results,
            Err(fatal) => {
                taken.drain(..).for_each(|waiting| self.answer(waiting, Err(unknown(&fatal))));
                return 0;
            }
        };
        let mut outcomes = 0_usize;
        for waiting in taken.drain(..) {
            let proposal = match results.next().await {
                Some(Ok(Ok(written))) => Ok((written.log_id.index, written.response.0)),
                Some(Ok(Err(error))) => Err(refused(peers, error)),
                Some(Err(fatal)) => Err(unknown(&fatal)),
                None => Err(unknown(&"the node went down")),
            };
            outcomes = outcomes.saturating_add(usize::from(proposal.is_ok()));
            self.answer(waiting, proposal);
        }
        outcomes
    }

    fn answer(&self, waiting: Waiting, proposal: Proposal) {
        self.metrics.writes.count(&proposal);
        // The caller may have gone away; then nobody wants the outcome.
        let _ = waiting.answer.send(proposal);
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
