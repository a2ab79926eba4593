//! Which commits and rejections a leader announces to members.
//!
//! A member applies an entry only after a leader has announced that the entry is committed. So a member without such an
//! announcement has not applied the entry, and the leader can reject the entry without asking it.
//!
//! Invariants:
//!
//! - While this node works on the rejection of an entry, it announces to no member that the entry is committed.
//! - A member that does not vote is not asked before an entry is rejected. Therefore this node announces to it only
//!   what it has applied itself.
//! - Later it announces both at once, and a member ignores the commit until it has the rejection in its log. So the
//!   member applies the entry as a rejected one, even if the rejection is far after the entry in the log.

use quorate_env::mutant::Mutant;
use quorate_model::LogId;

use super::Verdicts;
use super::state::State;
use crate::membership::current;
use crate::raft::types::{RaftLogId, to_raft};

impl Verdicts {
    /// Returns what a message to a member may announce: the commit, if it may be announced now, and the rejected
    /// entries. The announcement is recorded here, so the caller must write the message to a connection right
    /// afterwards.
    pub(crate) fn announce(&self, target: u64, committed: Option<RaftLogId>) -> (Option<RaftLogId>, Vec<u64>) {
        let committed = match self.votes(target) {
            true => committed,
            false => committed.min(self.store.applied().log_id.map(to_raft)),
        };
        let mut state = self.state();
        let committed = committed.filter(|committed| !state.works_for_rejection_up_to(committed.index));
        if let Some(committed) = committed {
            let announced = state.announced.entry(target).or_default();
            *announced = committed.index.max(*announced);
        }
        // A rejection leaves this state, under the same lock, only after the store has recorded it.
        let mut rejected = state.certainly_rejected();
        rejected.extend(self.store.rejections());
        (committed, rejected)
    }

    /// Whether a member votes.
    fn votes(&self, id: u64) -> bool {
        // Before there is a core, nothing is decided.
        self.core.get().is_none_or(|(raft, _)| current(raft).membership().voter_ids().any(|voter| voter == id))
    }

    /// Whether this node may accept that the log is committed up to `committed`. It may not while its log, up to
    /// `previous`, lacks the rejection of an entry in the leader's list `rejected`: it would apply that entry as an
    /// ordinary one, at the latest after a restart. The leader repeats its message.
    pub(crate) fn may_accept_commit(
        &self,
        committed: Option<RaftLogId>,
        previous: Option<RaftLogId>,
        rejected: &[u64],
    ) -> bool {
        if rejected.is_empty() {
            return true;
        }
        let applied = self.store.applied().index();
        let [committed, previous] = [committed, previous].map(|id| id.map_or(0, |id| id.index));
        let open = |index: &&u64| **index > applied && **index <= committed;
        let mut open = rejected.iter().filter(open).peekable();
        open.peek().is_none() || {
            let state = self.state();
            open.all(|index| state.logged.iter().any(|(at, rejected)| rejected == index && *at <= previous))
        }
    }

    /// Whether it is certain that no leader has announced to a member that an entry is committed. Only the leader in
    /// whose term the entry was proposed can know that, and only if it was not restarted since.
    pub(super) fn was_never_announced(&self, id: u64, index: u64, term: u64) -> bool {
        let own = self.log.node();
        let is_own = |at: LogId| at.term == term && at.node == own;
        let is_own = self.log.id_at(index).is_some_and(is_own);
        let state = self.state();
        let is_of_this_process = index > state.perhaps_applied;
        let is_announced = state.announced.get(&id).is_some_and(|announced| *announced >= index);
        is_own && is_of_this_process && !is_announced || Mutant::AbsentVoterIgnored.is_on()
    }
}

impl State {
    /// Whether this node works on the rejection of an entry up to this index, or has one in its log that is not
    /// committed.
    fn works_for_rejection_up_to(&self, index: u64) -> bool {
        let is_open = |(at, rejected): (&u64, &u64)| *at > self.committed && *rejected <= index;
        self.pending_rejection.is_some_and(|pending| pending.index <= index) || self.logged.iter().any(is_open)
    }

    fn certainly_rejected(&self) -> Vec<u64> {
        let is_committed = |(at, _): &(&u64, &u64)| **at <= self.committed;
        let logged = self.logged.iter().filter(is_committed).map(|(_, rejected)| *rejected);
        logged.chain(self.rejected_elsewhere.iter().copied()).collect()
    }
}
