//! Batches: which entries share a transaction, and when they are applied again.

use std::sync::Arc;
use std::time::Duration;

use quorate_env::Instant;
use quorate_env::mutant::Mutant;
use quorate_model::codec::decode_proposal;
use quorate_model::{
    Command, ControlCommand, DecodeError, Entry, Failure, LogId, Outcome, Payload, Proposal, Reply, Stamp, StoreFault,
};

use super::ahead::Ahead;
use super::{Applier, HASHES_KEPT, Staged};
use crate::{Allowance, Machine};

/// A transaction that has taken this long takes no more entries. Callers and readers wait for its end, and a process
/// that is killed has to repeat all of it.
const TRANSACTION_MAX: Duration = Duration::from_millis(100);

/// Why a transaction was not committed.
#[derive(Debug)]
pub(super) enum Stop {
    /// A command closed it; the failure of that command.
    Killed(Failure),
    /// A fault of the node.
    Fault(StoreFault),
}

impl From<StoreFault> for Stop {
    fn from(fault: StoreFault) -> Self {
        Self::Fault(fault)
    }
}

/// A decoded entry.
pub(super) struct Item {
    log_id: LogId,
    work: Work,
}

enum Work {
    Nothing,
    Membership(bytes::Bytes),
    Proposal(Stamp, Proposal),
    /// A proposal that the cluster decided not to run.
    Rejected(Stamp, Proposal),
}

impl Item {
    /// Decodes an entry for a program that knows format levels up to `known`.
    pub(super) fn decode(entry: &Entry, known: u32) -> Result<Self, StoreFault> {
        let unsupported = |error| StoreFault::Unsupported(format!("entry {}: {error}", entry.log_id));
        let decode = |bytes| match decode_proposal(bytes).map_err(unsupported)? {
            Proposal { level, .. } if level > known => Err(unsupported(DecodeError::Level { level, known })),
            proposal => Ok(proposal),
        };
        let work = match &entry.payload {
            Payload::Blank | Payload::Reject(_) => Work::Nothing,
            Payload::Membership(members) => Work::Membership(members.clone()),
            Payload::Proposal(stamp, bytes) => Work::Proposal(*stamp, decode(bytes)?),
            Payload::Rejected(stamp, bytes) => Work::Rejected(*stamp, decode(bytes)?),
        };
        Ok(Self { log_id: entry.log_id, work })
    }

    /// Whether the entry needs a transaction of its own: VACUUM can't run inside a transaction with other entries, a
    /// verification must see the state right after its entry, and an extension that was enabled must not be undone by
    /// another entry's rollback.
    pub(super) fn is_alone(&self) -> bool {
        matches!(&self.work, Work::Proposal(_, proposal) if proposal.commands.iter().any(Command::is_alone))
    }

    fn is_verification(&self) -> bool {
        let verify = [Command::Control(ControlCommand::Verify)];
        matches!(&self.work, Work::Proposal(_, proposal) if proposal.commands == verify)
    }
}

/// How the entries of a transaction run.
pub(super) enum Doing {
    /// Several entries. None of them may end the transaction.
    Together,
    /// One entry, which may end the transaction.
    Alone,
    /// One entry that is known to end its transaction with this failure.
    Fails(Failure),
}

/// An entry that ended a transaction, and how.
#[derive(Debug)]
pub(super) struct KnownToEnd {
    log_id: LogId,
    failure: Failure,
}

/// An entry that this node could not run, or could not finish ahead of its commit.
#[derive(Debug)]
pub(super) struct Failing {
    log_id: LogId,
    /// The fault, until [`Applier::alone`] has returned it. Afterwards the entry runs when it is handed over again.
    fault: Option<StoreFault>,
    /// How many times it has run and failed.
    times: u32,
}

/// A transaction that was rolled back.
struct Undone {
    stop: Stop,
    /// How many of its entries had completed.
    reached: usize,
}

/// Whether an entry may have caused a fault.
fn may_be_of_an_entry(fault: &StoreFault) -> bool {
    exceeds_a_node(fault) || matches!(fault, StoreFault::Io(_) | StoreFault::Damaged(_))
}

/// Whether an entry took more time or memory than this node allows for one.
fn exceeds_a_node(fault: &StoreFault) -> bool {
    matches!(fault, StoreFault::Slow(_) | StoreFault::Memory(_) | StoreFault::TooMuch(_))
}

impl<M: Machine> Applier<M> {
    pub(super) fn batch(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> Result<(), StoreFault> {
        self.check_order(entries)?;
        self.verification = None;
        let (before, begun) = (outcomes.len(), Instant::now());
        while let Some(left) = entries.get(outcomes.len().saturating_sub(before)..).filter(|left| !left.is_empty()) {
            let is_long = || {
                begun.elapsed() >= TRANSACTION_MAX
                    || left.first().is_some_and(|entry| self.needs_own_transaction(entry))
            };
            if outcomes.len() > before && is_long() {
                break;
            }
            self.segment(left, outcomes)?;
            if self.verification.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Fails unless the indexes of the entries rise and are above the last applied one.
    fn check_order(&self, entries: &[Entry]) -> Result<(), StoreFault> {
        // The first entry of a log has the index 0.
        let mut last = self.row.applied.log_id.map(|id| id.index);
        for entry in entries {
            let index = entry.log_id.index;
            if last.is_some_and(|last| index <= last) {
                return Err(StoreFault::Io(format!("entry {index} came after entry {}", last.unwrap_or_default())));
            }
            last = Some(index);
        }
        Ok(())
    }

    /// Whether an entry is known to end its transaction, to take long, or to fail on this node.
    fn needs_own_transaction(&self, entry: &Entry) -> bool {
        self.known_to_end.as_ref().is_some_and(|known| known.log_id == entry.log_id)
            || self.failing.as_ref().is_some_and(|failing| failing.log_id == entry.log_id)
    }

    /// Applies the first entries, at least one, in one transaction. If one of them ends the transaction, or if one
    /// meets a fault and it must be known which one, applies them in one transaction each.
    fn segment(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> Result<(), StoreFault> {
        let entries = match entries.iter().position(|entry| self.needs_own_transaction(entry)) {
            Some(0) => return self.alone(entries, outcomes),
            Some(count) => entries.get(..count).unwrap_or(entries),
            None => entries,
        };
        let Err(undone) = self.transaction(entries, Doing::Together, outcomes) else { return Ok(()) };
        match undone.stop {
            Stop::Killed(failure) => self.note_ends_transaction(entries.get(undone.reached), failure),
            Stop::Fault(fault) if may_be_of_an_entry(&fault) => self.note_failing(entries.get(undone.reached), fault),
            Stop::Fault(fault) => return Err(fault),
        }
        let mut left = entries.get(..undone.reached.saturating_add(1)).unwrap_or(entries);
        while !left.is_empty() {
            self.alone(left, outcomes)?;
            left = left.get(1..).unwrap_or_default();
        }
        Ok(())
    }

    /// Applies the first entry in a transaction of its own.
    fn alone(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> Result<(), StoreFault> {
        let first = entries.get(..1).unwrap_or_default();
        let log_id = first.first().map(|entry| entry.log_id);
        let failing = self.failing.as_mut().filter(|failing| Some(failing.log_id) == log_id);
        let times = failing.as_ref().map_or(0, |failing| failing.times);
        let runs = |entry: &Entry| matches!(entry.payload, Payload::Proposal(..));
        if let Some(fault) = failing.filter(|_| first.iter().all(runs)).and_then(|failing| failing.fault.take()) {
            // Entries may have run ahead in an open transaction.
            self.roll_back();
            return Err(fault);
        }
        let doing = match self.known_to_end.take_if(|known| Some(known.log_id) == log_id) {
            Some(known) => Doing::Fails(known.failure),
            None => Doing::Alone,
        };
        self.machine.allow(Allowance::Again(times));
        let done = self.transaction(first, doing, outcomes);
        self.machine.allow(Allowance::Usual);
        done.map_err(|undone| match undone.stop {
            Stop::Fault(fault) => {
                self.note_failing(first.first(), fault.clone());
                self.failing.iter_mut().for_each(|failing| failing.fault = None);
                fault
            }
            Stop::Killed(_) => StoreFault::Io("a transaction ended twice".to_owned()),
        })
    }

    /// Remembers that this node had no time or memory for an entry, so that the next attempt returns the fault without
    /// running the entry. A fault of another kind may come from the entries before it, so then the entry has to run
    /// alone.
    pub(super) fn note_failing(&mut self, entry: Option<&Entry>, fault: StoreFault) {
        let Some(log_id) = entry.map(|entry| entry.log_id) else { return };
        if exceeds_a_node(&fault) {
            let before = self.failing.take().filter(|failing| failing.log_id == log_id);
            let times = before.map_or(0, |failing| failing.times).saturating_add(1);
            self.failing = Some(Failing { log_id, fault: Some(fault), times });
        }
    }

    /// Remembers that an entry takes long, so that it runs in a transaction of its own.
    pub(super) fn expect_long(&mut self, entry: Option<&Entry>) {
        let Some(log_id) = entry.map(|entry| entry.log_id) else { return };
        if self.failing.as_ref().is_none_or(|failing| failing.log_id != log_id) {
            self.failing = Some(Failing { log_id, fault: None, times: 0 });
        }
    }

    /// Remembers that an entry ends its transaction, so that it need not run again just to fail in a transaction of its
    /// own. Its outcome depends only on the entries before it, which its id identifies. If one of those is rejected
    /// later, this note is dropped.
    pub(super) fn note_ends_transaction(&mut self, entry: Option<&Entry>, failure: Failure) {
        self.known_to_end = entry.map(|entry| KnownToEnd { log_id: entry.log_id, failure });
    }

    /// Applies the first entries in one transaction.
    fn transaction(&mut self, entries: &[Entry], doing: Doing, outcomes: &mut Vec<Outcome>) -> Result<(), Undone> {
        let before = outcomes.len();
        self.run(entries, &doing, outcomes).map_err(|stop| {
            self.roll_back();
            let reached = outcomes.len().saturating_sub(before);
            outcomes.truncate(before);
            Undone { stop, reached }
        })
    }

    fn run(&mut self, entries: &[Entry], doing: &Doing, outcomes: &mut Vec<Outcome>) -> Result<(), Stop> {
        let begun = Instant::now();
        let (done, is_ended) = self.take_ahead(entries, outcomes)?;
        // Each entry is decoded just before it runs, so that only one decoded entry is in memory.
        for (place, entry) in entries.iter().enumerate().skip(done) {
            let item = match Item::decode(entry, self.level) {
                // The entries before it are committed first.
                Err(_) if place > 0 => break,
                decoded => decoded?,
            };
            if place > 0 && (item.is_alone() || begun.elapsed() >= TRANSACTION_MAX) {
                break;
            }
            outcomes.push(self.item(&item, doing)?);
            if item.is_alone() {
                self.staged.verification = item.is_verification().then_some(item.log_id.index);
                break;
            }
        }
        if !is_ended {
            self.end_batch()?;
        }
        self.check_not_closing()?;
        self.machine.commit()?;
        if Mutant::SessionsOutsideTransaction.is_on() {
            self.sessions.write(&mut self.machine)?;
        }
        self.adopt();
        Ok(())
    }

    /// Writes the sessions, the users and the applied row at the end of a batch. If more entries follow, they are
    /// written again.
    pub(super) fn end_batch(&mut self) -> Result<(), StoreFault> {
        self.staged.row.outcome_hash = self.staged.hash.value();
        if !Mutant::SessionsOutsideTransaction.is_on() {
            self.sessions.write(&mut self.machine)?;
        }
        self.staged.users.write(&mut self.machine)?;
        // What is due by the time of the state must not wait for a leader's clock to catch up with it.
        let now = self.staged.row.now;
        let due = self.machine.next_due()?.into_iter().chain(self.staged.requests.next_due()).min();
        self.staged.row.applied.due = due.map(|due| if due <= now { 0 } else { due });
        self.machine.write_applied_row(&self.staged.row)
    }

    pub(super) fn item(&mut self, item: &Item, doing: &Doing) -> Result<Outcome, Stop> {
        let index = item.log_id.index;
        let outcome = match &item.work {
            Work::Nothing => None,
            Work::Membership(members) => {
                self.staged.row.applied.membership = Some((item.log_id, members.clone()));
                None
            }
            Work::Proposal(stamp, proposal) => Some(self.proposal(index, *stamp, proposal, doing)?),
            Work::Rejected(stamp, proposal) => Some(self.rejection(index, *stamp, proposal)?),
        };
        self.staged.row.applied.log_id = Some(item.log_id);
        self.staged.hash.update(index, outcome.as_ref());
        self.staged.hashes.push((index, self.staged.hash.value()));
        Ok(outcome.unwrap_or_else(|| Ok(Reply::default())))
    }

    fn adopt(&mut self) {
        self.sessions.adopt();
        self.users = Arc::clone(self.staged.users.present());
        self.requests = self.staged.requests;
        self.rejected.adopt(&std::mem::take(&mut self.staged.rejected));
        self.row.clone_from(&self.staged.row);
        self.verification = self.staged.verification.take();
        self.touched.append(std::mem::take(&mut self.staged.touched));
        self.hashes.extend(self.staged.hashes.drain(..));
        let surplus = self.hashes.len().saturating_sub(HASHES_KEPT);
        self.hashes.drain(..surplus);
    }

    pub(super) fn roll_back(&mut self) {
        self.machine.roll_back();
        self.ahead = Ahead::default();
        self.dry_run = None;
        self.sessions.undo();
        self.staged = Staged::new(&self.row, &self.users, self.requests);
    }
}
