//! Virtual time: how long the world has been running, and what each node's wall clock makes of it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate_env::{Instant, WallClock, lock};

/// The wall clocks of a new world: 2026-01-01 00:00 UTC.
const BASE_NANOS: u64 = 1_767_225_600 * 1_000_000_000;

/// How long a world has been running, in all its runs together. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline(Arc<Mutex<Run>>);

#[derive(Debug, Default)]
struct Run {
    before: Duration,
    started: Option<Instant>,
}

impl Timeline {
    /// A run begins: called within its runtime.
    pub(crate) fn start(&self) {
        self.run().started = Some(Instant::now());
    }

    /// The run ends: called within its runtime.
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

/// A node's wall clock: the world's time plus an offset that can be set. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct SimClock {
    timeline: Timeline,
    wrong: Arc<Mutex<Wrong>>,
}

/// How wrong a clock is.
#[derive(Debug, Default)]
struct Wrong {
    /// By how much it was at `since`, in nanoseconds.
    offset: i64,
    /// When its drift was set.
    since: Duration,
    /// Nanoseconds by which it gets wrong in a millisecond.
    drift: i64,
}

impl Wrong {
    fn at(&self, now: Duration) -> i64 {
        let millis = i64::try_from(now.saturating_sub(self.since).as_millis()).unwrap_or(i64::MAX);
        self.offset.saturating_add(millis.saturating_mul(self.drift))
    }
}

impl SimClock {
    pub(crate) fn new(timeline: Timeline) -> Self {
        Self { timeline, wrong: Arc::default() }
    }

    /// From now on the clock is off by this many nanoseconds, and goes right.
    pub fn set_offset(&self, nanos: i64) {
        *self.wrong() = Wrong { offset: nanos, ..Wrong::default() };
    }

    /// The clock jumps by this many nanoseconds.
    pub fn jump(&self, nanos: i64) {
        let mut wrong = self.wrong();
        wrong.offset = wrong.offset.saturating_add(nanos);
    }

    /// From now on the clock goes wrong by this many millionths, fast or slow.
    pub fn set_drift(&self, parts_per_million: i64) {
        let now = self.timeline.elapsed();
        let mut wrong = self.wrong();
        *wrong = Wrong { offset: wrong.at(now), since: now, drift: parts_per_million };
    }

    fn wrong(&self) -> MutexGuard<'_, Wrong> {
        lock(&self.wrong)
    }
}

impl WallClock for SimClock {
    fn unix_nanos(&self) -> u64 {
        let elapsed = self.timeline.elapsed();
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        BASE_NANOS.saturating_add(nanos).saturating_add_signed(self.wrong().at(elapsed))
    }
}
