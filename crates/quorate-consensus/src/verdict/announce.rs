//! What a leader tells members of commits and rejections.
//!
//! A member applies an entry only once it was told that the entry is committed. So a member that was never told so has
//! not applied the entry, and the leader can reject the entry without asking it.
//!
//! Invariants:
//!
//! - While this node works for the rejection of an entry, it tells nobody that the entry is committed.
//! - Later it tells of both at once, and a member takes no notice of the commit until it has the rejection in its log.
//!   So it applies the entry as a rejected one, also if the rejection is far behind the entry in the log.

use quorate_env::mutant::Mutant;
use quorate_model::{GroupId, LogId};

use super::Verdicts;
use super::state::State;
use crate::raft::types::RaftLogId;

impl Verdicts {
    /// What a message to a member may say: up to where the log is committed, if that may be told now, and which entries
    /// are rejected. The caller writes the message to a connection right after this: the node remembers from here on
    /// what it told the member.
    pub(crate) fn announce(&self, target: u64, committed: Option<RaftLogId>) -> (Option<RaftLogId>, Vec<u64>) {
        let mut state = self.state();
        let committed = committed.filter(|committed| !state.works_for_rejection_up_to(committed.index));
        if let Some(committed) = committed {
            let announced = state.announced.entry(target).or_default();
            *announced = committed.index.max(*announced);
        }
        // A rejection is forgotten here, under the same lock, only after the store has kept it.
        let mut rejected = state.certainly_rejected();
        rejected.extend(self.store.rejections());
        (committed, rejected)
    }

    /// Whether this node may take note that the log is committed up to `committed`. It may not while its log, up to
    /// `previous`, lacks the rejection of an entry that the leader names in `rejected`: the node would apply that entry
    /// as a good one, at the latest after a restart. The leader repeats its message.
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

    /// Whether a member was never told that an entry is committed. Only the leader in whose term the entry was proposed
    /// can know that, and only if it was not started again since.
    pub(super) fn was_never_announced(&self, id: u64, index: u64, term: u64) -> bool {
        let own = self.home.identity().id;
        let is_own = |at: LogId| at.term == term && at.node.0 == own;
        let is_own = self.home.wal.log_id_at(GroupId::MAIN, index).is_some_and(is_own);
        let state = self.state();
        let is_of_this_life = index > state.perhaps_applied;
        let is_announced = state.announced.get(&id).is_some_and(|announced| *announced >= index);
        is_own && is_of_this_life && !is_announced || Mutant::AbsentVoterIgnored.is_on()
    }
}

impl State {
    /// Whether this node works for the rejection of one of the entries up to here, or has one in its log that is not
    /// committed.
    fn works_for_rejection_up_to(&self, index: u64) -> bool {
        let is_open = |(at, rejected): (&u64, &u64)| *at > self.committed && *rejected <= index;
        self.pursuit.is_some_and(|pursuit| pursuit.index <= index) || self.logged.iter().any(is_open)
    }

    fn certainly_rejected(&self) -> Vec<u64> {
        let is_committed = |(at, _): &(&u64, &u64)| **at <= self.committed;
        let logged = self.logged.iter().filter(is_committed).map(|(_, rejected)| *rejected);
        logged.chain(self.heard.iter().copied()).collect()
    }
}
