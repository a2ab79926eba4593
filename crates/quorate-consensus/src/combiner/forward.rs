//! Forwards the writes of a node that does not lead to the leader, a batch at a time, and passes the answers back.
//!
//! A slow batch does not hold up the next one. Otherwise writes would wait here for another caller's slow statement,
//! and then again at the leader for the next batch.
//!
//! Invariants:
//! - A proposal that another node forwarded is proposed here or not at all, so no proposal travels in circles.
//! - Once a batch is sent, a proposal without an answer is [`ProposeError::Unknown`], whatever reason the other end
//!   gives: it may have made the proposal before it failed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use openraft::rt::WatchReceiver;
use prost::Message;
use quorate_env::mutant::Mutant;
use quorate_env::timeout;
use quorate_model::{GroupId, codec};
use quorate_wire::{CallFailure, FailureKind, Purpose, StreamSender};

use super::{
    BATCH_BYTES_MAX, BATCH_MAX, BATCH_WAIT_MAX, BatchGuard, Combiner, Destination, Gatherer, ProposeResult,
    QueuedProposal, Response, WENT_DOWN, unknown,
};
use crate::error::ProposeError;
use crate::metrics::GroupMetrics;
use crate::peer::messages::{
    Forward, ForwardAnswer, ForwardAnswerKind, ForwardWritten, Forwarded, decode, encode, method,
};
use crate::peers::Peers;
use crate::raft::Raft;

/// The leader must send the next answers of a batch within this time.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The maximum number of batches that may wait for the leader's answers.
pub(super) const FORWARDED_BATCHES_MAX: usize = 16;

/// Answers are sent once they have this many bytes. A single answer may be larger.
const ANSWERS_BYTES: usize = 1 << 20;

/// Returns the leader that this node knows, if that is another node.
pub(super) fn leader_elsewhere(raft: &Raft) -> Option<u64> {
    raft.metrics().borrow_watched().current_leader.filter(|leader| leader != raft.node_id())
}

/// Waits until this node knows a leader other than `leader`, which may be this node itself. The former leader may never
/// answer.
pub(super) async fn led_by_another(raft: &Raft, leader: u64) {
    let mut metrics = raft.metrics();
    loop {
        let is_other = metrics.borrow_watched().current_leader.is_some_and(|now| now != leader);
        if is_other {
            return;
        }
        // The core has ended, so there will be no other leader.
        if metrics.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The callers that have no answer yet, in the order of their proposals.
struct Callers {
    queued: std::vec::IntoIter<QueuedProposal>,
    guard: BatchGuard,
}

impl Callers {
    /// Answers the next caller. Returns whether there was one.
    fn answer(&mut self, result: ProposeResult) -> bool {
        let Some(QueuedProposal { responder, .. }) = self.queued.next() else { return false };
        // The caller may have gone away.
        let _ = responder.send(Response { result, _guard: Arc::clone(&self.guard) });
        true
    }
}

impl Gatherer {
    /// Takes the proposals that the leader may propose out of `taken`, and forwards them. Returns when the leader has
    /// answered, or after [`BATCH_WAIT_MAX`].
    pub(super) async fn forward(&self, leader: u64, taken: &mut Vec<QueuedProposal>, guard: &BatchGuard) {
        let batch: Vec<QueuedProposal> =
            taken.extract_if(.., |queued| queued.destination == Destination::Leader).collect();
        if batch.is_empty() {
            return;
        }
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&self.forward_permits).acquire_owned().await else { return };
        let (raft, peers, metrics) = (self.raft.clone(), Arc::clone(&self.peers), Arc::clone(&self.metrics));
        let forwarder = Forwarder { group: self.group, raft, peers, metrics, leader };
        let guard = Arc::clone(guard);
        let task = self.env.spawn(async move {
            forwarder.run(batch, guard).await;
            drop(permit);
        });
        // The next batch may go, whether this one is answered or not.
        let _ = timeout(BATCH_WAIT_MAX, task).await;
    }
}

/// Forwards batches to one leader.
struct Forwarder {
    group: GroupId,
    raft: Raft,
    peers: Arc<Peers>,
    metrics: Arc<GroupMetrics>,
    leader: u64,
}

impl Forwarder {
    /// Forwards a batch, in parts that fit into one message each, and answers the callers.
    async fn run(&self, mut batch: Vec<QueuedProposal>, guard: BatchGuard) {
        let (peers, leader) = (&self.peers, self.leader);
        while !batch.is_empty() {
            let part: Vec<QueuedProposal> = batch.drain(..part_len(&batch)).collect();
            self.metrics.writes.forwarded.add(part.len() as u64);
            let proposals = part.iter().map(|queued| queued.bytes.clone()).collect();
            let forward = Forward { proposals, group: self.group.0 };
            let mut callers = Callers { queued: part.into_iter(), guard: Arc::clone(&guard) };
            let error = {
                let exchange = pin!(exchange(peers, leader, &forward, &mut callers));
                match select(exchange, pin!(led_by_another(&self.raft, leader))).await {
                    Either::Left((error, _)) => error,
                    Either::Right(_) => {
                        unknown(&format_args!("{} no longer leads and did not answer", name(peers, leader)))
                    }
                }
            };
            while callers.answer(Err(error.clone())) {}
        }
    }
}

/// Returns how many proposals go into the next message: as many as fit, or a single larger one.
fn part_len(queued: &[QueuedProposal]) -> usize {
    let mut bytes = 0_usize;
    let fits = queued.iter().take_while(|queued| {
        bytes = bytes.saturating_add(queued.bytes.len());
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
}

/// Sends a part to the leader, and passes its answers to the callers. Returns the error for callers without an answer.
async fn exchange(peers: &Peers, leader: u64, forward: &Forward, callers: &mut Callers) -> ProposeError {
    let away = || ProposeError::Unreachable(name(peers, leader));
    let Some((mut sender, mut receiver)) = peers.open_stream(leader, Purpose::Data, method::FORWARD).await else {
        return away();
    };
    // A new stream has credit for an item, so if this fails, nothing was sent.
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

/// Proposes a batch that another node has forwarded, and sends the answers back.
pub(crate) async fn serve(combiner: &Combiner, mut sender: StreamSender, proposals: Vec<Bytes>) {
    if proposals.len() > BATCH_MAX {
        return sender.fail(CallFailure::new(FailureKind::Malformed, "too many proposals"));
    }
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

/// Sends answers, if there are any. Returns whether the stream still works.
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
        None => Err(unknown(&"the leader's answer is of a kind that this version does not know")),
    }
}

fn name(peers: &Peers, id: u64) -> String {
    let member = peers.leader_member(id, None);
    member.map_or_else(|| format!("node {id:016x}"), |(_, member)| format!("{} at {}", member.name, member.addr))
}
