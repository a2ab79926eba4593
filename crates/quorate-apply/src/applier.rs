//! Applies committed entries: many in one transaction, each with the result that it would have alone.
//!
//! An entry runs in a [scope](crate::Scope), so a failed entry leaves nothing behind ([`entry`]). Some failures close
//! the whole transaction (in SQLite `ON CONFLICT ROLLBACK`, an exceeded budget, and so on). The batch is then applied
//! again from its start, one entry per transaction ([`batch`]). The last stamp, the outcome hash and the sessions are
//! staged, and adopted at COMMIT. The leader runs entries before they are committed ([`ahead`]), and the commands of
//! an interactive transaction before they are proposed ([`dry_run`]).

use std::collections::VecDeque;
use std::sync::Arc;

use quorate_model::keys::KeyChange;
use quorate_model::{Applied, Archiver, Entry, Outcome, StoreFault, Topic};

use self::ahead::Ahead;
use self::batch::{Failing, KnownToEnd};
use self::dry_run::OpenDryRun;
pub use self::dry_run::{DryRunError, DryRunResult};
use crate::outcome_hash::OutcomeHash;
use crate::rejected::Rejected;
use crate::requests::Requests;
use crate::row::AppliedRow;
use crate::session::Sessions;
use crate::users::{StagedUsers, Users};
use crate::{Machine, Trouble};

mod ahead;
mod batch;
mod dry_run;
mod entry;
mod pipeline;

/// The number of latest entries whose outcome hash [`Applier::outcome_hash_at`] returns.
pub const HASHES_KEPT: usize = 8192;

/// The most due things that a proposal sweeps at its end.
pub const SWEPT_PER_ENTRY: usize = 4;

/// The most due things that a tick sweeps. While more are due, the leader proposes one tick after the other.
pub const SWEPT_PER_TICK: usize = 256;

/// Applies entries to one machine, on one thread at a time.
pub struct Applier<M> {
    machine: M,
    /// The highest format level that this program understands.
    level: u32,
    sessions: Sessions,
    /// The users as of the last COMMIT.
    users: Arc<Users>,
    /// The requests with a key as of the last COMMIT.
    requests: Requests,
    /// The applied row as of the last COMMIT.
    row: AppliedRow,
    staged: Staged,
    /// The entries that ran in the open transaction before they were committed.
    ahead: Ahead,
    /// The dry run in the open transaction, if there is one.
    dry_run: Option<OpenDryRun>,
    /// Entries that the cluster decided not to run.
    rejected: Rejected,
    /// The latest entry that is known to end its transaction.
    known_to_end: Option<KnownToEnd>,
    /// The latest entry that this node could not run, or not ahead of its commit.
    failing: Option<Failing>,
    /// The latest entries and the outcome hash after each, the oldest first.
    hashes: VecDeque<(u64, u64)>,
    /// The entry that asks to verify the state at the end of the latest batch.
    verification: Option<u64>,
    touched: Touched,
}

/// What entries have touched, for those who wait and those who watch.
#[derive(Debug, Default)]
pub struct Touched {
    /// Topics, with the index of the entry of each.
    pub topics: Vec<(u64, Topic)>,
    /// Changes of keys that anybody wants to know of.
    pub changes: Vec<KeyChange>,
}

impl Touched {
    fn append(&mut self, mut later: Self) {
        self.topics.append(&mut later.topics);
        self.changes.append(&mut later.changes);
    }
}

/// The changes of the open transaction that are kept outside of the engine.
#[derive(Debug, Default)]
struct Staged {
    row: AppliedRow,
    hash: OutcomeHash,
    hashes: Vec<(u64, u64)>,
    users: StagedUsers,
    requests: Requests,
    /// Rejected entries.
    rejected: Vec<u64>,
    /// The entry that asks for a verification, if this transaction applies that entry.
    verification: Option<u64>,
    touched: Touched,
}

impl Staged {
    /// Nothing is changed since this row, these users and these requests were committed.
    fn new(row: &AppliedRow, users: &Arc<Users>, requests: Requests) -> Self {
        let (hash, users) = (OutcomeHash::new(row.outcome_hash), StagedUsers::new(users));
        Self { hash, users, requests, row: row.clone(), ..Self::default() }
    }
}

impl<M: Machine> Applier<M> {
    /// Takes a machine whose records exist, for a program that understands the format up to `level`.
    ///
    /// # Errors
    ///
    /// A fault if the records can't be read, or if the entries that were applied have raised the format to a higher
    /// level ([`StoreFault::Unsupported`]).
    pub fn new(mut machine: M, level: u32) -> Result<Self, StoreFault> {
        let row = machine.applied_row()?;
        check_level(row.applied.level, level)?;
        let sessions = Sessions::load(&mut machine)?;
        let rejected = Rejected::load(&mut machine)?;
        let users = Arc::new(Users::load(&mut machine)?);
        let requests = Requests::load(&mut machine)?;
        Ok(Self {
            machine,
            level,
            sessions,
            staged: Staged::new(&row, &users, requests),
            users,
            requests,
            row,
            ahead: Ahead::default(),
            dry_run: None,
            rejected,
            known_to_end: None,
            failing: None,
            hashes: VecDeque::new(),
            verification: None,
            touched: Touched::default(),
        })
    }

    /// Fails if the state machine is being closed. An interrupted command must not become an outcome, and its error, or
    /// the lack of one, may have been taken for something else since.
    fn check_not_closing(&self) -> Result<(), StoreFault> {
        if self.machine.is_closing() { Err(StoreFault::Closed) } else { Ok(()) }
    }

    /// Applies entries in order, each as if alone, and appends the outcome of each committed entry. An entry that is
    /// not a proposal has an empty reply.
    ///
    /// Stops after an entry that asks for a verification, after entries that have taken long, and before an entry that
    /// is known to take long. So callers wait for the entries before their own, and not for the entries after it. The
    /// remaining entries have no outcomes and must be handed over again.
    ///
    /// # Errors
    ///
    /// A fault of the node with one entry: the first entry that has no outcome.
    pub fn apply_batch(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> Result<(), StoreFault> {
        let done = M::with_stack(|| self.batch(entries, outcomes)).flatten();
        self.machine.clear_stamp();
        done.map_err(|fault| self.check_not_closing().err().unwrap_or(fault))
    }

    /// The position and the membership that the machine has applied.
    pub fn applied(&self) -> &Applied {
        &self.row.applied
    }

    /// The applied row.
    pub fn row(&self) -> &AppliedRow {
        &self.row
    }

    /// The running hash of outcomes after the last applied entry.
    pub fn outcome_hash(&self) -> u64 {
        self.row.outcome_hash
    }

    /// The running hash of outcomes after the entry at `index`. Known for the last applied entry, and for the last
    /// [`HASHES_KEPT`] entries that were applied since the start.
    pub fn outcome_hash_at(&self, index: u64) -> Option<u64> {
        if self.row.applied.log_id.is_some_and(|id| id.index == index) {
            return Some(self.row.outcome_hash);
        }
        let place = self.hashes.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        self.hashes.get(place).map(|(_, hash)| *hash)
    }

    /// The latest entries that the cluster decided not to run.
    pub fn rejected(&self) -> &[u64] {
        self.rejected.indexes()
    }

    /// The sessions as of the last entry.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The users as of the last entry.
    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// The archiver as of the last entry, if there is one.
    pub fn archiver(&self) -> Option<Archiver> {
        self.row.archiver
    }

    /// The requests with a key as of the last entry.
    pub fn requests(&self) -> Requests {
        self.requests
    }

    /// Returns the index of the entry that asks for a verification of the present state, and forgets it.
    pub fn take_verification(&mut self) -> Option<u64> {
        self.verification.take()
    }

    /// Returns what committed entries have touched, and forgets it.
    pub fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// The machine, for work between batches.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Gives the machine back, for instance to restart it.
    pub fn into_machine(self) -> M {
        self.machine
    }

    /// The machine, to set its limits. Its data may only change through entries.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Runs `run` in a scope. A failure that does not close the transaction leaves it as it was before.
    fn in_scope<T>(
        &mut self,
        scope: crate::Scope,
        run: impl FnOnce(&mut Self) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        self.machine.open_scope(scope)?;
        match run(self) {
            Ok(done) => {
                self.machine.keep_scope()?;
                Ok(done)
            }
            Err(Trouble::Failure(failure)) if self.machine.is_open() => {
                self.machine.undo_scope(&failure)?;
                Err(Trouble::Failure(failure))
            }
            Err(trouble) => Err(trouble),
        }
    }
}

/// Fails if data of this format level are not for a program that understands the format up to `known`.
pub fn check_level(level: u32, known: u32) -> Result<(), StoreFault> {
    if level <= known {
        return Ok(());
    }
    let text = format!("they are of format level {level}, and it knows levels up to {known}");
    Err(StoreFault::Unsupported(text))
}

impl<M> std::fmt::Debug for Applier<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("row", &self.row).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
