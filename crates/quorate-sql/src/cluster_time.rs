//! The cluster's time, as a node knows it: the stamp of what is applied, plus the time that has passed on this node's
//! monotonic clock since. Reads judge by it what has expired.
//!
//! # Invariants
//!
//! - It depends on no wall clock of this node.
//! - It is not before the stamp of what is published as applied.
//! - It never runs backwards while the store is open, so what a read has seen expire does not come back by itself. If
//!   this node's clock is faster than that by which the leader makes stamps, it stands still until these catch up.

use std::sync::Mutex;
use std::time::Duration;

use quorate_env::{Instant, lock};

/// The cluster's time.
#[derive(Debug)]
pub struct ClusterTime(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// The latest stamp, and when it was applied.
    stamp: u64,
    applied: Instant,
    /// The latest time that was handed out.
    latest: u64,
}

impl Known {
    fn at(&mut self, instant: Instant) -> u64 {
        let passed = instant.saturating_duration_since(self.applied);
        self.latest = self.latest.max(self.stamp.saturating_add(nanos(passed)));
        self.latest
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl ClusterTime {
    /// The time on a node that has applied entries up to this stamp, which is taken as that of this moment.
    pub(crate) fn new(stamp: u64) -> Self {
        Self(Mutex::new(Known { stamp, applied: Instant::now(), latest: stamp }))
    }

    /// Must be called before a position is published, with the latest stamp of the entries up to it.
    pub(crate) fn applied(&self, stamp: u64) {
        let mut known = lock(&self.0);
        // An entry without a stamp, or with an earlier one, says nothing of the time.
        if stamp > known.stamp {
            (known.stamp, known.applied) = (stamp, Instant::now());
        }
    }

    /// Returns the time, in nanoseconds since 1970.
    pub fn now(&self) -> u64 {
        lock(&self.0).at(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        /// So many nanoseconds pass.
        Pass(u64),
        /// An entry is applied, with the stamp of a clock that is off by so much.
        Apply(i64),
        Read,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..5_000_u64).prop_map(Step::Pass),
            (-2_000..2_000_i64).prop_map(Step::Apply),
            Just(Step::Read),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn it_follows_the_stamps_and_never_runs_backwards(steps in steps()) {
            const BEGUN: u64 = 1_000_000;
            let start = Instant::now();
            let (mut now, mut last, mut highest, mut at) = (0, 0, BEGUN, 0);
            let mut known = Known { stamp: BEGUN, applied: start, latest: BEGUN };
            for step in steps {
                let instant = start + Duration::from_nanos(now);
                match step {
                    Step::Pass(nanos) => now += nanos,
                    Step::Apply(off) => {
                        let stamp = (BEGUN + now).saturating_add_signed(off);
                        if stamp > highest {
                            (highest, at) = (stamp, now);
                            (known.stamp, known.applied) = (stamp, instant);
                        }
                    }
                    Step::Read => {
                        let read = known.at(instant);
                        prop_assert!(read >= last && read >= highest);
                        prop_assert_eq!(read, last.max(highest + (now - at)));
                        last = read;
                    }
                }
            }
        }
    }
}
