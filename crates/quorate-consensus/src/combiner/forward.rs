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
    Answer, BATCH_BYTES_MAX, BATCH_MAX, Combiner, Gatherer, Proposal, TURN_MAX, Taking, WENT_DOWN, Waiting, Whereto,
    unknown,
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
pub(super) const HANDED_ON_MAX: usize = 16;

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
    waiting: std::vec::IntoIter<Waiting>,
    token: Taking,
}

impl Callers {
    /// Answers the next, if there is one.
    fn answer(&mut self, proposal: Proposal) -> bool {
        let Some(Waiting { answer, .. }) = self.waiting.next() else { return false };
        // The caller may have gone away; then nobody wants the outcome.
        let _ = answer.send(Answer { proposal, _taking: Arc::clone(&self.token) });
        true
    }
}

impl Gatherer {
    /// Hands on to the leader what may be handed on, and leaves the rest. Returns when it is answered, or takes long.
    pub(super) async fn forward(&self, leader: u64, taken: &mut Vec<Waiting>, token: &Taking) {
        let onward: Vec<Waiting> = taken.extract_if(.., |waiting| waiting.whereto == Whereto::Leader).collect();
        if onward.is_empty() {
            return;
        }
        // Nobody closes it.
        let Ok(permit) = Arc::clone(&self.handed_on).acquire_owned().await else { return };
        let (raft, peers, metrics) = (self.raft.clone(), Arc::clone(&self.peers), Arc::clone(&self.metrics));
        let (handing, token) = (Handing { raft, peers, metrics, leader }, Arc::clone(token));
        let handed = self.env.spawn(async move {
            handing.hand_on(onward, token).await;
            drop(permit);
        });
        // Whether it is answered or not, the next may go.
        let _ = timeout(TURN_MAX, handed).await;
    }
}

/// What it takes to hand writes on.
struct Handing {
    raft: Raft,
    peers: Arc<Peers>,
    metrics: Arc<ConsensusMetrics>,
    leader: u64,
}

impl Handing {
    /// Hands writes on, and answers them.
    async fn hand_on(&self, mut onward: Vec<Waiting>, token: Taking) {
        let (peers, leader) = (&self.peers, self.leader);
        while !onward.is_empty() {
            let group: Vec<Waiting> = onward.drain(..group_len(&onward)).collect();
            self.metrics.writes.forwarded.add(group.len() as u64);
            let forward = Forward { proposals: group.iter().map(|waiting| waiting.bytes.clone()).collect() };
            let mut callers = Callers { waiting: group.into_iter(), token: Arc::clone(&token) };
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
fn group_len(waiting: &[Waiting]) -> usize {
    let mut bytes = 0_usize;
    let fits = waiting.iter().take_while(|waiting| {
        bytes = bytes.saturating_add(waiting.bytes.len());
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
            callers.answer(proposal_of(answer, peers));
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
    let asked: Vec<_> = proposals.into_iter().map(|bytes| combiner.enqueue(bytes, Whereto::Here)).collect();
    let (mut forwarded, mut bytes) = (Forwarded::default(), 0_usize);
    for answered in asked {
        let proposal = match answered {
            Ok(answered) => answered.proposal(WENT_DOWN).await,
            Err(error) => Err(error),
        };
        let answer = ForwardAnswer::from(proposal);
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

impl From<Proposal> for ForwardAnswer {
    fn from(proposal: Proposal) -> Self {
        let kind = match proposal {
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

fn proposal_of(answer: ForwardAnswer, peers: &Peers) -> Proposal {
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
