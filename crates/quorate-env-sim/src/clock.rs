//! Virtual time: how long the world has run, and the wall clock of each node derived from it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate_env::{Instant, WallClock, lock};

/// The initial wall clock time of a world: 2026-01-01 00:00 UTC.
const BASE_NANOS: u64 = 1_767_225_600 * 1_000_000_000;

/// The total time for which a world has run, over all its runs. Clones share one timeline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline(Arc<Mutex<Run>>);

#[derive(Debug, Default)]
struct Run {
    before: Duration,
    started: Option<Instant>,
}

impl Timeline {
    /// Starts a run. Must be called within its runtime.
    pub(crate) fn start(&self) {
        self.run().started = Some(Instant::now());
    }

    /// Ends the run. Must be called within its runtime.
    pub(crate) fn stop(&self) {
        let elapsed = self.elapsed();
        *self.run() = Run { before: elapsed, started: None };
    }

    pub(crate) fn elapsed(&self) -> Duration {
        let run = self.run();
        run.before + run.started.map_or(Duration::ZERO, |started| started.elapsed())
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        lock(&self.0)
    }
}

/// The wall clock of a node: the world's time plus an error that can be set. Clones share one clock.
#[derive(Clone, Debug)]
pub struct SimClock {
    timeline: Timeline,
    error: Arc<Mutex<ClockError>>,
}

/// The error of a clock.
#[derive(Debug, Default)]
struct ClockError {
    /// The error at `since`, in nanoseconds.
    offset: i64,
    /// The time at which the drift was set.
    since: Duration,
    /// The change of the error, in nanoseconds per millisecond.
    drift: i64,
}

impl ClockError {
    fn at(&self, now: Duration) -> i64 {
        let millis = i64::try_from(now.saturating_sub(self.since).as_millis()).unwrap_or(i64::MAX);
        self.offset.saturating_add(millis.saturating_mul(self.drift))
    }
}

impl SimClock {
    pub(crate) fn new(timeline: Timeline) -> Self {
        Self { timeline, error: Arc::default() }
    }

    /// Sets the clock's offset in nanoseconds, and its drift to zero.
    pub fn set_offset(&self, nanos: i64) {
        *self.error() = ClockError { offset: nanos, ..ClockError::default() };
    }

    /// Makes the clock jump by this many nanoseconds.
    pub fn jump(&self, nanos: i64) {
        let mut error = self.error();
        error.offset = error.offset.saturating_add(nanos);
    }

    /// Sets the drift of the clock in parts per million; a negative drift makes it slow.
    pub fn set_drift(&self, parts_per_million: i64) {
        let now = self.timeline.elapsed();
        let mut error = self.error();
        *error = ClockError { offset: error.at(now), since: now, drift: parts_per_million };
    }

    fn error(&self) -> MutexGuard<'_, ClockError> {
        lock(&self.error)
    }
}

impl WallClock for SimClock {
    fn unix_nanos(&self) -> u64 {
        let elapsed = self.timeline.elapsed();
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        BASE_NANOS.saturating_add(nanos).saturating_add_signed(self.error().at(elapsed))
    }
}
