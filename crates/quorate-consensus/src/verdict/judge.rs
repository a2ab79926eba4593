//! Asks the other nodes about an entry that this node does not apply, and decides if this node leads.
//!
//! The leader asks in two rounds. In the first, every voter answers where it stands. Only if no voter has applied the
//! entry and a majority can't, the leader asks all voters in a second round to promise to stop before the entry. With a
//! single round, a voter that has not tried the entry yet would never try it. The leader does not wait for a voter that
//! can't be reached if it knows that this voter has not applied the entry ([`super::announce`]). If the entry takes
//! more time or memory than the leader allows, the leader does not wait for the others to try it, because all callers
//! wait meanwhile.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select};
use openraft::raft::ClientWriteResult;
use openraft::rt::WatchReceiver;
use quorate_env::mutant::Mutant;
use quorate_env::{Instant, Throttle, sleep};
use quorate_model::{NodeId, Payload, codec};
use tokio::sync::oneshot;

use super::{Blocked, Verdicts};
use crate::identity::Halt;
use crate::membership::current;
use crate::peer::messages::{StandAsk, StandReply, decode, encode, method};
use crate::peers::Peers;
use crate::raft::Raft;
use crate::raft::types::{Proposed, RaftLeaderId, ResponseCallback, TypeConfig};

/// The pause between two rounds.
const ROUND_PAUSE: Duration = Duration::from_millis(100);

/// The maximum time for a node to answer. It is longer than a promise waits for a batch and for the disk.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// The maximum time for a node to answer that has not answered lately and that the leader can decide without: all
/// writes wait meanwhile.
const SILENT_ANSWER_MAX: Duration = Duration::from_millis(300);

/// An entry that waits for longer than this is logged.
const SAY_AFTER: Duration = Duration::from_secs(5);

/// The answers of the other nodes; `None` for a node that does not answer.
type Answers = Vec<(u64, Option<StandReply>)>;

/// Asks and decides as long as the node runs.
pub(crate) async fn run(verdicts: Arc<Verdicts>, raft: Raft, peers: Arc<Peers>) {
    let mut changed = verdicts.changed.subscribe();
    let mut judge = Judge { verdicts, raft, peers, rounds: 0, waits: None, throttle: Throttle::default() };
    loop {
        changed.mark_unchanged();
        if judge.verdicts.blocked().is_some() {
            judge.look().await;
            sleep(ROUND_PAUSE).await;
        } else if changed.changed().await.is_err() {
            return;
        }
    }
}

/// Returns the present term.
pub(super) fn term(raft: &Raft) -> u64 {
    raft.metrics().borrow_watched().current_term
}

/// Whether this node leads and an entry of its term is committed. From then on, no node whose log holds a rejection of
/// an earlier term that this leader's log lacks can win an election.
pub(super) fn has_committed(raft: &Raft) -> bool {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let committed = metrics.cluster_committed.as_ref().map(|id| id.leader_id.term);
    metrics.current_leader == Some(metrics.id) && committed == Some(metrics.current_term)
}

struct Judge {
    verdicts: Arc<Verdicts>,
    raft: Raft,
    peers: Arc<Peers>,
    /// The number of rounds in which promises were asked for.
    rounds: u64,
    /// The entry that waits, and since when.
    waits: Option<(u64, Instant)>,
    /// Limits the lines about an entry that waits.
    throttle: Throttle,
}

impl Judge {
    /// Runs one round about the entry that this node does not apply.
    async fn look(&mut self) {
        let Some(Blocked { index, why }) = self.verdicts.blocked() else { return };
        let halt = self.verdicts.state().halts.get(&index).copied();
        let group = self.verdicts.log.group().0;
        let ask = StandAsk { index, halt_term: halt.map(|halt| halt.term), group, ..StandAsk::default() };
        let answers = self.ask(ask).await;
        if answers.iter().flat_map(|(_, reply)| reply).any(|reply| reply.rejected) {
            self.verdicts.change(|state| _ = state.rejected_elsewhere.insert(index));
            return;
        }
        let holders = holders(&answers);
        self.say_waiting(index, &why, &answers);
        if self.raft.is_leader() {
            self.decide(index, &answers).await;
        } else if let Some(halt) = halt
            && answers.iter().flat_map(|(_, reply)| reply).any(|reply| reply.released)
        {
            self.verdicts.release(halt).await;
        }
        self.verdicts.change(|state| {
            if let Some(failed) = state.failed.as_mut().filter(|failed| failed.index == index && !failed.again) {
                failed.holders = holders;
            }
        });
    }

    /// Takes the leader's next step.
    async fn decide(&mut self, index: u64, answers: &Answers) {
        let (term, now) = (term(&self.raft), current(&self.raft));
        let own = *self.raft.node_id();
        let voters: BTreeSet<u64> = now.membership().voter_ids().collect();
        let (is_stuck, is_too_much, is_logged, is_forced) = {
            let state = self.verdicts.state();
            let failed = state.failed.as_ref().filter(|failed| failed.index == index && !failed.again);
            // An entry that this node may have applied before, it may have answered for.
            let is_too_much = failed.is_some_and(|failed| failed.is_too_much)
                && index > state.perhaps_applied
                && !self.verdicts.may_have_lost(&state, index, None);
            (failed.is_some(), is_too_much, state.rejects(index), state.forced.contains(&index))
        };
        if is_logged {
            return;
        }
        let stuck = |(id, reply): &&(u64, Option<StandReply>)| {
            voters.contains(id) && reply.as_ref().is_some_and(|reply| reply.stuck)
        };
        let count = answers.iter().filter(stuck).count() + usize::from(is_stuck && voters.contains(&own));
        let is_majority = count > voters.len() / 2 || count > 0 && Mutant::RejectedByMinority.is_on();
        let is_applied = !holders(answers).is_empty() && !Mutant::AppliedIsRejected.is_on();
        if !(is_majority || is_too_much) || is_applied {
            return self.give_up(index, term).await;
        }
        let missing = |(id, reply): &&(u64, Option<StandReply>)| {
            voters.contains(id) && reply.is_none() && !self.verdicts.was_never_announced(*id, index, term)
        };
        let missing: Vec<NodeId> = answers.iter().filter(missing).map(|(id, _)| NodeId(*id)).collect();
        if !is_forced && !missing.is_empty() {
            return self.say_missing(index, count, voters.len(), &missing);
        }
        self.rounds = self.rounds.saturating_add(1);
        let halt = Halt { index, term, round: self.rounds };
        self.verdicts.change(|state| state.pending_rejection = Some(halt));
        let id = self.verdicts.log.id_at(index);
        let is_own = self.verdicts.promise(halt, id, is_forced).await;
        let (proposed_by, proposed_in) = (id.map(|id| id.node.0), id.map(|id| id.term));
        let (round, group) = (halt.round, self.verdicts.log.group().0);
        let ask = StandAsk { index, term, round, halt_term: None, proposed_by, proposed_in, forced: is_forced, group };
        let answers = self.ask(ask).await;
        let promised = |(id, reply): &(u64, Option<StandReply>)| {
            let may_be_missing = || is_forced || self.verdicts.was_never_announced(*id, index, term);
            !voters.contains(id) || reply.as_ref().map_or_else(may_be_missing, |reply| reply.promised)
        };
        let is_applied = !holders(&answers).is_empty();
        let are_promised = is_own && !is_applied && answers.iter().all(promised);
        let is_same = current(&self.raft).log_id() == now.log_id() && self::term(&self.raft) == term;
        if are_promised && is_same || Mutant::AppliedIsRejected.is_on() {
            let who = if is_majority {
                format!("{count} of {} voters can't apply it", voters.len())
            } else {
                "it takes more time or memory than the leader allows for an entry".to_owned()
            };
            self.propose(index, term, &who).await;
        }
        if self.verdicts.state().rejects(index) {
            // From here on the log holds the rejection. If it is cut from the log, the promises have to be released.
            self.verdicts.change(|state| state.pending_rejection = None);
        } else {
            self.give_up(index, term).await;
        }
    }

    /// Stops working on a rejection as the leader of `term`. This node releases its own promise, unless it has promised
    /// the leader of a later term since.
    async fn give_up(&self, index: u64, term: u64) {
        let halt = {
            let mut state = self.verdicts.state();
            state.pending_rejection.take_if(|pending| pending.index == index);
            if !has_committed(&self.raft) {
                return;
            }
            state.halts.get(&index).copied().filter(|halt| halt.term <= term && !state.rejects(index))
        };
        if let Some(halt) = halt {
            self.verdicts.release(halt).await;
        }
    }

    /// Logs from time to time that an entry has waited for long, and what the other nodes answer.
    fn say_waiting(&mut self, index: u64, why: &str, answers: &Answers) {
        let since = self.waits.filter(|(at, _)| *at == index).map_or_else(Instant::now, |(_, since)| since);
        self.waits = Some((index, since));
        if since.elapsed() < SAY_AFTER || !self.throttle.is_due() {
            return;
        }
        let said = |(id, reply): &(u64, Option<StandReply>)| {
            let stands = reply.as_ref().map_or("does not answer", |reply| match reply {
                StandReply { applied: true, .. } => "has applied it",
                StandReply { stuck: true, .. } => "can't apply it",
                _ => "has not applied it",
            });
            format!("{} {stands}", NodeId(*id))
        };
        let others: Vec<String> = answers.iter().map(said).collect();
        tracing::warn!(
            event = "entry_waits",
            group = self.verdicts.log.group().0,
            index,
            others = others.join(", "),
            "this node has not applied entry {index} for {} s: {why}",
            since.elapsed().as_secs()
        );
    }

    /// Logs from time to time which voters the leader waits for.
    fn say_missing(&self, index: u64, count: usize, voters: usize, missing: &[NodeId]) {
        if !self.throttle.is_due() {
            return;
        }
        let missing: Vec<String> = missing.iter().map(NodeId::to_string).collect();
        let group = self.verdicts.log.group().0;
        tracing::error!(
            event = "entry_undecided",
            group,
            index,
            missing = missing.join(", "),
            "{count} of {voters} voters can't apply entry {index} of group {group}, and the missing voters may have \
             applied it: start them, or decide without them by 'quorate recover reject-entry {index} --group {group} \
             --config FILE'"
        );
    }

    async fn propose(&self, index: u64, term: u64, who: &str) {
        tracing::error!(
            event = "entry_rejected",
            group = self.verdicts.log.group().0,
            index,
            "the cluster rejects entry {index}: {who}, and no voter has applied it"
        );
        let bytes = codec::entry::encode(&Payload::Reject(index));
        let (sender, answered) = oneshot::channel();
        let responder =
            ResponseCallback::new(move |result: ClientWriteResult<TypeConfig>| _ = sender.send(result.is_ok()));
        // If this fails, the responder reports it.
        let leader = RaftLeaderId { term, node_id: *self.raft.node_id() };
        let _ = self.raft.write(Proposed(bytes)).responder(responder).with_leader(leader).await;
        let mut changed = self.verdicts.changed.subscribe();
        let logged = async { while !self.verdicts.state().rejects(index) && changed.changed().await.is_ok() {} };
        // There is no time limit: as long as the core may still append the rejection, no promise may be released. An
        // answer before the rejection is in the log is a refusal.
        select(pin!(logged), answered).await;
    }

    /// Asks all other members, and returns their answers.
    async fn ask(&self, ask: StandAsk) -> Answers {
        let own = *self.raft.node_id();
        let others: Vec<u64> =
            current(&self.raft).membership().nodes().map(|(id, _)| *id).filter(|id| *id != own).collect();
        let (body, term) = (encode(&ask), term(&self.raft));
        let asks = others.iter().map(|id| async {
            let is_awaited = self.peers.is_heard(*id) || !self.verdicts.was_never_announced(*id, ask.index, term);
            let limit = if is_awaited { ANSWER_MAX } else { SILENT_ANSWER_MAX };
            let reply = self.peers.call_member(*id, method::STAND, body.clone(), limit).await;
            (*id, reply.ok().and_then(|body| decode::<StandReply>(body).ok()))
        });
        join_all(asks).await
    }
}

/// Returns the nodes that have applied the entry.
fn holders(answers: &Answers) -> Vec<NodeId> {
    let is_holder = |reply: &StandReply| reply.applied;
    answers.iter().filter(|(_, reply)| reply.as_ref().is_some_and(is_holder)).map(|(id, _)| NodeId(*id)).collect()
}
