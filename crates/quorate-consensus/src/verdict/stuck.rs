//! Statements that do not end although they were interrupted.
//!
//! Between two steps of a statement SQLite asks whether the statement may continue. During a step that takes minutes it
//! does not ask, and the statement can't be stopped. So the node records the entry and ends. After its restart it stops
//! before that entry, as after a crash.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate_env::mutant::Mutant;
use quorate_env::sleep;
use quorate_model::{RunningStatement, StoreFault};

use super::Verdicts;

/// How often the store is asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a statement may continue to run after its time is over.
const OVERDUE_MAX: Duration = Duration::from_secs(10);

impl Verdicts {
    /// Waits for work of the store. Fails if the store is stuck in a statement, and records the entry first.
    pub(crate) async fn unless_stuck<T>(&self, work: impl Future<Output = T>) -> Result<T, StoreFault> {
        match select(pin!(work), pin!(self.stuck())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right((fault, _)) => Err(fault),
        }
    }

    /// Returns the fault that ended this node's part in consensus, if the store was stuck.
    pub(crate) fn ended_by(&self) -> Option<StoreFault> {
        self.stuck.get().cloned()
    }

    /// Waits until the store is stuck in a statement.
    async fn stuck(&self) -> StoreFault {
        let mut before: Option<RunningStatement> = None;
        let running = loop {
            sleep(LOOK_EVERY).await;
            let now = self.store.running().filter(|running| running.overdue > OVERDUE_MAX);
            // Checks twice: in a process that was suspended for a while everything is overdue at first.
            match (before, now) {
                (Some(before), Some(now)) if before.entry == now.entry => break now,
                _ => before = now,
            }
        };
        let what = match running.entry {
            Some(index) => format!("a step of entry {index} does not end"),
            None => "a step of a statement of an interactive transaction does not end".to_owned(),
        };
        let RunningStatement { entry, overdue } = running;
        tracing::error!(event = "store_stuck", entry, ?overdue, "{what}: the node ends");
        if let Some(index) = entry.filter(|_| !Mutant::StuckNotNoted.is_on()) {
            // If this fails, the next process gets stuck again.
            let _ = self.log.note_trying(index).await;
        }
        let fault = StoreFault::Stuck(what);
        // Only the first fault counts.
        let _ = self.stuck.set(fault.clone());
        fault
    }
}
