//! Times of expiries.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorate_model::keys::limits::TIME_MAX;

/// When something expires: after a time, or at a time. Methods take a [`Duration`] or a [`SystemTime`] for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After a time, by the clock of this process.
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
    /// Returns the time in nanoseconds since 1970, when it is `now`. One that is too late to be stored is the latest.
    pub(super) fn after(self, now: u64) -> u64 {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let time = match self {
            Self::In(duration) => now.saturating_add(nanos(duration)),
            Self::At(time) => time.duration_since(UNIX_EPOCH).map_or(0, nanos),
        };
        time.min(TIME_MAX)
    }
}
