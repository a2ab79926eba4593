//! Rate limiting for log lines about a lasting condition.

use std::sync::Mutex;
use std::time::Duration;

use crate::{Instant, lock};

/// Permits the first log line about a condition, and then one per [`Throttle::EVERY`].
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    /// The minimum time between two lines.
    pub const EVERY: Duration = Duration::from_secs(10);

    /// Whether a line may be logged now. If so, the caller must log it.
    pub fn is_due(&self) -> bool {
        let mut last = lock(&self.0);
        let is_due = last.is_none_or(|at| at.elapsed() >= Self::EVERY);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
