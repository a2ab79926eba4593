//! Counters, gauges and histograms, with which the parts of a node measure themselves.
//!
//! Each part owns a struct of them and records as it works. A reader gets a clone, which is a snapshot that no longer
//! changes.
//!
//! Invariant: recording is a few atomic additions. It never allocates, locks or waits, and nothing that a node does
//! depends on what was recorded.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of a histogram's buckets, in microseconds. One more bucket counts longer times.
pub const BOUNDS_MICROS: [u64; 19] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

const BUCKETS: usize = BOUNDS_MICROS.len() + 1;

/// A number that only increases. It starts at 0.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds one and returns the previous value, for callers that act only on every nth call.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that can increase and decrease.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations: counts in fixed buckets from 10 us to 10 s, and the sum.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    /// The sum in nanoseconds. Wraps after 584 years of measured time.
    nanos: AtomicU64,
}

impl Histogram {
    /// Records one duration.
    pub fn observe(&self, time: Duration) {
        self.observe_many(time, 1);
    }

    /// Records the same duration for each of `count` operations that were done together.
    pub fn observe_many(&self, time: Duration, count: u64) {
        let nanos = nanos(time);
        if let Some(bucket) = self.buckets.get(bucket(nanos)) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
        self.nanos.fetch_add(nanos.wrapping_mul(count), Ordering::Relaxed);
    }

    /// Records many durations, at the cost of one atomic addition per bucket that is hit.
    pub fn observe_all(&self, times: impl IntoIterator<Item = Duration>) {
        let (mut counts, mut sum) = ([0_u64; BUCKETS], 0_u64);
        for time in times {
            let nanos = nanos(time);
            sum = sum.wrapping_add(nanos);
            if let Some(count) = counts.get_mut(bucket(nanos)) {
                *count = count.saturating_add(1);
            }
        }
        for (bucket, count) in self.buckets.iter().zip(counts).filter(|(_, count)| *count > 0) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
        self.nanos.fetch_add(sum, Ordering::Relaxed);
    }

    /// The number of recorded durations.
    pub fn count(&self) -> u64 {
        self.counts().into_iter().fold(0, u64::wrapping_add)
    }

    /// The sum of the recorded durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// The count of each bucket. The last bucket holds the durations longer than the last of [`BOUNDS_MICROS`].
    pub fn counts(&self) -> [u64; BUCKETS] {
        array::from_fn(|n| self.buckets.get(n).map_or(0, |bucket| bucket.load(Ordering::Relaxed)))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The first bucket whose upper bound is at least the given time.
fn bucket(nanos: u64) -> usize {
    BOUNDS_MICROS.partition_point(|bound| bound.saturating_mul(1_000) < nanos)
}

impl Clone for Counter {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.get()))
    }
}

impl Clone for Gauge {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.get()))
    }
}

impl Clone for Histogram {
    fn clone(&self) -> Self {
        Self { buckets: self.counts().map(AtomicU64::new), nanos: AtomicU64::new(self.nanos.load(Ordering::Relaxed)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGES_MICROS: [u64; 6] = [0, 10, 11, 10_000_000, 10_000_001, 600_000_000];

    #[test]
    fn a_time_counts_in_the_first_bucket_that_bounds_it() {
        let histogram = Histogram::default();
        EDGES_MICROS.into_iter().map(Duration::from_micros).for_each(|time| histogram.observe(time));
        let found: Vec<(usize, u64)> = histogram.counts().into_iter().enumerate().filter(|(_, n)| *n > 0).collect();
        assert_eq!(found, [(0, 2), (1, 1), (18, 1), (19, 2)]);
        histogram.observe(Duration::from_nanos(10_001));
        assert_eq!(histogram.counts()[1], 2, "a nanosecond counts");
        assert_eq!(histogram.count(), 7);
        let sum: Duration = EDGES_MICROS.into_iter().map(Duration::from_micros).sum();
        assert_eq!(histogram.sum(), sum + Duration::from_nanos(10_001));
    }

    #[test]
    fn recording_in_bulk_equals_recording_one_by_one() {
        let (single, all, many) = (Histogram::default(), Histogram::default(), Histogram::default());
        let times = EDGES_MICROS.map(Duration::from_micros);
        for time in times {
            (0..3).for_each(|_| single.observe(time));
            many.observe_many(time, 3);
        }
        all.observe_all(times.into_iter().cycle().take(18));
        assert_eq!((single.counts(), single.sum()), (all.counts(), all.sum()));
        assert_eq!((single.counts(), single.sum()), (many.counts(), many.sum()));
    }

    #[test]
    fn a_clone_is_a_snapshot() {
        let (counter, gauge, histogram) = (Counter::default(), Gauge::default(), Histogram::default());
        counter.add(2);
        assert_eq!(counter.next(), 2);
        gauge.set(7);
        histogram.observe(Duration::from_millis(1));
        let before = (counter.clone(), gauge.clone(), histogram.clone());
        counter.inc();
        gauge.set(8);
        histogram.observe(Duration::from_millis(1));
        assert_eq!((before.0.get(), before.1.get(), before.2.count()), (3, 7, 1));
    }
}
