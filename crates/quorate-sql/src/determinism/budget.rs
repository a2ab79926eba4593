//! Bounds the work of an entry by counting steps of SQLite's virtual machine.
//!
//! All nodes must agree whether an entry is within its budget, so the verdict rests on the step counter of the
//! statement alone, set to zero before each run: it is equal for a statement that was kept, was just prepared or is run
//! again. SQLite's progress handler, called after every [`STRIDE`] steps, only stops what would not end.
//!
//! The handler also ticks for statements that SQLite runs inside a statement: to read the schema, for FTS5. How many
//! those are depends on the node, so they are not in the verdict, and where they can occur the handler waits for
//! [`NESTED_STEPS_MAX`] more steps. Hence the verdict is exact, but for a statement whose own and nested steps together
//! exceed the budget by that much while its own alone do not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rusqlite::Connection;

use crate::ffi::hooks;

/// Steps between two ticks. A power of two, so that the counter of a statement may wrap.
pub const STRIDE: u16 = 4096;

/// Nested steps of one statement that never count.
pub const NESTED_STEPS_MAX: u64 = 10_000_000;

/// The budget of the entry that is being applied.
#[derive(Debug, Default)]
pub struct Budget {
    left: AtomicU64,
    /// Steps at which the running statement is stopped; `u64::MAX` while none runs.
    stop: AtomicU64,
    ticks: AtomicU64,
    stopped: AtomicBool,
    /// Says that the store is being closed.
    closing: OnceLock<Arc<AtomicBool>>,
}

impl Budget {
    pub(super) fn install(conn: &Connection) -> rusqlite::Result<Arc<Self>> {
        let budget = Arc::new(Self::default());
        let ticking = Arc::clone(&budget);
        budget.stop.store(u64::MAX, Ordering::Relaxed);
        hooks::set_progress_handler(conn, STRIDE, move || ticking.tick())?;
        Ok(budget)
    }

    /// Interrupts whatever runs once `closing` says so. What comes of that must not become an outcome.
    pub(crate) fn end_when(&self, closing: Arc<AtomicBool>) {
        // Said once.
        let _ = self.closing.set(closing);
    }

    /// Whether the store is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get().is_some_and(|closing| closing.load(Ordering::Acquire))
    }

    /// Begins an entry, or goes on with one, that may take so many more steps.
    pub fn begin(&self, steps: u64) {
        self.left.store(steps, Ordering::Relaxed);
    }

    /// The steps that are left.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Begins a statement, which may make SQLite run nested ones.
    pub fn start(&self, nested: bool) {
        let slack = if nested { NESTED_STEPS_MAX } else { 0 };
        self.ticks.store(0, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
        self.stop.store(self.left.load(Ordering::Relaxed).saturating_add(slack), Ordering::Relaxed);
    }

    /// Ends a statement that its own counter, which wraps at 2^32, says took `steps`. Returns whether the entry is
    /// still within its budget.
    pub fn finish(&self, steps: u32) -> bool {
        self.stop.store(u64::MAX, Ordering::Relaxed);
        let left = self.left.load(Ordering::Relaxed);
        let taken = unwrap_steps(steps, self.ticks.load(Ordering::Relaxed).saturating_mul(STRIDE.into()));
        self.left.store(left.saturating_sub(taken), Ordering::Relaxed);
        taken <= left && !self.stopped.load(Ordering::Relaxed)
    }

    fn tick(&self) -> bool {
        if self.is_closing() {
            return true;
        }
        let ticks = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        let stop = ticks.saturating_mul(STRIDE.into()) > self.stop.load(Ordering::Relaxed);
        if stop {
            self.stopped.store(true, Ordering::Relaxed);
        }
        stop
    }
}

/// All steps, from those modulo 2^32 and a count that is too large by less than 2^31 and too small by less than a
/// stride.
fn unwrap_steps(low: u32, ticked: u64) -> u64 {
    let wraps = (ticked + (1 << 31)).saturating_sub(low.into()) >> 32;
    (wraps << 32) + u64::from(low)
}
