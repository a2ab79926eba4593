//! Work ahead: the leader runs entries while they are still on their way to the followers.
//!
//! Their transaction stays open and unseen. When the same entries are to be applied, it continues and commits. When
//! other entries are to be applied, or other work needs the connection, it is rolled back without a trace.
//!
//! Invariants:
//! - The open transaction holds exactly the entries in [`Ahead`], which follow the applied entries directly.
//! - Entries are identified by their ids: Raft guarantees that two entries with the same id are the same entry.

use std::time::Duration;

use quorate_env::Instant;
use quorate_env::mutant::Mutant;
use quorate_model::{Entry, LogId, Outcome, Payload, StoreFault};

use super::Applier;
use super::batch::{Doing, Item, Stop};
use crate::{Allowance, Machine};

/// The time limit for running ahead. Work that takes longer runs when it is applied, and the writer stays free until
/// then.
const AHEAD_MAX: Duration = Duration::from_millis(100);

/// Entries that ran ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    ids: Vec<LogId>,
    outcomes: Vec<Outcome>,
    /// Whether the end of the batch (sessions and applied row) was already written.
    is_ended: bool,
}

impl<M: Machine> Applier<M> {
    /// Runs entries that will probably be applied next, and drops others that ran ahead. Entries that do not follow the
    /// applied ones are ignored. Errors are ignored too; they recur when the entries are applied.
    pub fn prefetch(&mut self, entries: &[Entry]) {
        self.give_way();
        let next = self.row.applied.log_id.map_or(0, |id| id.index.saturating_add(1));
        if entries.first().is_some_and(|entry| entry.log_id.index == next) {
            self.machine.allow(Allowance::Ahead(AHEAD_MAX));
            let done = M::with_stack(|| self.run_ahead(entries)).map_err(Stop::Fault).flatten();
            self.machine.allow(Allowance::Usual);
            if let Err(stop) = done {
                let entry = entries.get(self.ahead.ids.len());
                match stop {
                    Stop::Killed(failure) => self.note_ends_transaction(entry, failure),
                    Stop::Fault(fault @ (StoreFault::Memory(_) | StoreFault::TooMuch(_))) => {
                        self.note_failing(entry, fault);
                    }
                    // The limit here is shorter than when the entry is applied.
                    Stop::Fault(StoreFault::Slow(_)) => self.expect_long(entry),
                    Stop::Fault(_) => {}
                }
                self.roll_back();
            }
            self.machine.clear_stamp();
        }
    }

    /// Rolls back work ahead or a dry run.
    pub fn give_way(&mut self) {
        if !self.ahead.ids.is_empty() || self.dry_run.is_some() {
            self.roll_back();
        }
    }

    fn run_ahead(&mut self, entries: &[Entry]) -> Result<(), Stop> {
        let begun = Instant::now();
        for entry in entries.iter().take_while(|_| begun.elapsed() < AHEAD_MAX) {
            let item = Item::decode(entry, self.level)?;
            if item.is_alone() {
                break;
            }
            if self.ahead.ids.is_empty() {
                self.machine.begin()?;
            }
            let outcome = self.item(&item, &Doing::Together)?;
            self.ahead.ids.push(entry.log_id);
            self.ahead.outcomes.push(outcome);
        }
        if !self.ahead.ids.is_empty() {
            self.end_batch()?;
            self.ahead.is_ended = true;
        }
        Ok(())
    }

    /// Begins a transaction for these entries, or continues the open one if it holds the first of them. Adds the
    /// outcomes of the entries that it already holds. Returns how many these are, and whether only COMMIT is missing.
    pub(super) fn take_ahead(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> Result<(usize, bool), Stop> {
        let ids = &self.ahead.ids;
        let by_index = Mutant::AheadByIndex.is_on();
        let is_id = |id: &LogId, entry: &Entry| *id == entry.log_id || (by_index && id.index == entry.log_id.index);
        // An entry that was rejected after it ran ahead must not take effect.
        let is_it = |id: &LogId, entry: &Entry| is_id(id, entry) && !matches!(entry.payload, Payload::Rejected(..));
        let is_same = ids.len() <= entries.len() && ids.iter().zip(entries).all(|(id, entry)| is_it(id, entry));
        if !is_same || self.dry_run.is_some() {
            self.roll_back();
        }
        if self.ahead.ids.is_empty() {
            self.machine.begin()?;
        }
        let ahead = std::mem::take(&mut self.ahead);
        outcomes.extend(ahead.outcomes);
        Ok((ahead.ids.len(), ahead.is_ended && ahead.ids.len() == entries.len()))
    }
}
