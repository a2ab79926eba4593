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

/// The most reasons that are told apart. Those of TLS are texts, whose number strangers may raise.
const REASONS_MAX: usize = 64;

/// The count of refused connections and the state of the log limit.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    count: Counter,
    /// The last log line of each reason, the least recent first.
    logged: Mutex<Vec<Logged>>,
}

#[derive(Debug)]
struct Logged {
    reason: Reason,
    at: Instant,
    suppressed: u64,
}

/// The kind of an error; for errors of TLS, which have many reasons, also its text.
type Reason = (Discriminant<HandshakeError>, Option<String>);

fn reason_of(error: &HandshakeError) -> Reason {
    (discriminant(error), matches!(error, HandshakeError::Tls(_)).then(|| error.to_string()))
}

impl Refusals {
    /// Returns the number of refused connections.
    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }

    /// Counts a connection whose handshake failed, and logs it within the limit.
    pub(super) fn record(&self, from: &str, error: &HandshakeError) {
        self.count.inc();
        let mut all = lock(&self.logged);
        let (reason, now) = (reason_of(error), Instant::now());
        let known = all.iter().position(|logged| logged.reason == reason);
        if let Some(logged) = known.and_then(|known| all.get_mut(known))
            && now.saturating_duration_since(logged.at) < LOG_INTERVAL
        {
            logged.suppressed = logged.suppressed.saturating_add(1);
            return;
        }
        let suppressed = known.map_or(0, |known| all.remove(known).suppressed);
        if all.len() >= REASONS_MAX {
            all.remove(0);
        }
        all.push(Logged { reason, at: now, suppressed: 0 });
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
