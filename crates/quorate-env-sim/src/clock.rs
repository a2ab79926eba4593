//! Virtual time: how long the world has been running, and what each node's wall clock makes of it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorate_env::{Instant, WallClock};

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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node's wall clock: the world's time, off by what it is told. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct SimClock {
    timeline: Timeline,
    offset_nanos: Arc<AtomicI64>,
}

impl SimClock {
    pub(crate) fn new(timeline: Timeline) -> Self {
        Self { timeline, offset_nanos: Arc::default() }
    }

    /// From now on the clock is off by this many nanoseconds.
    pub fn set_offset(&self, nanos: i64) {
        self.offset_nanos.store(nanos, Ordering::Relaxed);
    }

    /// The clock jumps by this many nanoseconds.
    pub fn jump(&self, nanos: i64) {
        self.offset_nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl WallClock for SimClock {
    fn unix_nanos(&self) -> u64 {
        let elapsed = u64::try_from(self.timeline.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let offset = self.offset_nanos.load(Ordering::Relaxed);
        BASE_NANOS.saturating_add(elapsed).saturating_add_signed(offset)
    }
}
