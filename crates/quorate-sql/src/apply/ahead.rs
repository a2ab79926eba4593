//! Work ahead: a leader's entries run while they are still on their way to the followers.
//!
//! Their transaction stays open and unseen. When the same entries are to be applied it goes on and commits; when others
//! are, or somebody else needs the connection, it is rolled back, and nothing had happened.
//!
//! Invariants:
//! - The open transaction holds exactly the entries in [`Ahead`], which follow directly what is applied.
//! - Entries are told apart by their ids: two with the same id are the same entry, as Raft promises.

use std::time::Duration;

use quorate_env::Instant;
use quorate_env::mutant::Mutant;
use quorate_model::{Entry, LogId, Outcome, Payload, StoreFault};

use super::Applier;
use super::batch::{Doing, Item, Stop};
use crate::stack;

/// How long entries may run ahead: what takes longer runs when it is applied, and the writer is free meanwhile.
const AHEAD_MAX: Duration = Duration::from_millis(100);

/// Entries that ran ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    ids: Vec<LogId>,
    outcomes: Vec<Outcome>,
    /// Whether what ends a batch was written behind them.
    is_ended: bool,
}

impl Applier {
    /// Runs entries that will probably be applied next, in place of others that ran ahead. Those that do not follow
    /// what is applied are left out, and so is trouble of any kind: it comes again when they are applied.
    pub fn foresee(&mut self, entries: &[Entry]) {
        self.give_way();
        let next = self.row.applied.log_id.map_or(0, |id| id.index.saturating_add(1));
        if entries.first().is_some_and(|entry| entry.log_id.index == next) {
            self.determinism.budget.allow(Some(AHEAD_MAX));
            let done = stack::for_write(|| self.run_ahead(entries));
            self.determinism.budget.allow(None);
            if let Err(stop) = done {
                let entry = entries.get(self.ahead.ids.len());
                match stop {
                    Stop::Killed(failure) => self.doom(entry, failure),
                    Stop::Fault(fault @ (StoreFault::Memory(_) | StoreFault::TooMuch(_))) => self.suspect(entry, fault),
                    // Ahead, an entry has less time than when it is applied.
                    Stop::Fault(StoreFault::Slow(_)) => self.expect_long(entry),
                    Stop::Fault(_) => {}
                }
                self.roll_back();
            }
            crate::vfs::clock::set(None);
        }
    }

    /// Rolls back what ran ahead or runs dry.
    pub fn give_way(&mut self) {
        if !self.ahead.ids.is_empty() || self.dry_run.is_some() {
            self.roll_back();
        }
    }

    fn run_ahead(&mut self, entries: &[Entry]) -> Result<(), Stop> {
        let begun = Instant::now();
        for entry in entries.iter().take_while(|_| begun.elapsed() < AHEAD_MAX) {
            let item = Item::decode(entry)?;
            if item.is_alone() {
                break;
            }
            if self.ahead.ids.is_empty() {
                self.begin()?;
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

    /// Begins the transaction of these entries, or goes on with the open one if it holds the first of them. Returns how
    /// many it holds and whether it lacks nothing but its commit, and hands over their outcomes.
    pub(super) fn take_ahead(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> Result<(usize, bool), Stop> {
        let ids = &self.ahead.ids;
        let by_index = Mutant::AheadByIndex.is_on();
        let is_id = |id: &LogId, entry: &Entry| *id == entry.log_id || (by_index && id.index == entry.log_id.index);
        // An entry that is rejected by now must not take effect although it ran ahead.
        let is_it = |id: &LogId, entry: &Entry| is_id(id, entry) && !matches!(entry.payload, Payload::Rejected(..));
        let is_same = ids.len() <= entries.len() && ids.iter().zip(entries).all(|(id, entry)| is_it(id, entry));
        if !is_same || self.dry_run.is_some() {
            self.roll_back();
        }
        if self.ahead.ids.is_empty() {
            self.begin()?;
        }
        let ahead = std::mem::take(&mut self.ahead);
        outcomes.extend(ahead.outcomes);
        Ok((ahead.ids.len(), ahead.is_ended && ahead.ids.len() == entries.len()))
    }
}
