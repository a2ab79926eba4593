//! The pauses between attempts. They double up to a maximum, and are randomized so that clients spread out.

use std::time::Duration;

use quorate_env::Rng;

/// The upper limit of the first pause.
const FIRST: Duration = Duration::from_millis(4);

/// The upper limit of all pauses.
const LONGEST: Duration = Duration::from_millis(128);

/// The pauses of one call.
#[derive(Debug)]
pub(crate) struct Backoff {
    rng: Rng,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(rng: &Rng) -> Self {
        Self { rng: rng.clone(), next: FIRST }
    }

    /// Returns the next pause, drawn between half of its upper limit and the whole.
    pub(crate) fn pause(&mut self) -> Duration {
        let longest = self.next;
        self.next = longest.saturating_mul(2).min(LONGEST);
        let half = longest / 2;
        half.saturating_add(Duration::from_micros(self.rng.below(u64::try_from(half.as_micros()).unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_vary() {
        let mut backoff = Backoff::new(&Rng::from_seed(1));
        let pauses: Vec<Duration> = (0..40).map(|_| backoff.pause()).collect();
        assert!(pauses.iter().all(|pause| *pause >= FIRST / 2 && *pause <= LONGEST));
        assert!(pauses[0] <= FIRST && pauses[39] >= LONGEST / 2);
        assert!(pauses[20..].iter().any(|pause| *pause != pauses[39]));
    }
}
