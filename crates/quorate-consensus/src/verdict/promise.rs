//! Where a node stands at an entry that some node can't apply, and its promise to stop before the entry.

use std::time::Duration;

use quorate_env::timeout;
use quorate_model::{LogId, NodeId, REJECTIONS_MAX};

use super::state::State;
use super::{Verdicts, judge};
use crate::identity::Halt;
use crate::peer::messages::{StandAsk, StandReply};

/// How long a request for a promise waits for the end of a batch that contains the entry.
const FLIGHT_MAX: Duration = Duration::from_secs(1);

/// The maximum number of promises that a node keeps at a time.
const HALTS_MAX: usize = 64;

impl Verdicts {
    /// Has the leader reject an entry without the voters that can't be reached. Fails if this node does not stop before
    /// that entry.
    pub(crate) fn force(&self, index: u64) -> Result<(), String> {
        if self.blocked().is_none_or(|blocked| blocked.index != index) {
            return Err(format!("the leader does not wait at entry {index}; see the entry in 'quorate status'"));
        }
        self.change(|state| _ = state.forced.insert(index));
        Ok(())
    }

    /// Answers another node's question where this node stands at an entry, and gives a promise if it is asked for.
    pub(crate) async fn stand(&self, ask: &StandAsk) -> StandReply {
        let halt = Halt { index: ask.index, term: ask.term, round: ask.round };
        let id = ask.proposed_by.zip(ask.proposed_in);
        let id = id.map(|(node, term)| LogId { term, node: NodeId(node), index: ask.index });
        let promised = ask.round > 0 && self.promise(halt, id, ask.forced).await;
        let applied = self.store.applied().index() >= ask.index;
        let rejected = applied && self.store.rejections().contains(&ask.index);
        let state = self.state();
        let failed = state.failed.as_ref().filter(|failed| failed.index == ask.index && !failed.again);
        StandReply {
            applied: applied && !rejected,
            rejected,
            stuck: failed.is_some(),
            promised,
            released: ask.halt_term.is_some_and(|term| self.releases(&state, ask.index, term)),
            why: failed.map(|failed| failed.why.clone()).unwrap_or_default(),
        }
    }

    /// Promises durably to stop before an entry. `id` is the entry's log id, if the asking leader knows it. Returns
    /// false if this node has applied the entry, may be applying it, or may have applied it before; in the last case it
    /// has to try the entry again first. It may be unable to try an entry that it may have lost in a power failure.
    /// With `forced`, the decision of an operator, it promises that too.
    pub(super) async fn promise(&self, halt: Halt, id: Option<LogId>, forced: bool) -> bool {
        let mut changed = self.changed.subscribe();
        let is_past = |state: &State| state.in_flight.is_some_and(|last| last >= halt.index);
        let landed = async {
            while is_past(&self.state()) {
                // An error is impossible: the sender lives as long as this value.
                drop(changed.changed().await);
            }
        };
        if timeout(FLIGHT_MAX, landed).await.is_err() {
            return false;
        }
        {
            let applied = self.store.applied().index();
            let mut state = self.state();
            // An image may have arrived.
            state.forget(applied);
            state.drop_settled_halts();
            let known = state.halts.get(&halt.index);
            let is_older = known.is_some_and(|known| (known.term, known.round) > (halt.term, halt.round));
            let is_full = known.is_none() && state.halts.len() >= HALTS_MAX;
            let is_doubtful = self.may_have_applied(&state, halt.index, id, forced);
            if is_past(&state) || is_doubtful || applied >= halt.index || is_older || is_full {
                return false;
            }
            state.halts.insert(halt.index, halt);
        }
        self.changed.send_replace(());
        self.log.note_halts(|| self.state().halts.values().copied().collect()).await.is_ok()
    }

    /// Whether this node may have applied an entry before. If it can't apply the entry now, we assume that it never
    /// could.
    fn may_have_applied(&self, state: &State, index: u64, id: Option<LogId>, forced: bool) -> bool {
        let is_stuck = state.failed.as_ref().is_some_and(|failed| failed.index == index && !failed.again);
        !is_stuck && (index <= state.perhaps_applied || !forced && self.may_have_lost(state, index, id))
    }

    /// Whether this node may have led before it lost power, applied an entry that the other nodes had synced but its
    /// own log had not, answered the caller, and lost the entry. `id` is the entry's log id, in case the log does not
    /// have it.
    pub(super) fn may_have_lost(&self, state: &State, index: u64, id: Option<LogId>) -> bool {
        let is_own = |term: u64| {
            let id = self.log.id_at(index).or(id);
            id.is_none_or(|id| id.term <= term && id.node == self.log.node())
        };
        state.lost_power_in.is_some_and(is_own)
    }

    /// Whether this node, as the leader, releases others that have promised a leader of `term` to stop before an entry.
    fn releases(&self, state: &State, index: u64, term: u64) -> bool {
        let Some((raft, _)) = self.core.get() else { return false };
        let is_pending = state.pending_rejection.is_some_and(|pending| pending.index == index);
        let rejections = self.store.rejections();
        // The store keeps only the latest rejections.
        let is_forgotten = rejections.len() >= REJECTIONS_MAX && rejections.iter().all(|known| *known > index);
        let is_rejected = state.rejects(index) || rejections.contains(&index) || is_forgotten;
        judge::has_committed(raft) && term <= judge::term(raft) && !is_pending && !is_rejected
    }

    /// Ends a promise, unless it was replaced by another one.
    pub(super) async fn release(&self, halt: Halt) {
        let was_held = {
            let mut state = self.state();
            let is_it = state.halts.get(&halt.index) == Some(&halt);
            if is_it {
                state.halts.remove(&halt.index);
            }
            is_it
        };
        if was_held {
            self.changed.send_replace(());
            // If this fails, the node stops there again after a restart, and asks again.
            let _ = self.log.note_release(halt).await;
        }
    }
}
