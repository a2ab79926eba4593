//! What a state machine brings to apply: an engine, the records that apply keeps in it, and stores that run commands.
//!
//! # Invariants that an implementation must keep
//!
//! - Between [`Engine::begin`] and [`Engine::commit`] nothing is visible to readers, and nothing survives a restart.
//! - What commands return and change depends only on the committed data, the entry and its stamp: not on where
//!   transactions begin and end, on a restart, or on the node.
//! - A command that fails either leaves the transaction open, so that its scope can be undone, or has closed it.

use std::time::Duration;

use bytes::Bytes;
use quorate_model::keys::KeyChange;
use quorate_model::{
    Command, CommandResult, Failure, Outcome, Proposal, ReadCheck, RequestKey, Stamp, StoreFault, Topic, User,
};

use crate::{AppliedRow, Trouble};

/// What a state machine keeps its data in: transactions, and scopes inside them.
pub trait Engine {
    /// Begins a transaction, while none is open.
    fn begin(&mut self) -> Result<(), StoreFault>;

    /// Makes the changes of the transaction permanent and visible, and closes it.
    fn commit(&mut self) -> Result<(), StoreFault>;

    /// Undoes the transaction and closes it. If a command has closed it, this only resets what the engine keeps about
    /// it in memory. Does nothing if none is open.
    fn roll_back(&mut self);

    /// Rolls back in the middle of an entry, whose outcome depends on it.
    ///
    /// # Errors
    ///
    /// A fault if the transaction is still open.
    fn give_up(&mut self) -> Result<(), StoreFault> {
        self.roll_back();
        if self.is_open() {
            return Err(StoreFault::Io("a transaction can't be rolled back".to_owned()));
        }
        Ok(())
    }

    /// Returns whether a transaction is open. A command that fails may have closed it, for instance because its
    /// conflict clause says so.
    fn is_open(&self) -> bool;

    /// Opens a scope inside the transaction, or inside the innermost open scope.
    fn open_scope(&mut self, scope: Scope) -> Result<(), StoreFault>;

    /// Closes the innermost scope and keeps its changes.
    fn keep_scope(&mut self) -> Result<(), StoreFault>;

    /// Undoes the changes of the innermost scope, which ended with `failure`, and closes the scope. If that is not
    /// possible, because the scope is [`Scope::Bare`] and has left something behind, closes the transaction.
    fn undo_scope(&mut self, failure: &Failure) -> Result<(), StoreFault>;

    /// Sets how much time and memory the next entries may take on this node.
    fn allow(&mut self, allowance: Allowance);

    /// Returns whether the state machine is being closed. Closing it interrupts the running command, whose result must
    /// then not become an outcome.
    fn is_closing(&self) -> bool;

    /// Calls `run` on a stack that is large enough for every command.
    fn with_stack<T>(run: impl FnOnce() -> T) -> Result<T, StoreFault> {
        Ok(run())
    }
}

/// A part of a transaction that can be undone by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Keeps what is needed to undo it.
    Undoable,
    /// Costs nothing. If its only command fails, the command undoes itself, or else the engine gives up the whole
    /// transaction.
    Bare,
}

/// How much time and memory entries may take on this node. Exceeding it is a fault of the node, not an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// What an entry may take when it is applied.
    Usual,
    /// More than that, because this node has already given up the entry this many times.
    Again(u32),
    /// At most this long: the entry is not committed yet.
    Ahead(Duration),
    /// Less: the commands are a dry run, for which other writes wait.
    DryRun,
}

/// A session as the engine keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its id, which is the index of the entry that opened it.
    pub id: u64,
    /// The stamp of its latest request.
    pub used: u64,
    /// The client has discarded the outcomes up to this sequence.
    pub floor: u64,
    /// The highest sequence that was admitted.
    pub highest: u64,
    /// Its small outcomes, encoded.
    pub recent: Vec<u8>,
}

/// The place of a request in the order in which requests with a key were applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPlace {
    /// Its number: one more than that of the request before it.
    pub number: u64,
    /// The bytes that it takes, as the limit counts them, are those from `low` to `high`. The next one begins there.
    pub low: u64,
    /// The end of its bytes.
    pub high: u64,
    /// The stamp of the entry that ran it.
    pub used: u64,
}

/// A request with a key as the engine keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// Its place.
    pub place: RequestPlace,
    /// The index of the entry that ran it.
    pub entry: u64,
    /// Its key.
    pub key: Bytes,
    /// The hash of what the client asked for.
    pub hash: [u8; RequestKey::HASH_BYTES],
    /// Its outcome, encoded.
    pub outcome: Bytes,
}

/// Where apply keeps its own records. They change in the transaction of the entries.
pub trait Records {
    /// Returns the applied row, as committed.
    fn applied_row(&mut self) -> Result<AppliedRow, StoreFault>;

    /// Replaces the applied row.
    fn write_applied_row(&mut self, row: &AppliedRow) -> Result<(), StoreFault>;

    /// Returns every session, and the highest sequence of it that has an [outcome](Records::outcome); 0 if none has.
    fn sessions(&mut self) -> Result<Vec<(SessionRecord, u64)>, StoreFault>;

    /// Adds a session, or replaces the one with the same id.
    fn write_session(&mut self, session: &SessionRecord) -> Result<(), StoreFault>;

    /// Removes a session, but not its outcomes.
    fn remove_session(&mut self, id: u64) -> Result<(), StoreFault>;

    /// Returns an outcome that is not in [`SessionRecord::recent`]: `Some(None)` for one that was too large to keep.
    fn outcome(&mut self, session: u64, sequence: u64) -> Result<Option<Option<Vec<u8>>>, StoreFault>;

    /// Keeps an outcome, or that it was too large.
    fn write_outcome(&mut self, session: u64, sequence: u64, outcome: Option<&[u8]>) -> Result<(), StoreFault>;

    /// Removes the outcomes of a session up to a sequence.
    fn remove_outcomes(&mut self, session: u64, upto: u64) -> Result<(), StoreFault>;

    /// Returns the indexes of rejected entries in ascending order.
    fn rejections(&mut self) -> Result<Vec<u64>, StoreFault>;

    /// Adds the index of a rejected entry, and keeps only the latest [`REJECTIONS_MAX`](quorate_model::REJECTIONS_MAX).
    fn write_rejection(&mut self, index: u64) -> Result<(), StoreFault>;

    /// Returns every user.
    fn users(&mut self) -> Result<Vec<User>, StoreFault>;

    /// Adds a user, or replaces the one with the same name.
    fn write_user(&mut self, user: &User) -> Result<(), StoreFault>;

    /// Removes a user.
    fn remove_user(&mut self, name: &str) -> Result<(), StoreFault>;

    /// Returns the latest request with a key.
    fn request(&mut self, key: &[u8]) -> Result<Option<RequestRecord>, StoreFault>;

    /// Returns the place of the request with the lowest number.
    fn oldest_request(&mut self) -> Result<Option<RequestPlace>, StoreFault>;

    /// Returns the place of the request with the highest number.
    fn latest_request(&mut self) -> Result<Option<RequestPlace>, StoreFault>;

    /// Adds a request, whose number is new. There may be another one with the same key, whose time is over.
    fn write_request(&mut self, request: &RequestRecord) -> Result<(), StoreFault>;

    /// Removes the request with a number.
    fn remove_request(&mut self, number: u64) -> Result<(), StoreFault>;
}

/// The context in which a command runs: the rest of its entry.
#[derive(Debug)]
pub struct CommandContext<'a> {
    /// The results of the entry's commands before it.
    pub earlier: &'a [CommandResult],
    /// Counts the bytes that the entry's commands return.
    pub returned: &'a mut usize,
}

/// The stores of a state machine: they run commands inside the open transaction.
///
/// A command that does not apply to the data ("the key exists") is a reply, not a failure, and has written nothing.
pub trait Stores {
    /// Returns the scope that a proposal needs: [`Scope::Bare`] if it is a single command that undoes itself, or a
    /// pipeline that fails only as its commands do, each in a scope of its own.
    fn scope_of(&mut self, proposal: &Proposal) -> Scope;

    /// Returns the scope that a command of a pipeline needs: [`Scope::Bare`] if it has written nothing whenever it
    /// fails, but for lack of budget, which undoes the whole pipeline.
    fn scope_of_step(&mut self, command: &Command) -> Scope;

    /// Prepares for an entry, or a command of a dry run, at the time `now`, on a state of this format level.
    fn enter(&mut self, now: u64, level: u32) -> Result<(), StoreFault>;

    /// Returns a fault that a command since [`Stores::enter`] has met, but not returned.
    fn hidden_fault(&mut self) -> Option<StoreFault>;

    /// Called after a proposal was run, and not answered from its session.
    fn leave(&mut self, index: u64, proposal: &Proposal);

    /// Begins the commands of an entry, or of a dry run, which has none yet. Together they may take `budget` steps.
    fn begin_commands(&mut self, entry: Option<u64>, seed: u64, budget: u64) -> Result<(), StoreFault>;

    /// Ends the commands of an entry.
    fn end_commands(&mut self);

    /// Returns the steps that are left of the budget.
    fn budget_left(&self) -> u64;

    /// Continues a dry run after a pause, with this many steps left.
    fn resume_budget(&mut self, steps: u64);

    /// Sets the clock and the randomness for what runs next.
    fn set_stamp(&mut self, stamp: Stamp);

    /// Forgets the clock, after entries or a dry run.
    fn clear_stamp(&mut self);

    /// Runs a read, whose stamp was set, and fails with [`FailureKind::Conflict`](quorate_model::FailureKind) if its
    /// answer is not the one of the check.
    fn read_check(&mut self, check: &ReadCheck) -> Result<(), Trouble>;

    /// Runs a command of a store. Commands of the control family do not come here.
    fn run(&mut self, command: &Command, context: CommandContext<'_>) -> Result<CommandResult, Trouble>;

    /// Runs a command that can't run in the transaction of its entry, if it is one. Running it again, after a fault or
    /// a restart, must change nothing more. The transaction is open before and after.
    fn run_outside(&mut self, command: &Command) -> Option<Result<Outcome, StoreFault>>;

    /// Checks the conditions that hold at the end of a scope, for instance deferred foreign keys.
    fn seal(&mut self) -> Result<(), Trouble>;

    /// Removes or moves at most `max` things whose time has come by `now`. Their time has come whether or not this was
    /// called: what has expired no longer exists, and what is due is visible.
    fn sweep(&mut self, now: u64, max: usize) -> Result<(), StoreFault>;

    /// Returns the earliest time at which there is something to sweep.
    fn next_due(&mut self) -> Result<Option<u64>, StoreFault>;

    /// Returns the topics that were touched since the last call, and forgets them.
    fn take_touched(&mut self) -> Vec<Topic>;

    /// Returns the changes of keys since the last call that took effect and that anybody wants to know of, and forgets
    /// them.
    fn take_changes(&mut self) -> Vec<KeyChange> {
        Vec::new()
    }

    /// Returns whether a command changes nothing, so that a dry run need not record it.
    fn only_reads(&mut self, command: &Command) -> bool;
}

/// A state machine, as apply sees it.
pub trait Machine: Engine + Records + Stores {}

impl<M: Engine + Records + Stores> Machine for M {}
