//! How often one thing is logged that goes on and on.

use std::sync::Mutex;
use std::time::Duration;

use crate::{Instant, lock};

/// Lets the first line about a thing through, and then one in [`Throttle::EVERY`].
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    /// The time between two lines.
    pub const EVERY: Duration = Duration::from_secs(10);

    /// Whether a line may be logged now; the caller logs it if so.
    pub fn is_due(&self) -> bool {
        let mut last = lock(&self.0);
        let is_due = last.is_none_or(|at| at.elapsed() >= Self::EVERY);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
