//! Ends a query that exceeds its limits.
//!
//! SQLite calls [`Guard::tick`] every [`TICK_STEPS`] steps. Point queries never get that far, so a first try on the
//! calling thread reads no clock before its first tick, and its time runs from there. A first try is also limited to a
//! number of ticks, whatever the clock says. The simulator, whose clock stands still meanwhile, therefore behaves in
//! the same way.
//!
//! Functions of large values also tick, after each [`TICK_BYTES`] that they touch. In steps that need much memory, the
//! allocator checks the time ([`usage`](crate::usage)). Other single steps, such as a sort, may take long; a limit may
//! be exceeded by one such step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use quorate_env::{Instant, lock};
use quorate_model::StoreFault;

use super::error::ReadError;
use super::limits::{Age, Cancel, ReadLimits};
use crate::functions::Meter;

/// Steps of SQLite between two ticks.
pub(super) const TICK_STEPS: u16 = 1000;

/// Bytes that functions touch between two ticks.
const TICK_BYTES: u64 = 64 << 10;

/// Ticks of a first try, which are about a millisecond.
const INLINE_TICKS: u32 = 100;

/// The time limit of a first try.
pub(super) const INLINE_TIME: Duration = Duration::from_millis(1);

/// Ticks between two reads of the clock.
const CLOCK_TICKS: u32 = 4;

/// Why a query was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trip {
    /// The first try reached its limit.
    Inline,
    Timeout(Duration),
    TooOld,
    Cancelled,
    /// The store is being closed.
    Closed,
}

impl Trip {
    pub(super) fn error(self) -> ReadError {
        match self {
            // Callers of a first try handle this case themselves; otherwise a retry is right.
            Self::Inline => ReadError::Busy,
            Self::Timeout(limit) => ReadError::Timeout(limit),
            Self::TooOld => ReadError::SnapshotEnded,
            Self::Cancelled => ReadError::Cancelled,
            Self::Closed => StoreFault::Closed.into(),
        }
    }
}

/// The limits of a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowance {
    /// Whether it is a first try on the caller's thread.
    pub(super) inline: bool,
    pub(super) timeout: Duration,
    /// The age limit of its read transaction.
    pub(super) transaction: Duration,
    /// When the transaction began, if that was before this query.
    pub(super) begun: Option<Instant>,
    pub(super) cancel: [Option<Cancel>; 2],
}

impl Allowance {
    pub(super) fn new(limits: &ReadLimits, transaction: Duration) -> Self {
        let cancel = [limits.cancel.clone(), None];
        Self { inline: false, timeout: limits.timeout, transaction, begun: None, cancel }
    }

    /// The limits of a query in a transaction that has already begun.
    pub(super) fn within(limits: &ReadLimits, age: Age) -> Self {
        Self { begun: Some(age.begun), ..Self::new(limits, age.max) }
    }
}

/// The guard of one connection. Shared with SQLite's progress handler, and with the threads that end old readers.
#[derive(Debug)]
pub(super) struct Guard {
    state: Mutex<State>,
    /// Bytes that functions have touched since their last tick.
    bytes: AtomicU64,
    /// Cancelled when the store is closed, which ends every query.
    closing: Cancel,
}

#[derive(Debug, Default)]
struct State {
    armed: bool,
    allowance: Allowance,
    ticks: u32,
    /// When the query began. For a first try, the time of its first tick.
    started: Option<Instant>,
    /// Set by another thread when the transaction is too old.
    ended: bool,
    trip: Option<Trip>,
}

impl Guard {
    pub(super) fn new(closing: Cancel) -> Self {
        Self { state: Mutex::default(), bytes: AtomicU64::new(0), closing }
    }

    /// Begins a query. Fails at once if it was cancelled before.
    pub(super) fn arm(&self, allowance: Allowance) -> Result<(), ReadError> {
        if self.closing.is_cancelled() {
            return Err(Trip::Closed.error());
        }
        if allowance.cancel.iter().flatten().any(Cancel::is_cancelled) {
            return Err(ReadError::Cancelled);
        }
        let started = (!allowance.inline).then(Instant::now);
        self.bytes.store(0, Ordering::Relaxed);
        *self.state() = State { armed: true, allowance, started, ..State::default() };
        Ok(())
    }

    /// Ends a query. Returns why the guard interrupted it, if it did, and how long it has run.
    pub(super) fn disarm(&self) -> (Option<Trip>, Duration) {
        let mut state = self.state();
        state.armed = false;
        state.allowance.cancel = [None, None];
        (state.trip.take(), state.started.map_or(Duration::ZERO, |started| started.elapsed()))
    }

    /// Called by SQLite; `true` interrupts the query.
    pub(super) fn tick(&self) -> bool {
        let mut state = self.state();
        if state.armed && state.trip.is_none() {
            state.trip = if self.closing.is_cancelled() { Some(Trip::Closed) } else { state.exceeded() };
        }
        state.trip.is_some()
    }

    /// Ends the running query if `is_over` holds for its transaction.
    pub(super) fn end_if(&self, is_over: impl FnOnce(Age) -> bool) -> bool {
        let mut state = self.state();
        let begun = state.allowance.begun.or(state.started);
        let max = state.allowance.transaction;
        let over = state.armed && begun.is_some_and(|begun| is_over(Age { begun, max }));
        state.ended |= over;
        over
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Meter for Guard {
    fn charge(&self, bytes: u64) -> bool {
        if self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) < TICK_BYTES {
            return false;
        }
        self.bytes.store(0, Ordering::Relaxed);
        self.tick()
    }
}

impl State {
    fn exceeded(&mut self) -> Option<Trip> {
        self.ticks = self.ticks.saturating_add(1);
        if self.ended {
            // Another thread may see that the transaction is too old just before the query sees that its time is up.
            let late = self.late(Instant::now()).filter(|trip| matches!(trip, Trip::Timeout(_)));
            return Some(late.unwrap_or(Trip::TooOld));
        }
        if self.allowance.cancel.iter().flatten().any(Cancel::is_cancelled) {
            return Some(Trip::Cancelled);
        }
        if self.allowance.inline && self.ticks > INLINE_TICKS {
            return Some(Trip::Inline);
        }
        if self.ticks % CLOCK_TICKS == 1 { self.late(Instant::now()) } else { None }
    }

    fn late(&mut self, now: Instant) -> Option<Trip> {
        let started = *self.started.get_or_insert(now);
        let ran = now.saturating_duration_since(started);
        let Allowance { inline, timeout, transaction, begun, .. } = &self.allowance;
        // The query's own transaction begins with the query.
        let limit = if begun.is_none() { *timeout.min(transaction) } else { *timeout };
        if *inline && ran >= INLINE_TIME {
            Some(Trip::Inline)
        } else if ran >= limit {
            Some(Trip::Timeout(limit))
        } else if begun.is_some_and(|begun| now.saturating_duration_since(begun) >= *transaction) {
            Some(Trip::TooOld)
        } else {
            None
        }
    }
}
