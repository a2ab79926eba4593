//! Times counted in buckets that are at most 1.6 % wide, so that the memory of a run does not grow with its length.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An octave has `2^BITS` buckets.
const BITS: u32 = 6;
/// Longer times are counted as this, about 18 minutes.
const NANOS_MAX: u64 = 1 << 40;

/// The times of operations.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u32>,
    count: u64,
    max: u64,
}

/// A summary of times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The number of times.
    pub count: u64,
    /// The median.
    pub p50_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Histogram {
    /// Counts a time.
    pub fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(NANOS_MAX).min(NANOS_MAX);
        let bucket = bucket(nanos);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        self.count += 1;
        self.max = self.max.max(nanos);
    }

    /// Adds the times of another histogram.
    pub fn add(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// Returns a summary of the times.
    pub fn summary(&self) -> Summary {
        let percentile = |percent| micros(self.percentile(percent));
        Summary {
            count: self.count,
            p50_us: percentile(50),
            p90_us: percentile(90),
            p99_us: percentile(99),
            max_us: micros(self.max),
        }
    }

    /// Returns the upper end of the bucket below or in which `percent` of all times are.
    fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let reached = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        });
        reached.map_or(0, |bucket| end_of(bucket).min(self.max))
    }
}

fn bucket(nanos: u64) -> usize {
    let shift = nanos.checked_ilog2().unwrap_or(0).saturating_sub(BITS);
    ((shift << BITS) as usize) + (nanos >> shift) as usize
}

/// Returns the longest time in a bucket.
fn end_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket >> BITS).saturating_sub(1);
    let mantissa = bucket - (shift << BITS);
    ((mantissa + 1) << shift) - 1
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_at_most_1_6_percent_wide() {
        let mut previous = None;
        for exponent in 0..40 {
            for offset in [0, 1, 7, 100] {
                let nanos: u64 = (1 << exponent) + offset;
                let end = end_of(bucket(nanos));
                assert!(end >= nanos && (end - nanos) as f64 <= nanos as f64 / 63.0, "{nanos} {end}");
                if bucket(nanos) > 0 {
                    assert!(end_of(bucket(nanos) - 1) < nanos, "{nanos}");
                }
                previous = previous.max(Some(bucket(nanos)));
            }
        }
        assert!(previous < Some(3000));
    }

    #[test]
    fn percentiles_include_added_histograms() {
        let (mut odd, mut even) = (Histogram::default(), Histogram::default());
        for micros in (1..=100).step_by(2) {
            odd.record(Duration::from_micros(micros));
            even.record(Duration::from_micros(micros + 1));
        }
        odd.add(&even);
        let Summary { count, p50_us, p90_us, p99_us, max_us } = odd.summary();
        assert_eq!((count, max_us), (100, 100.0));
        for (found, expected) in [(p50_us, 50.0), (p90_us, 90.0), (p99_us, 99.0)] {
            assert!((expected..expected * 1.016).contains(&found), "{found} {expected}");
        }
        assert_eq!(Histogram::default().summary(), Summary::default());
    }
}
