//! Stamps: the time and the random seed that a leader adds to each proposal.
//!
//! Invariants:
//! - The times of a leader's stamps never decrease.
//! - A stamp's time is at most the median of the voters' clocks plus [`STAMP_AHEAD_MAX`], unless an earlier stamp was
//!   later. So one wrong clock can't make everything expire. A clock that is behind does no harm: applying uses the
//!   later of the stamp and the last one.

use quorate_env::Env;
use quorate_model::{STAMP_AHEAD_MAX, Stamp};

/// Makes stamps.
#[derive(Debug)]
pub(crate) struct Stamper {
    env: Env,
    last: u64,
}

impl Stamper {
    pub(crate) fn new(env: Env) -> Self {
        Self { env, last: 0 }
    }

    /// Returns the next stamp. `offsets` are the voters' clocks minus this node's, in nanoseconds, including its own 0.
    pub(crate) fn stamp(&mut self, offsets: &mut [i64]) -> Stamp {
        self.last = limited_now(&self.env, offsets).max(self.last);
        Stamp { now: self.last, seed: self.env.rng().next_u64() }
    }
}

/// Returns the time of a stamp that is made now, unless an earlier one was later. `offsets` as for [`Stamper::stamp`].
pub(crate) fn limited_now(env: &Env, offsets: &mut [i64]) -> u64 {
    let now = env.unix_nanos();
    let ahead = i64::try_from(STAMP_AHEAD_MAX.as_nanos()).unwrap_or(i64::MAX);
    now.min(now.saturating_add_signed(median(offsets).saturating_add(ahead)))
}

/// Returns the lower median: of two clocks, the earlier one.
fn median(offsets: &mut [i64]) -> i64 {
    offsets.sort_unstable();
    offsets.get(offsets.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn one_clock_far_ahead_does_not_set_the_time() {
        let env = Env::real();
        let mut stamper = Stamper::new(env.clone());
        // The two others are an hour behind this clock, so this clock is wrong.
        let stamp = stamper.stamp(&mut [0, -3_600 * SECOND, -3_600 * SECOND]);
        assert!(stamp.now < env.unix_nanos() - 3_500 * SECOND.unsigned_abs());
    }

    #[test]
    fn stamps_never_go_back() {
        let mut stamper = Stamper::new(Env::real());
        let first = stamper.stamp(&mut [0]);
        let second = stamper.stamp(&mut [0, -3_600 * SECOND, -3_600 * SECOND]);
        assert!(second.now >= first.now);
    }
}
