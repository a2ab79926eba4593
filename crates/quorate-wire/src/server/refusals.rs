//! Counts and logs refused connections. Logging is limited, because a refused peer tries again and again.
//!
//! Invariant: each reason is logged at most once per [`LOG_INTERVAL`]; every refusal is counted.

use std::mem::{Discriminant, discriminant};
use std::sync::Mutex;
use std::time::Duration;

use quorate_env::metrics::Counter;
use quorate_env::{Instant, lock};

use crate::error::HandshakeError;

/// The minimum time between two log lines with the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The count of refused connections and the state of the log limit.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    count: Counter,
    /// The last log line of each reason. There are few reasons.
    logged: Mutex<Vec<Logged>>,
}

#[derive(Debug)]
struct Logged {
    reason: Discriminant<HandshakeError>,
    at: Instant,
    suppressed: u64,
}

impl Refusals {
    /// Returns the number of refused connections.
    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }

    /// Counts a connection that was refused before its handshake because there are too many.
    pub(super) fn busy(&self) {
        self.count.inc();
    }

    /// Counts a connection whose handshake failed, and logs it within the limit.
    pub(super) fn record(&self, from: &str, error: &HandshakeError) {
        self.count.inc();
        let mut all = lock(&self.logged);
        let (reason, now) = (discriminant(error), Instant::now());
        let suppressed = match all.iter_mut().find(|logged| logged.reason == reason) {
            None => {
                all.push(Logged { reason, at: now, suppressed: 0 });
                0
            }
            Some(logged) if now.saturating_duration_since(logged.at) < LOG_INTERVAL => {
                logged.suppressed = logged.suppressed.saturating_add(1);
                return;
            }
            Some(logged) => {
                logged.at = now;
                std::mem::take(&mut logged.suppressed)
            }
        };
        drop(all);
        if needs_an_operator(error) {
            tracing::warn!(from, %error, suppressed, "a connection was refused");
        } else {
            tracing::info!(from, %error, suppressed, "a connection was refused");
        }
    }
}

/// Returns whether an operator must change a configuration. Malformed input is no sign of that: any program may
/// connect.
fn needs_an_operator(error: &HandshakeError) -> bool {
    !error.is_retryable() && !matches!(error, HandshakeError::Malformed(_))
}
