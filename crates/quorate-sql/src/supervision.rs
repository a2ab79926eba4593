//! The state that the writer's running statement shares with other threads.
//!
//! SQLite checks between two steps of its virtual machine whether it should stop. Within a step that takes minutes it
//! does not check, so only the end of the process stops the statement. Consensus detects such a step through this
//! module, and ends the process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quorate_env::Instant;
use quorate_model::RunningStatement;

/// The deadline while no statement runs.
const NEVER: u64 = u64::MAX;

/// The writer's thread records here the statement that it runs. Other threads read that, and signal here that the store
/// is being closed.
#[derive(Debug)]
pub(crate) struct Supervision {
    closing: AtomicBool,
    /// The index of the running statement's entry; 0 if it belongs to none.
    entry: AtomicU64,
    /// The deadline of the running statement, in nanoseconds after `base`, or [`NEVER`].
    due: AtomicU64,
    base: Instant,
}

impl Default for Supervision {
    fn default() -> Self {
        let (closing, entry) = Default::default();
        Self { closing, entry, due: AtomicU64::new(NEVER), base: Instant::now() }
    }
}

impl Supervision {
    /// Sets whether the store is being closed: then the running statement is interrupted, and has no outcome.
    pub(crate) fn set_closing(&self, closing: bool) {
        self.closing.store(closing, Ordering::Release);
    }

    /// Returns whether the store is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Records the start of a statement, with its entry if it belongs to one. The statement is overdue `time_max` after
    /// `from`.
    pub(crate) fn begins(&self, entry: Option<u64>, from: Instant, time_max: Duration) {
        let due = from.saturating_duration_since(self.base).saturating_add(time_max).as_nanos();
        self.entry.store(entry.unwrap_or_default(), Ordering::Relaxed);
        self.due.store(u64::try_from(due).unwrap_or(NEVER), Ordering::Release);
    }

    /// Records the end of the statement.
    pub(crate) fn ends(&self) {
        self.due.store(NEVER, Ordering::Release);
    }

    /// Returns the statement that runs at the moment.
    pub(crate) fn running(&self) -> Option<RunningStatement> {
        let due = Some(self.due.load(Ordering::Acquire)).filter(|due| *due != NEVER)?;
        let entry = Some(self.entry.load(Ordering::Relaxed)).filter(|index| *index > 0);
        let overdue = self.base.elapsed().saturating_sub(Duration::from_nanos(due));
        Some(RunningStatement { entry, overdue })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_overdue_only_past_its_deadline() {
        let (supervision, before) = (Supervision::default(), Instant::now());
        assert_eq!(supervision.running(), None, "nothing runs");
        supervision.begins(Some(7), before, Duration::from_secs(3600));
        assert_eq!(supervision.running(), Some(RunningStatement { entry: Some(7), overdue: Duration::ZERO }));
        supervision.begins(None, before, Duration::ZERO);
        let running = supervision.running().unwrap();
        assert!(running.entry.is_none() && running.overdue <= before.elapsed() && !running.overdue.is_zero());
        supervision.ends();
        assert_eq!(supervision.running(), None, "it has ended");
    }
}
