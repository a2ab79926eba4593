//! Writes on a node that does not lead: handed on to the leader, a batch at a time, and answered from there.
//!
//! A batch that takes long does not hold up the next one: its writes would wait here for one statement of another
//! caller, and then at the leader for the next.
//!
//! Invariants:
//! - What comes from another node is proposed here or not at all, so that no proposal goes in circles.
//! - Once a batch was sent, what has no answer is [`ProposeError::Unknown`], whatever the other end gives as a reason:
//!   it may have proposed it before.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use openraft::rt::WatchReceiver;
use prost::Message;
use quorate_env::mutant::Mutant;
use quorate_env::timeout;
use quorate_model::codec;
use quorate_wire::{CallFailure, FailureKind, Purpose, StreamReceiver, StreamSender};

use super::{
    BATCH_BYTES_MAX, BATCH_MAX, BATCH_WAIT_MAX, BatchGuard, Combiner, Destination, Gatherer, ProposeResult,
    QueuedProposal, Response, WENT_DOWN, unknown,
};
use crate::error::ProposeError;
use crate::metrics::ConsensusMetrics;
use crate::peer::messages::{
    Forward, ForwardAnswer, ForwardAnswerKind, ForwardWritten, Forwarded, decode, encode, method,
};
use crate::peers::Peers;
use crate::raft::Raft;

/// The leader must send the next answers of a batch within this time.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Batches that may wait for the leader's answers at once.
pub(super) const FORWARDED_BATCHES_MAX: usize = 16;

/// Answers are sent once there are so many bytes of them; one alone may be larger.
const ANSWERS_BYTES: usize = 1 << 20;

/// The node that leads, as far as this node knows, unless it is this node.
pub(super) fn leader_elsewhere(raft: &Raft) -> Option<u64> {
    raft.metrics().borrow_watched().current_leader.filter(|leader| leader != raft.node_id())
}

/// Waits until this node takes another one than `leader` for the leader, itself perhaps: one that is gone never
/// answers.
pub(super) async fn led_by_another(raft: &Raft, leader: u64) {
    let mut metrics = raft.metrics();
    loop {
        let is_other = metrics.borrow_watched().current_leader.is_some_and(|now| now != leader);
        if is_other {
            return;
        }
        // The core has ended: there will be no other.
        if metrics.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Those whose answers are still to come, in their order.
struct Callers {
    queued: std::vec::IntoIter<QueuedProposal>,
    guard: BatchGuard,
}

impl Callers {
    /// Answers the next, if there is one.
    fn answer(&mut self, result: ProposeResult) -> bool {
        let Some(QueuedProposal { responder, .. }) = self.queued.next() else { return false };
        // The caller may have gone away; then nobody wants the outcome.
        let _ = responder.send(Response { result, _guard: Arc::clone(&self.guard) });
        true
    }
}

impl Gatherer {
    /// Hands on to the leader what may be handed on, and leaves the rest. Returns when it is answered, or takes long.
    pub(super) async fn forward(&self, leader: u64, taken: &mut Vec<QueuedProposal>, guard: &BatchGuard) {
        let batch: Vec<QueuedProposal> =
            taken.extract_if(.., |queued| queued.destination == Destination::Leader).collect();
        if batch.is_empty() {
            return;
        }
        // Nobody closes it.
        let Ok(permit) = Arc::clone(&self.forward_permits).acquire_owned().await else { return };
        let (raft, peers, metrics) = (self.raft.clone(), Arc::clone(&self.peers), Arc::clone(&self.metrics));
        let (forwarder, guard) = (Forwarder { raft, peers, metrics, leader }, Arc::clone(guard));
        let task = self.env.spawn(async move {
            forwarder.run(batch, guard).await;
            drop(permit);
        });
        // Whether it is answered or not, the next may go.
        let _ = timeout(BATCH_WAIT_MAX, task).await;
    }
}

/// What it takes to hand writes on.
struct Forwarder {
    raft: Raft,
    peers: Arc<Peers>,
    metrics: Arc<ConsensusMetrics>,
    leader: u64,
}

impl Forwarder {
    /// Hands writes on, and answers them.
    async fn run(&self, mut batch: Vec<QueuedProposal>, guard: BatchGuard) {
        let (peers, leader) = (&self.peers, self.leader);
        while !batch.is_empty() {
            let group: Vec<QueuedProposal> = batch.drain(..group_len(&batch)).collect();
            self.metrics.writes.forwarded.add(group.len() as u64);
            let forward = Forward { proposals: group.iter().map(|queued| queued.bytes.clone()).collect() };
            let mut callers = Callers { queued: group.into_iter(), guard: Arc::clone(&guard) };
            let error = {
                let exchange = pin!(exchange(peers, leader, &forward, &mut callers));
                match select(exchange, pin!(led_by_another(&self.raft, leader))).await {
                    Either::Left((error, _)) => error,
                    Either::Right(_) => {
                        unknown(&format_args!("{} leads no more and did not answer", name(peers, leader)))
                    }
                }
            };
            while callers.answer(Err(error.clone())) {}
        }
    }
}

/// How many come together: one message's worth, or a single larger one.
fn group_len(queued: &[QueuedProposal]) -> usize {
    let mut bytes = 0_usize;
    let fits = queued.iter().take_while(|queued| {
        bytes = bytes.saturating_add(queued.bytes.len());
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
}

/// Has the leader propose, and answers as its answers come. What is returned is for those who got none.
async fn exchange(peers: &Peers, leader: u64, forward: &Forward, callers: &mut Callers) -> ProposeError {
    let away = || ProposeError::Unreachable(name(peers, leader));
    let Some((mut sender, mut receiver)) = peers.open_stream(leader, Purpose::Data, method::FORWARD).await else {
        return away();
    };
    // A new stream takes an item at once, and one that failed to send has sent nothing.
    if sender.send(encode(forward)).await.is_err() {
        return away();
    }
    sender.finish();
    let in_doubt = |why: &dyn std::fmt::Display| match Mutant::ForwardedIsNotDone.is_on() {
        true => away(),
        false => unknown(&format_args!("{}: {why}", name(peers, leader))),
    };
    loop {
        let forwarded: Forwarded = match timeout(ANSWER_MAX, receiver.recv()).await {
            Ok(Ok(Some(item))) => match decode(item) {
                Ok(forwarded) => forwarded,
                Err(error) => return in_doubt(&error),
            },
            Ok(Ok(None)) => return in_doubt(&"it did not answer"),
            Ok(Err(error)) => return in_doubt(&error),
            Err(elapsed) => return in_doubt(&elapsed),
        };
        for answer in forwarded.answers {
            callers.answer(result_of(answer, peers));
        }
    }
}

/// Proposes here what another node hands on, and sends it the answers.
pub(crate) async fn serve(combiner: &Combiner, mut sender: StreamSender, mut receiver: StreamReceiver) {
    // Dropped, the sender says that the stream was abandoned.
    let Ok(Ok(Some(item))) = timeout(ANSWER_MAX, receiver.recv()).await else { return };
    let proposals = match decode::<Forward>(item) {
        Ok(forward) if forward.proposals.len() <= BATCH_MAX => forward.proposals,
        Ok(_) => return sender.fail(CallFailure::new(FailureKind::Malformed, "too many proposals")),
        Err(error) => return sender.fail(CallFailure::new(FailureKind::Malformed, error.to_string())),
    };
    let responses: Vec<_> = proposals.into_iter().map(|bytes| combiner.enqueue(bytes, Destination::Local)).collect();
    let (mut forwarded, mut bytes) = (Forwarded::default(), 0_usize);
    for response in responses {
        let result = match response {
            Ok(response) => response.result(WENT_DOWN).await,
            Err(error) => Err(error),
        };
        let answer = ForwardAnswer::from(result);
        bytes = bytes.saturating_add(answer.encoded_len());
        forwarded.answers.push(answer);
        if bytes >= ANSWERS_BYTES {
            bytes = 0;
            if !send(&mut sender, std::mem::take(&mut forwarded)).await {
                return;
            }
        }
    }
    if send(&mut sender, forwarded).await {
        sender.finish();
    }
}

/// Whether answers are on their way.
async fn send(sender: &mut StreamSender, forwarded: Forwarded) -> bool {
    forwarded.answers.is_empty() || matches!(timeout(ANSWER_MAX, sender.send(encode(&forwarded))).await, Ok(Ok(())))
}

impl From<ProposeResult> for ForwardAnswer {
    fn from(result: ProposeResult) -> Self {
        let kind = match result {
            Ok((index, outcome)) => {
                let outcome = codec::encode_outcome(&outcome);
                ForwardAnswerKind::Written(ForwardWritten { index, outcome })
            }
            Err(ProposeError::NotLeader { leader }) => {
                ForwardAnswerKind::NotLeader(leader.map_or(0, |(leader, _)| leader.0))
            }
            Err(ProposeError::Unreachable(_)) => ForwardAnswerKind::NotLeader(0),
            Err(ProposeError::Overloaded) => ForwardAnswerKind::Overloaded(true),
            Err(ProposeError::Stopped(why)) => ForwardAnswerKind::Stopped(why),
            Err(ProposeError::Unknown(why)) => ForwardAnswerKind::Unknown(why),
        };
        Self { kind: Some(kind) }
    }
}

fn result_of(answer: ForwardAnswer, peers: &Peers) -> ProposeResult {
    match answer.kind {
        Some(ForwardAnswerKind::Written(written)) => match codec::decode_outcome(&written.outcome) {
            Ok(outcome) => Ok((written.index, outcome)),
            Err(error) => Err(unknown(&error)),
        },
        Some(ForwardAnswerKind::NotLeader(leader)) => {
            Err(ProposeError::NotLeader { leader: peers.leader_member(leader, None) })
        }
        Some(ForwardAnswerKind::Overloaded(_)) => Err(ProposeError::Overloaded),
        Some(ForwardAnswerKind::Stopped(why)) => Err(ProposeError::Stopped(why)),
        Some(ForwardAnswerKind::Unknown(why)) => Err(ProposeError::Unknown(why)),
        None => Err(unknown(&"an answer of a later version")),
    }
}

fn name(peers: &Peers, id: u64) -> String {
    let member = peers.leader_member(id, None);
    member.map_or_else(|| format!("node {id:016x}"), |(_, member)| format!("{} at {}", member.name, member.addr))
}
