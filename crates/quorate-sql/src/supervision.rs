//! What other threads say to the statement that the writer runs, and see of it.
//!
//! SQLite asks between two steps of its virtual machine whether it may go on. In a step that takes minutes it does not
//! ask, and only the end of the process stops it. Consensus looks here whether there is such a step, and ends the node.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quorate_env::Instant;
use quorate_model::RunningStatement;

/// Nothing runs.
const NEVER: u64 = u64::MAX;

/// The writer's thread writes here what it runs; other threads read it, and say when the store is being closed.
#[derive(Debug)]
pub(crate) struct Supervision {
    closing: AtomicBool,
    /// The entry of the running statement; 0 where it is of none.
    entry: AtomicU64,
    /// When the time of the running statement ends, in nanoseconds after `base`, or [`NEVER`].
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
    /// Says whether the store is being closed: whatever runs ends then, and has no outcome.
    pub(crate) fn set_closing(&self, closing: bool) {
        self.closing.store(closing, Ordering::Release);
    }

    /// Whether the store is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// A statement begins, of this entry if it is of one. It may take so long from that moment on.
    pub(crate) fn begins(&self, entry: Option<u64>, from: Instant, time_max: Duration) {
        let due = from.saturating_duration_since(self.base).saturating_add(time_max).as_nanos();
        self.entry.store(entry.unwrap_or_default(), Ordering::Relaxed);
        self.due.store(u64::try_from(due).unwrap_or(NEVER), Ordering::Release);
    }

    /// It ends.
    pub(crate) fn ends(&self) {
        self.due.store(NEVER, Ordering::Release);
    }

    /// The statement that runs at the moment.
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
    fn a_statement_is_overdue_from_the_end_of_its_time_until_its_own() {
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
