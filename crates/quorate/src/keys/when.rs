//! Times of expiries.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorate_model::keys::Expiry;
use quorate_model::keys::limits::TIME_MAX;

/// When something expires: after a time, or at a time. Methods take a [`Duration`] or a [`SystemTime`] for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After a time, which counts from the moment at which the write takes effect.
    In(Duration),
    /// At a time.
    At(SystemTime),
}

impl From<Duration> for When {
    fn from(duration: Duration) -> Self {
        Self::In(duration)
    }
}

impl From<SystemTime> for When {
    fn from(time: SystemTime) -> Self {
        Self::At(time)
    }
}

impl When {
    /// Returns the nanoseconds since 1970, or since the stamp of the entry, and whether it is the latter. A time that
    /// is too late to be stored is the latest.
    pub(super) fn nanos(self) -> (u64, bool) {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(TIME_MAX);
        match self {
            Self::In(duration) => (nanos(duration), true),
            Self::At(time) => (time.duration_since(UNIX_EPOCH).map_or(0, nanos), false),
        }
    }
}

impl From<When> for Expiry {
    fn from(when: When) -> Self {
        match when.nanos() {
            (nanos, true) => Self::In(nanos),
            (nanos, false) => Self::At(nanos),
        }
    }
}
