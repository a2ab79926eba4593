//! Batches: which entries share a transaction, and when they are done again.

use std::time::Duration;

use quorate_env::Instant;
use quorate_env::mutant::Mutant;
use quorate_model::codec::decode_proposal;
use quorate_model::{
    Command, ControlCommand, Entry, Failure, LogId, Outcome, Payload, Proposal, Reply, Stamp, StoreFault,
};

use super::ahead::Ahead;
use super::{Applier, HASHES_KEPT, Staged};
use crate::applied_row;
use crate::authorizer::Effects;
use crate::classify;
use crate::outcome_hash::OutcomeHash;
use crate::usage::{self, NoMemory};

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";

/// A transaction that has taken so long takes in no more entries. Callers and readers wait for its end, and a process
/// that is killed has to do all of it again.
const TRANSACTION_MAX: Duration = Duration::from_millis(100);

/// Why a transaction came to nothing.
#[derive(Debug)]
pub(super) enum Stop {
    /// A statement ended it, and failed so.
    Killed(Failure),
    /// The node's trouble.
    Fault(StoreFault),
}

impl From<StoreFault> for Stop {
    fn from(fault: StoreFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<NoMemory> for Stop {
    fn from(none: NoMemory) -> Self {
        Self::Fault(none.into())
    }
}

/// An entry, decoded.
pub(super) struct Item {
    log_id: LogId,
    work: Work,
}

enum Work {
    Nothing,
    Membership(bytes::Bytes),
    Proposal(Stamp, Proposal),
    /// A proposal that must not run.
    Rejected(Stamp, Proposal),
}

impl Item {
    pub(super) fn decode(entry: &Entry) -> Result<Self, StoreFault> {
        let unsupported = |error| StoreFault::Unsupported(format!("entry {}: {error}", entry.log_id));
        let work = match &entry.payload {
            Payload::Blank | Payload::Reject(_) => Work::Nothing,
            Payload::Membership(members) => Work::Membership(members.clone()),
            Payload::Proposal(stamp, bytes) => Work::Proposal(*stamp, decode_proposal(bytes).map_err(unsupported)?),
            Payload::Rejected(stamp, bytes) => Work::Rejected(*stamp, decode_proposal(bytes).map_err(unsupported)?),
        };
        Ok(Self { log_id: entry.log_id, work })
    }

    /// Whether it has a transaction of its own: VACUUM can't run inside one with others, behind a verification the
    /// state must be to be seen, and what an extension makes possible must not be undone alone.
    pub(super) fn is_alone(&self) -> bool {
        matches!(&self.work, Work::Proposal(_, proposal) if proposal.commands.iter().any(Command::is_alone))
    }

    fn is_verification(&self) -> bool {
        let verify = [Command::Control(ControlCommand::Verify)];
        matches!(&self.work, Work::Proposal(_, proposal) if proposal.commands == verify)
    }
}

/// How the entries of a transaction are done.
pub(super) enum Doing {
    /// None of them may end it.
    Together,
    /// It holds one entry, which may.
    Alone,
    /// It holds one entry, of which it is known that it fails.
    Fails(Failure),
}

/// An entry that ended a transaction.
#[derive(Debug)]
pub(super) struct Doomed {
    log_id: LogId,
    failure: Failure,
}

/// An entry that this node could not run, or could not finish ahead of its commit.
#[derive(Debug)]
pub(super) struct Failing {
    log_id: LogId,
    /// Why it could not, until [`Applier::alone`] has returned it. From then on the entry runs when it is handed over
    /// again.
    fault: Option<StoreFault>,
    /// How often it has run and failed.
    times: u32,
}

/// A transaction that came to nothing.
struct Undone {
    stop: Stop,
    /// How many of its entries had run to their end.
    reached: usize,
}

/// Whether a fault may be the doing of an entry.
fn is_of_an_entry(fault: &StoreFault) -> bool {
    exceeds_a_node(fault) || matches!(fault, StoreFault::Io(_) | StoreFault::Damaged(_))
}

/// Whether an entry took more time or memory than this node has for one.
fn exceeds_a_node(fault: &StoreFault) -> bool {
    matches!(fault, StoreFault::Slow(_) | StoreFault::Memory(_) | StoreFault::TooMuch(_))
}

impl Applier {
    pub(super) fn batch(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> Result<(), StoreFault> {
        self.check_order(entries)?;
        self.verification = None;
        let (before, begun) = (outcomes.len(), Instant::now());
        while let Some(left) = entries.get(outcomes.len().saturating_sub(before)..).filter(|left| !left.is_empty()) {
            let is_long =
                || begun.elapsed() >= TRANSACTION_MAX || left.first().is_some_and(|entry| self.is_known(entry));
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

    /// Fails if the entries do not follow what is applied, and each other.
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

    /// Whether it is known that an entry ends its transaction, takes long, or could not be run.
    fn is_known(&self, entry: &Entry) -> bool {
        self.doomed.as_ref().is_some_and(|doomed| doomed.log_id == entry.log_id)
            || self.failing.as_ref().is_some_and(|failing| failing.log_id == entry.log_id)
    }

    /// Applies the first entries, at least one, in one transaction, or else in one each: where one of them ends the
    /// transaction, and where one meets a fault, so that it is known which one.
    fn segment(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> Result<(), StoreFault> {
        let entries = match entries.iter().position(|entry| self.is_known(entry)) {
            Some(0) => return self.alone(entries, outcomes),
            Some(count) => entries.get(..count).unwrap_or(entries),
            None => entries,
        };
        let Err(undone) = self.transaction(entries, Doing::Together, outcomes) else { return Ok(()) };
        match undone.stop {
            Stop::Killed(failure) => self.doom(entries.get(undone.reached), failure),
            Stop::Fault(fault) if is_of_an_entry(&fault) => self.suspect(entries.get(undone.reached), fault),
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
        let doing = match self.doomed.take_if(|doomed| Some(doomed.log_id) == log_id) {
            Some(doomed) => Doing::Fails(doomed.failure),
            None => Doing::Alone,
        };
        self.determinism.budget.be_patient(times);
        usage::be_generous(times > 0);
        let done = self.transaction(first, doing, outcomes);
        self.determinism.budget.be_patient(0);
        usage::be_generous(false);
        done.map_err(|undone| match undone.stop {
            Stop::Fault(fault) => {
                self.suspect(first.first(), fault.clone());
                self.failing.iter_mut().for_each(|failing| failing.fault = None);
                fault
            }
            Stop::Killed(_) => StoreFault::Io("a transaction ended twice".to_owned()),
        })
    }

    /// Remembers that this node had no time or memory for an entry, so that the fault is returned without another run.
    /// A fault of another kind may come from the entries that ran before it, so that entry has to run alone.
    pub(super) fn suspect(&mut self, entry: Option<&Entry>, fault: StoreFault) {
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

    /// Remembers that an entry ends its transaction, so that it need not run once more to fail in one of its own: what
    /// comes of it depends on the entries before it alone, which the id stands for. If one of those is rejected later,
    /// this is forgotten.
    pub(super) fn doom(&mut self, entry: Option<&Entry>, failure: Failure) {
        self.doomed = entry.map(|entry| Doomed { log_id: entry.log_id, failure });
    }

    /// One transaction, of the first entries.
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
        // Each is decoded when its turn comes: what one lets go of, the next one takes.
        for (place, entry) in entries.iter().enumerate().skip(done) {
            let item = Item::decode(entry)?;
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
        self.own(COMMIT)?;
        if Mutant::SessionsOutsideTransaction.is_on() {
            self.sessions.write(&mut self.db).map_err(|error| classify::own(&error))?;
        }
        self.adopt();
        Ok(())
    }

    /// Writes what stands at the end of a batch: the sessions and the applied row. When more entries follow it is
    /// written again.
    pub(super) fn end_batch(&mut self) -> Result<(), StoreFault> {
        self.staged.row.outcome_hash = self.staged.hash.value();
        let own = |error: rusqlite::Error| classify::own(&error);
        if !Mutant::SessionsOutsideTransaction.is_on() {
            self.sessions.write(&mut self.db).map_err(own)?;
        }
        let (db, row) = (&mut self.db, &self.staged.row);
        row.write(|values| db.execute(applied_row::WRITE, values)).map_err(own)?;
        Ok(())
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

    /// Begins a transaction, with caches that know of all rollbacks before.
    pub(super) fn begin(&mut self) -> Result<(), StoreFault> {
        self.db.execute(BEGIN, []).map_err(|error| classify::own(&error))?;
        self.settle(self.staged.unsettled)?;
        self.staged.unsettled = Effects::default();
        Ok(())
    }

    fn adopt(&mut self) {
        self.sessions.adopt();
        self.rejected.adopt(&std::mem::take(&mut self.staged.rejected));
        self.row.clone_from(&self.staged.row);
        self.staged.effects = Effects::default();
        self.verification = self.staged.verification.take();
        self.hashes.extend(self.staged.hashes.drain(..));
        let surplus = self.hashes.len().saturating_sub(HASHES_KEPT);
        self.hashes.drain(..surplus);
    }

    pub(super) fn roll_back(&mut self) {
        if !self.db.connection().is_autocommit() {
            // Nothing can be done about a failure; SQLite rolls back when the connection is closed.
            drop(self.db.execute(ROLLBACK, []));
        }
        self.ahead = Ahead::default();
        self.dry_run = None;
        self.sessions.undo();
        let mut unsettled = self.staged.unsettled;
        unsettled.add(self.staged.effects);
        let hash = OutcomeHash::new(self.row.outcome_hash);
        self.staged = Staged { row: self.row.clone(), hash, unsettled, ..Staged::default() };
    }
}
