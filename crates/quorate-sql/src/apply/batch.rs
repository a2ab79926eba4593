//! Batches: which entries share a transaction, and when they are done again.

use quorate_model::codec::decode_proposal;
use quorate_model::{Command, Entry, LogId, Outcome, Payload, Proposal, Reply, Stamp, StoreFault};

use super::{Applier, HASHES_KEPT, Staged};
use crate::applied_row;
use crate::authorizer::Effects;
use crate::classify;
use crate::outcome_hash::OutcomeHash;

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";

/// Why a transaction came to nothing.
#[derive(Debug)]
pub(super) enum Stop {
    /// A statement ended it.
    Killed,
    /// The node's trouble.
    Fault(StoreFault),
}

impl From<StoreFault> for Stop {
    fn from(fault: StoreFault) -> Self {
        Self::Fault(fault)
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
}

impl Item {
    fn decode(entry: &Entry) -> Result<Self, StoreFault> {
        let work = match &entry.payload {
            Payload::Blank => Work::Nothing,
            Payload::Membership(members) => Work::Membership(members.clone()),
            Payload::Proposal(stamp, bytes) => {
                let unsupported = |error| StoreFault::Unsupported(format!("entry {}: {error}", entry.log_id));
                Work::Proposal(*stamp, decode_proposal(bytes).map_err(unsupported)?)
            }
        };
        Ok(Self { log_id: entry.log_id, work })
    }

    /// Whether it has a transaction of its own: VACUUM can't run inside one with others, and behind a verification the
    /// state must be to be seen.
    fn is_alone(&self) -> bool {
        matches!(&self.work, Work::Proposal(_, proposal) if proposal.commands.iter().any(Command::is_alone))
    }

    fn is_verification(&self) -> bool {
        matches!(&self.work, Work::Proposal(_, proposal) if proposal.commands == [Command::Verify])
    }
}

impl Applier {
    pub(super) fn batch(&mut self, entries: &[Entry]) -> Result<Vec<Outcome>, StoreFault> {
        let mut outcomes = Vec::with_capacity(entries.len());
        let mut items = Vec::with_capacity(entries.len());
        // The first entry of a log has the index 0.
        let mut last = self.row.applied.log_id.map(|id| id.index);
        for entry in entries {
            let index = entry.log_id.index;
            if last.is_none_or(|last| index > last) {
                items.push(Item::decode(entry)?);
                last = Some(index);
                continue;
            }
            match self.answered.iter().find(|(answered, _)| *answered == index && items.is_empty()) {
                Some((_, outcome)) => outcomes.push(outcome.clone()),
                None => {
                    return Err(StoreFault::Io(format!("entry {index} came after entry {}", last.unwrap_or_default())));
                }
            }
        }
        let answered_before = outcomes.len();
        for items in items.chunk_by(|a, b| !a.is_alone() && !b.is_alone()) {
            if let Err(fault) = self.segment(items, &mut outcomes) {
                let indexes = entries.iter().map(|entry| entry.log_id.index);
                self.answered.extend(indexes.zip(outcomes).skip(answered_before));
                return Err(fault);
            }
            if let Some(item) = items.last().filter(|item| item.is_verification()) {
                self.verification = Some(item.log_id.index);
                break;
            }
        }
        self.answered.clear();
        Ok(outcomes)
    }

    /// Applies entries in one transaction, or else in one each.
    fn segment(&mut self, items: &[Item], outcomes: &mut Vec<Outcome>) -> Result<(), StoreFault> {
        match self.transaction(items, false) {
            Ok(all) => {
                outcomes.extend(all);
                Ok(())
            }
            Err(Stop::Fault(fault)) => Err(fault),
            Err(Stop::Killed) => items.iter().try_for_each(|item| {
                match self.transaction(std::slice::from_ref(item), true) {
                    Ok(one) => outcomes.extend(one),
                    Err(Stop::Fault(fault)) => return Err(fault),
                    Err(Stop::Killed) => return Err(StoreFault::Io("a transaction ended twice".to_owned())),
                }
                Ok(())
            }),
        }
    }

    /// One transaction. `alone` says that a statement may end it: it holds one entry.
    fn transaction(&mut self, items: &[Item], alone: bool) -> Result<Vec<Outcome>, Stop> {
        let done = self.run(items, alone);
        if done.is_err() {
            self.roll_back();
        }
        done
    }

    fn run(&mut self, items: &[Item], alone: bool) -> Result<Vec<Outcome>, Stop> {
        self.begin()?;
        let outcomes = items.iter().map(|item| self.item(item, alone)).collect::<Result<Vec<_>, _>>()?;
        self.staged.row.outcome_hash = self.staged.hash.value();
        let own = |error: rusqlite::Error| classify::own(&error);
        self.sessions.write(&mut self.db).map_err(own)?;
        let (db, row) = (&mut self.db, &self.staged.row);
        row.write(|values| db.execute(applied_row::WRITE, values)).map_err(own)?;
        self.db.execute(COMMIT, []).map_err(own)?;
        self.adopt();
        Ok(outcomes)
    }

    fn item(&mut self, item: &Item, alone: bool) -> Result<Outcome, Stop> {
        let index = item.log_id.index;
        let outcome = match &item.work {
            Work::Nothing => None,
            Work::Membership(members) => {
                self.staged.row.applied.membership = Some((item.log_id, members.clone()));
                None
            }
            Work::Proposal(stamp, proposal) => Some(self.proposal(index, *stamp, proposal, alone)?),
        };
        self.staged.row.applied.log_id = Some(item.log_id);
        self.staged.hash.update(index, outcome.as_ref());
        self.staged.hashes.push((index, self.staged.hash.value()));
        Ok(outcome.unwrap_or_else(|| Ok(Reply::default())))
    }

    /// Begins a transaction, with caches that know of all rollbacks before.
    pub(super) fn begin(&mut self) -> Result<(), StoreFault> {
        self.db.execute(BEGIN, []).map_err(|error| classify::own(&error))?;
        let unsettled = std::mem::take(&mut self.staged.unsettled);
        self.settle(unsettled)
    }

    fn adopt(&mut self) {
        self.sessions.adopt();
        self.row.clone_from(&self.staged.row);
        self.staged.effects = Effects::default();
        self.hashes.extend(self.staged.hashes.drain(..));
        let surplus = self.hashes.len().saturating_sub(HASHES_KEPT);
        self.hashes.drain(..surplus);
    }

    fn roll_back(&mut self) {
        if !self.db.connection().is_autocommit() {
            // Nothing can be done about a failure; SQLite rolls back when the connection is closed.
            drop(self.db.execute(ROLLBACK, []));
        }
        self.sessions.undo();
        let mut unsettled = self.staged.unsettled;
        unsettled.add(self.staged.effects);
        let hash = OutcomeHash::new(self.row.outcome_hash);
        self.staged = Staged { row: self.row.clone(), hash, unsettled, ..Staged::default() };
    }
}
