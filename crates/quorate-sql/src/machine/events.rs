//! The store of events: its command, and the events that statements add by `notify()`.
//!
//! # Invariants
//!
//! - The events of a statement are added once it has succeeded, before the next command runs, in the same scope. So
//!   what undoes the statement undoes them.
//! - A command that fails has written nothing.
//! - What adds events leaves `last_insert_rowid()` as it is.

use std::sync::Arc;

use quorate_apply::Trouble;
use quorate_env::mutant::Mutant;
use quorate_model::events::{EVENTS_LEVEL, EventId, EventsCommand, EventsReply};
use quorate_model::{Failure, FailureKind, StoreFault};

use super::SqlMachine;
use super::statement::Ended;
use crate::events::function::{self, Notices, too_many};
use crate::events::{EventTables, Notice, Retention, room};
use crate::ffi::hooks;
use crate::functions::Meter;
use crate::{classify, keys};

/// The steps that an event takes from the budget of its entry, and the bytes for which it takes one more.
const EVENT_STEPS: u64 = 300;
const BYTES_PER_STEP: u64 = 64;

const APPLIED_INDEX: &str = "SELECT \"index\" FROM _quorate_applied";

/// What the machine knows of the store of events between two commands.
#[derive(Debug, Default)]
pub(super) struct EventsState {
    pub(super) notices: Arc<Notices>,
    /// Whether SQL has the function on the write connection.
    has_function: bool,
    /// Whether events were added since this was last asked.
    pub(super) touched: bool,
    pub(super) retention: Retention,
}

impl From<keys::Ended> for Ended {
    fn from(ended: keys::Ended) -> Self {
        match ended.into() {
            Trouble::Failure(failure) => Self::Failed(failure),
            Trouble::Fault(fault) => Self::Fault(fault),
        }
    }
}

impl SqlMachine {
    /// Makes the function known to SQL if the state is of a level that has it, and otherwise unknown.
    pub(super) fn set_notify(&mut self, level: u32) -> Result<(), StoreFault> {
        let has_function = level >= EVENTS_LEVEL;
        if has_function != self.events.has_function {
            let conn = self.db.connection();
            let meter: Arc<dyn Meter> = Arc::clone(&self.determinism.budget) as Arc<dyn Meter>;
            let changed = if has_function {
                function::install(conn, &self.events.notices, &meter)
            } else {
                function::remove(conn)
            };
            changed.map_err(|error| classify::own(&error))?;
            self.events.has_function = has_function;
        }
        Ok(())
    }

    /// Runs a command.
    pub(super) fn notify(&mut self, command: &EventsCommand) -> Result<EventsReply, Trouble> {
        let EventsCommand::Notify { channel, payload } = command;
        self.events.notices.count(channel, payload)?;
        let steps = EVENT_STEPS.saturating_add(payload.len() as u64 / BYTES_PER_STEP);
        let Some(left) = self.determinism.budget.left().checked_sub(steps) else {
            let text = "the entry needs more steps than its budget has; do less at once, or ask for more (with_budget)";
            return Err(Failure::new(FailureKind::Budget, text).into());
        };
        self.determinism.budget.set_left(left);
        let added = self.add_events(&[(channel.clone(), payload.clone())]);
        added.map(EventsReply::Notified).map_err(|ended| match ended {
            Ended::Failed(failure) => failure.into(),
            Ended::Fault(fault) => fault.into(),
            Ended::Sqlite(error) => classify::own(&error).into(),
        })
    }

    /// Ends a statement of a user, which is done: adds its events, or forgets them if it has failed.
    pub(super) fn settle_events<T>(&mut self, done: Result<T, Ended>) -> Result<T, Ended> {
        let done = match (done, self.db.connection().is_autocommit()) {
            (Ok(value), false) => {
                let mut notices = self.events.notices.take();
                if notices.is_empty() {
                    return Ok(value);
                }
                if Mutant::EventsReversed.is_on() {
                    notices.reverse();
                }
                if Mutant::FirstEventOnly.is_on() {
                    notices.truncate(1);
                }
                self.add_events(&notices).map(|_| value)
            }
            (done, _) => done,
        };
        done.map_err(|ended| match (self.events.notices.forget(), ended) {
            (Some(failure), Ended::Sqlite(_)) => Ended::Failed(failure),
            (_, ended) => ended,
        })
    }

    /// Adds at least one event; returns the number of the first.
    fn add_events(&mut self, notices: &[Notice]) -> Result<EventId, Ended> {
        let last_rowid = self.db.connection().last_insert_rowid();
        let index = self.entry_index()?;
        let mut tables = EventTables::of(&mut self.db);
        let Some(first) = tables.next(index)?.filter(|first| notices.len() <= room(*first)) else {
            return Err(too_many().into());
        };
        let added = tables.add(first, notices, self.events.retention);
        hooks::set_last_insert_rowid(self.db.connection(), last_rowid);
        added?;
        self.events.touched = true;
        Ok(first)
    }

    /// Returns the index of the entry that runs. What runs dry becomes the next entry, or it has no effect.
    fn entry_index(&mut self) -> Result<u64, Ended> {
        if self.index > 0 {
            return Ok(self.index);
        }
        let applied = self.db.first_row(APPLIED_INDEX, [], |row| row.get::<_, Option<i64>>(0))?;
        Ok(applied.flatten().map_or(0, i64::cast_unsigned).saturating_add(1))
    }
}
