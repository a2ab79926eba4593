//! Reads under the clock and the randomness of a stamp.

use std::sync::Arc;

use quorate_model::Stamp;

use crate::determinism::random::Random;
use crate::vfs::clock;

/// Restores the clock and the randomness on drop.
pub(super) struct Stamped {
    random: Arc<Random>,
    before: u64,
}

impl Stamped {
    pub(super) fn enter(stamp: Stamp, random: &Arc<Random>) -> Self {
        let before = random.state();
        clock::set(Some(stamp.now));
        random.seed(stamp.seed);
        Self { random: Arc::clone(random), before }
    }
}

impl Drop for Stamped {
    fn drop(&mut self) {
        clock::set(None);
        self.random.seed(self.before);
    }
}
