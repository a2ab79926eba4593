//! Counts the connections that were refused and tells of them, but not without end: a peer that may not come in tries
//! again and again.
//!
//! Invariant: of each reason there is at most one line in [`TOLD_EVERY`], and none is left uncounted.

use std::mem::{Discriminant, discriminant};
use std::sync::Mutex;
use std::time::Duration;

use quorate_env::metrics::Counter;
use quorate_env::{Instant, lock};

use crate::error::HandshakeError;

/// How often one reason is told.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    count: Counter,
    /// What was told, by reason: there are few of them.
    told: Mutex<Vec<Told>>,
}

#[derive(Debug)]
struct Told {
    reason: Discriminant<HandshakeError>,
    at: Instant,
    untold: u64,
}

impl Refusals {
    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }

    /// A connection was refused unheard, because there are too many.
    pub(super) fn busy(&self) {
        self.count.inc();
    }

    /// A connection was refused.
    pub(super) fn tell(&self, from: &str, error: &HandshakeError) {
        self.count.inc();
        let mut all = lock(&self.told);
        let (reason, now) = (discriminant(error), Instant::now());
        let untold = match all.iter_mut().find(|told| told.reason == reason) {
            None => {
                all.push(Told { reason, at: now, untold: 0 });
                0
            }
            Some(told) if now.saturating_duration_since(told.at) < TOLD_EVERY => {
                told.untold = told.untold.saturating_add(1);
                return;
            }
            Some(told) => {
                told.at = now;
                std::mem::take(&mut told.untold)
            }
        };
        drop(all);
        if needs_a_person(error) {
            tracing::warn!(from, %error, as_many_before = untold, "a connection was refused");
        } else {
            tracing::info!(from, %error, as_many_before = untold, "a connection was refused");
        }
    }
}

/// Whether somebody must change a configuration. Anything may connect to a port and speak another protocol.
fn needs_a_person(error: &HandshakeError) -> bool {
    !error.is_retryable() && !matches!(error, HandshakeError::Malformed(_))
}
