//! What goes wrong with the store of objects.
//!
//! Invariant: the same requests at the same times have the same troubles.

use std::time::Duration;

use quorate::archive::objects::Trouble;
use quorate_env::{Instant, Rng};

/// How long a request usually takes in each direction, in milliseconds, and how long a slow one does.
const USUAL_MILLIS: u64 = 30;
const SLOW_MILLIS: u64 = 2_500;

/// How long the store is away at most, in milliseconds; drawn for each seed.
const AWAY_MILLIS: [u64; 4] = [4_000, 4_000, 4_000, 60_000];

/// How many times more goes wrong during faults.
const STORM: f64 = 4.0;

/// The store's readiness.
pub(super) struct Weather {
    rng: Rng,
    is_storm: bool,
    /// Until when the store refuses everything.
    away: Option<Instant>,
    /// How probable it is that a request fails in one of two ways, that it is slow, and that the store goes away, and
    /// for how long it is away at most.
    fails: f64,
    slow: f64,
    leaves: f64,
    away_millis: u64,
}

impl Weather {
    /// Draws how bad it is.
    pub fn draw(rng: Rng) -> Self {
        let [fails, slow, leaves] = [[0.0, 0.002, 0.01, 0.04], [0.002, 0.01, 0.03, 0.08], [0.0, 0.0, 0.001, 0.003]]
            .map(|choices| {
                let at = usize::try_from(rng.below(choices.len() as u64)).unwrap_or(0);
                choices.get(at).copied().unwrap_or_default()
            });
        let away = usize::try_from(rng.below(AWAY_MILLIS.len() as u64)).unwrap_or(0);
        let away_millis = AWAY_MILLIS.get(away).copied().unwrap_or_default();
        Self { rng, is_storm: false, away: None, fails, slow, leaves, away_millis }
    }

    pub fn storm(&mut self, is_storm: bool) {
        self.is_storm = is_storm;
    }

    /// Draws what happens to a request.
    pub fn trouble(&mut self) -> Trouble {
        let factor = if self.is_storm { STORM } else { 1.0 };
        let now = Instant::now();
        if self.rng.chance(self.leaves * factor) {
            self.away = now.checked_add(Duration::from_millis(self.rng.below(self.away_millis)));
        }
        let is_away = self.away.is_some_and(|until| now < until);
        let (before, after) = (self.time(factor), self.time(factor));
        let is_refused = is_away || self.rng.chance(self.fails * factor);
        let is_unanswered = self.rng.chance(self.fails * factor);
        Trouble { before, after, is_refused, is_unanswered }
    }

    fn time(&self, factor: f64) -> Duration {
        let most = if self.rng.chance(self.slow * factor) { SLOW_MILLIS } else { USUAL_MILLIS };
        Duration::from_millis(self.rng.below(most))
    }
}
