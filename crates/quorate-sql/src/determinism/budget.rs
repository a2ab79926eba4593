//! Bounds the work of an entry by counting steps of SQLite's virtual machine, and bytes that functions touch;
//! [`STEP_BYTES`] bytes count as a step.
//!
//! All nodes must agree whether an entry is within its budget. The verdict therefore depends only on the step counter
//! of each statement and on the bytes that its functions touch. The counter is reset before each run, and is the same
//! for a statement that was kept, was just prepared or is run again. SQLite's progress handler, called after every
//! [`STRIDE`] steps, only stops statements that would not end.
//!
//! The handler also counts statements that SQLite runs inside a statement, to read the schema or for FTS5. The number
//! of their steps depends on the node, so they are not part of the verdict; if they can occur, the handler allows
//! [`NESTED_STEPS_MAX`] additional steps. The verdict is therefore exact, except for a statement whose own steps are
//! within the budget, but exceed it by more than that together with the nested ones. No statement that SQLite runs
//! inside another calls a function that counts.
//!
//! One step may touch many bytes that are not counted. Therefore the bytes that a statement moves ([`usage::watch`])
//! and its time ([`Budget::allow`]) are limited too. Exceeding these is not a verdict on the entry, because they depend
//! on the machine and on caches: it is a fault of the node, unless a majority decides otherwise.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use quorate_env::{Instant, lock, thread_time};
use rusqlite::Connection;

use crate::ffi::hooks;
use crate::functions::Meter;
use crate::supervision::Supervision;
use crate::usage;

/// The number of steps between two ticks. It is a power of two, so that the counter of a statement may wrap.
pub const STRIDE: u16 = 1024;

/// The number of nested steps of one statement that are ignored.
pub const NESTED_STEPS_MAX: u64 = 10_000_000;

/// How many bytes a function touches in about the time of a step.
pub const STEP_BYTES: u64 = 16;

/// The processor time that an entry may take in addition to [`STEP_NANOS`] for each step of its budget and
/// [`STATEMENT_TIME`] for each statement. Because the processor may be shared, an entry may take [`WAITS`] times as
/// long by the clock, except when it runs for the first time on a node where no caller waits for it
/// ([`Budget::set_awaited`]).
const TIME_BASE: Duration = Duration::from_millis(100);

/// See [`TIME_BASE`].
const STATEMENT_TIME: Duration = Duration::from_micros(20);

/// See [`TIME_BASE`].
const WAITS: u32 = 2;

/// The nanoseconds that a step may take, on average and on a slow machine; more in debug builds of SQLite.
const STEP_NANOS: u64 = if cfg!(debug_assertions) { 200 } else { 16 };

/// The time of a statement of a dry run is that of an entry divided by this: other writes wait for the dry run, and
/// wait again when the entry is applied.
const DRY_RUN_PART: u32 = 2;

/// The bytes that a statement may move through large blocks of memory and temporary files for each step of its budget.
const STEP_MOVES: u64 = 16;

/// When a node runs a statement again that it had stopped, the statement may take this many times as long and move this
/// many times as many bytes as before, up to [`PATIENCE_MAX`] times the first limits.
const PATIENCE: u32 = 4;
const PATIENCE_MAX: u32 = 64;

/// Which limit a statement has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// The steps of the entry's budget.
    Steps,
    /// The time that this node allows.
    Time,
}

/// The budget of the entry that is being applied.
#[derive(Debug, Default)]
pub struct Budget {
    left: AtomicU64,
    /// The number of steps at which the running statement is stopped; `u64::MAX` while none runs.
    stop: AtomicU64,
    ticks: AtomicU64,
    /// Bytes that functions of the running statement have touched.
    bytes: AtomicU64,
    stopped: AtomicBool,
    clock: Mutex<Clock>,
    /// The state of the running statement that other threads see.
    supervision: OnceLock<Arc<Supervision>>,
}

/// The time limits of the entry.
#[derive(Debug)]
struct Clock {
    /// The index of the entry; `None` in a dry run.
    entry: Option<u64>,
    /// An upper limit on the time of an entry, in addition to that of its budget.
    max: Option<Duration>,
    /// The factor by which its usual time is extended.
    patience: u32,
    /// Whether it is a dry run.
    is_dry: bool,
    /// Whether a caller on this node waits for it.
    is_awaited: bool,
    /// The steps of the entry's budget, and how many of its statements have begun.
    steps: u64,
    statements: u32,
    /// The processor time that the entry may take.
    allowed: Duration,
    /// When the entry began, and the processor time that its thread had used at the first check.
    begun: Option<Instant>,
    used: Option<Duration>,
    is_over: bool,
}

impl Default for Clock {
    fn default() -> Self {
        let (max, patience, is_dry, is_awaited, allowed) = (None, 1, false, true, Duration::ZERO);
        let (entry, begun, used, is_over) = (None, None, None, false);
        Self { entry, max, patience, is_dry, is_awaited, steps: 0, statements: 0, allowed, begun, used, is_over }
    }
}

impl Clock {
    /// Begins a statement that may make SQLite run `nested` additional steps.
    fn begin_statement(&mut self, nested: u64) {
        self.statements = self.statements.saturating_add(1);
        let time = allowed(self.steps.saturating_add(nested));
        let time = time.saturating_add(STATEMENT_TIME.saturating_mul(self.statements));
        self.allowed = if self.is_dry { time / DRY_RUN_PART } else { time.saturating_mul(self.patience) };
    }

    /// Returns the time by the clock that the entry may take according to its budget.
    fn allowed_by_clock(&self) -> Duration {
        let waits = if self.is_awaited || self.patience > 1 { WAITS } else { 1 };
        self.allowed.saturating_mul(waits)
    }

    /// Returns the most time by the clock that the entry may take.
    fn most(&self) -> Duration {
        let most = self.allowed_by_clock();
        self.max.map_or(most, |max| most.min(max))
    }
}

impl Budget {
    pub(super) fn install(conn: &Connection) -> rusqlite::Result<Arc<Self>> {
        let budget = Arc::new(Self::default());
        let ticking = Arc::clone(&budget);
        budget.stop.store(u64::MAX, Ordering::Relaxed);
        hooks::set_progress_handler(conn, STRIDE, move || ticking.tick())?;
        Ok(budget)
    }

    /// Lets other threads see which statement runs, and interrupt it. The caller must not make an outcome of an
    /// interrupted statement.
    pub(crate) fn supervise(&self, supervision: Arc<Supervision>) {
        // It is set only once.
        let _ = self.supervision.set(supervision);
    }

    /// Returns whether the store is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.supervision.get().is_some_and(|supervision| supervision.is_closing())
    }

    /// Begins an entry that may take this many steps, or continues one after a pause. A dry run has no entry yet. The
    /// node's own work for the entry is limited too, until [`usage::unwatch`]: SQLite expands views while a statement
    /// is prepared, and all views after the schema was changed.
    pub fn begin(&self, entry: Option<u64>, steps: u64) {
        self.left.store(steps, Ordering::Relaxed);
        let mut clock = self.clock();
        let Clock { max, patience, is_dry, is_awaited, .. } = *clock;
        let begun = Some(Instant::now());
        *clock = Clock { entry, max, patience, is_dry, is_awaited, steps, begun, ..Clock::default() };
        clock.begin_statement(0);
        usage::watch(u64::MAX, begun, clock.most());
    }

    /// Returns the steps that are left.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Sets the steps that are left after a command that counts its own steps.
    pub(crate) fn set_left(&self, steps: u64) {
        self.left.store(steps, Ordering::Relaxed);
    }

    /// Sets the most time that an entry may take from now on, or only the limit of its budget (`None`).
    pub(crate) fn allow(&self, max: Option<Duration>) {
        self.clock().max = max;
    }

    /// Sets how many times this node has already stopped the next entry.
    pub(crate) fn be_patient(&self, times: u32) {
        self.clock().patience = PATIENCE.saturating_pow(times).min(PATIENCE_MAX);
    }

    /// Sets whether the next statements are a dry run.
    pub(crate) fn set_dry_run(&self, is_dry: bool) {
        self.clock().is_dry = is_dry;
    }

    /// Sets whether callers on this node wait for the next entries. On a follower none do, so it gives an entry up
    /// sooner by the clock than the leader. Otherwise, if both run on one machine, the follower would compete with the
    /// leader for the processor as long as the leader runs the entry. A follower could also finish an entry that the
    /// leader has given up, and the leader would then have to hand over its leadership.
    pub(crate) fn set_awaited(&self, is_awaited: bool) {
        self.clock().is_awaited = is_awaited;
    }

    /// Begins a statement; `nested` says whether SQLite may run further statements inside it.
    pub fn start(&self, nested: bool) {
        let slack = if nested { NESTED_STEPS_MAX } else { 0 };
        self.ticks.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
        let left = self.left.load(Ordering::Relaxed);
        let mut clock = self.clock();
        clock.begin_statement(slack);
        let (most, moves) = (clock.most(), left.saturating_mul(STEP_MOVES).saturating_mul(clock.patience.into()));
        usage::watch(moves, clock.begun, most);
        if let (Some(supervision), Some(begun)) = (self.supervision.get(), clock.begun) {
            supervision.begins(clock.entry, begun, most);
        }
        drop(clock);
        self.stop.store(left.saturating_add(slack), Ordering::Relaxed);
    }

    /// Ends a statement that took `steps` according to its own counter, which wraps at 2^32. Fails if the entry has
    /// exceeded its budget, or has taken too long.
    pub fn finish(&self, steps: u32) -> Result<(), Spent> {
        self.stop.store(u64::MAX, Ordering::Relaxed);
        if let Some(supervision) = self.supervision.get() {
            supervision.ends();
        }
        let clock = self.clock();
        usage::watch(u64::MAX, clock.begun, clock.most());
        let is_late = clock.is_over;
        drop(clock);
        let left = self.left.load(Ordering::Relaxed);
        let taken = unwrap_steps(steps, self.ticks.load(Ordering::Relaxed).saturating_mul(STRIDE.into()));
        let taken = taken.saturating_add(self.bytes.load(Ordering::Relaxed) / STEP_BYTES);
        self.left.store(left.saturating_sub(taken), Ordering::Relaxed);
        if is_late {
            Err(Spent::Time)
        } else if taken > left || self.stopped.load(Ordering::Relaxed) {
            Err(Spent::Steps)
        } else {
            Ok(())
        }
    }

    fn tick(&self) -> bool {
        if self.is_closing() {
            return true;
        }
        self.ticks.fetch_add(1, Ordering::Relaxed);
        self.is_spent() || self.is_late()
    }

    /// Returns whether the entry takes too long.
    fn is_late(&self) -> bool {
        if self.stop.load(Ordering::Relaxed) == u64::MAX {
            return false;
        }
        let mut clock = self.clock();
        let now = Instant::now();
        let allowed = clock.allowed;
        let begun = *clock.begun.get_or_insert(now);
        let used = *clock.used.get_or_insert_with(thread_time);
        let elapsed = now.saturating_duration_since(begun);
        clock.is_over |= elapsed > clock.allowed_by_clock()
            || elapsed > allowed && thread_time().saturating_sub(used) > allowed
            || clock.max.is_some_and(|max| elapsed > max);
        clock.is_over
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        lock(&self.clock)
    }

    /// Returns whether the running statement must be stopped.
    fn is_spent(&self) -> bool {
        let steps = self.ticks.load(Ordering::Relaxed).saturating_mul(STRIDE.into());
        let steps = steps.saturating_add(self.bytes.load(Ordering::Relaxed) / STEP_BYTES);
        let stop = steps > self.stop.load(Ordering::Relaxed);
        if stop {
            self.stopped.store(true, Ordering::Relaxed);
        }
        stop
    }
}

impl Meter for Budget {
    fn charge(&self, bytes: u64) -> bool {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.is_spent() || self.is_late()
    }
}

/// Returns the processor time for this many steps.
pub(super) fn allowed(steps: u64) -> Duration {
    TIME_BASE.saturating_add(Duration::from_nanos(STEP_NANOS.saturating_mul(steps)))
}

/// Returns the full number of steps, from that number modulo 2^32 and an estimate that is too large by less than 2^31
/// or too small by less than a stride.
fn unwrap_steps(low: u32, ticked: u64) -> u64 {
    let wraps = (ticked + (1 << 31)).saturating_sub(low.into()) >> 32;
    (wraps << 32) + u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_a_waiting_caller_gets_less_time() {
        let budget = Budget::default();
        let waits = |is_awaited: bool, times: u32| {
            budget.set_awaited(is_awaited);
            budget.be_patient(times);
            budget.begin(None, 1_000_000);
            let clock = budget.clock();
            (clock.patience, clock.allowed_by_clock().div_duration_f64(clock.allowed))
        };
        assert_eq!(waits(true, 0), (1, 2.0));
        assert_eq!(waits(false, 0), (1, 1.0));
        assert_eq!(waits(false, 1), (4, 2.0), "by the second time, another node may have applied it");
        assert_eq!(waits(true, 1), (4, 2.0));
    }
}
