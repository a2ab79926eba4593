//! What a node says of an entry that some node can't apply, and its promise to stop before it.

use std::time::Duration;

use quorate_env::timeout;
use quorate_model::{GroupId, LogId, NodeId, REJECTIONS_MAX};

use super::state::State;
use super::{Verdicts, judge};
use crate::identity::Halt;
use crate::peer::messages::{StandAsk, StandReply};

/// How long a question waits for the end of a batch that holds the entry.
const FLIGHT_MAX: Duration = Duration::from_secs(1);

/// Promises that a node gives at once.
const HALTS_MAX: usize = 64;

impl Verdicts {
    /// From now on the leader rejects an entry without the word of voters that can't be reached. Fails where this node
    /// does not stop before that entry.
    pub(crate) fn force(&self, index: u64) -> Result<(), String> {
        if self.blocked().is_none_or(|blocked| blocked.index != index) {
            return Err(format!("the leader does not wait at entry {index}; 'quorate status' shows at which it waits"));
        }
        self.change(|state| _ = state.forced.insert(index));
        Ok(())
    }

    /// Answers another node where this one stands at an entry.
    pub(crate) async fn stand(&self, ask: &StandAsk) -> StandReply {
        let halt = Halt { index: ask.index, term: ask.term, round: ask.round };
        let id = ask.proposed_by.zip(ask.proposed_in);
        let id = id.map(|(node, term)| LogId { term, node: NodeId(node), index: ask.index });
        let promised = ask.round > 0 && self.promise(halt, id, ask.forced).await;
        let applied = self.store.applied().index() >= ask.index;
        let rejected = applied && self.store.rejections().contains(&ask.index);
        let state = self.state();
        let trouble = state.trouble.as_ref().filter(|trouble| trouble.index == ask.index && !trouble.again);
        StandReply {
            applied: applied && !rejected,
            rejected,
            stuck: trouble.is_some(),
            promised,
            released: ask.halt_term.is_some_and(|term| self.releases(&state, ask.index, term)),
            why: trouble.map(|trouble| trouble.why.clone()).unwrap_or_default(),
        }
    }

    /// Promises, durably, to stop before an entry, whose id the asking leader knows. Fails if this node has applied the
    /// entry, may be applying it, or may have applied it before: then the node has to try it anew first. What it may
    /// have lost with its power it may be unable to try; an operator can have it promise that too (`forced`).
    pub(super) async fn promise(&self, halt: Halt, id: Option<LogId>, forced: bool) -> bool {
        let mut changed = self.changed.subscribe();
        let is_past = |state: &State| state.in_flight.is_some_and(|last| last >= halt.index);
        let landed = async {
            while is_past(&self.state()) {
                // The sender lives as long as this value.
                drop(changed.changed().await);
            }
        };
        if timeout(FLIGHT_MAX, landed).await.is_err() {
            return false;
        }
        {
            let applied = self.store.applied().index();
            let mut state = self.state();
            // An image may have come.
            state.forget(applied);
            state.let_go();
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
        self.home.note_halts(|| self.state().halts.values().copied().collect()).await.is_ok()
    }

    /// Whether this node may have applied an entry before. If it can't apply the entry now, we assume that it never
    /// could.
    fn may_have_applied(&self, state: &State, index: u64, id: Option<LogId>, forced: bool) -> bool {
        let is_stuck = state.trouble.as_ref().is_some_and(|trouble| trouble.index == index && !trouble.again);
        !is_stuck && (index <= state.perhaps_applied || !forced && self.may_have_lost(state, index, id))
    }

    /// Whether this node may have led before it lost power, applied an entry that the others had synced and its own log
    /// had not, answered for it, and lost it. `id` is the entry's, where the log does not know it.
    pub(super) fn may_have_lost(&self, state: &State, index: u64, id: Option<LogId>) -> bool {
        let is_own = |term: u64| {
            let id = self.home.wal.log_id_at(GroupId::MAIN, index).or(id);
            id.is_none_or(|id| id.term <= term && id.node == self.home.identity().node())
        };
        state.lost_power_in.is_some_and(is_own)
    }

    /// Whether this node, as the leader, lets others go on that have promised a leader of `term` to stop before an
    /// entry.
    fn releases(&self, state: &State, index: u64, term: u64) -> bool {
        let Some((raft, _)) = self.core.get() else { return false };
        let is_pursued = state.pursuit.is_some_and(|pursuit| pursuit.index == index);
        let rejections = self.store.rejections();
        // The store has forgotten older rejections.
        let is_forgotten = rejections.len() >= REJECTIONS_MAX && rejections.iter().all(|known| *known > index);
        let is_rejected = state.rejects(index) || rejections.contains(&index) || is_forgotten;
        judge::has_committed(raft) && term <= judge::term(raft) && !is_pursued && !is_rejected
    }

    /// Goes on, if this is still what was promised.
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
            // Where this fails the node holds again after a restart, and asks again.
            let _ = self.home.note_release(halt).await;
        }
    }
}
