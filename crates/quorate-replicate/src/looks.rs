//! The looks at a database: whether something has changed, and whether it is time for a checkpoint.
//!
//! Invariants:
//! - None of this waits for the store.
//! - A `-wal` that grows fast is looked at as soon as it is probably time for a checkpoint, because commits are slower
//!   the longer it is. One that does not grow is never looked at more often than the options say.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_env::{Instant, lock, sleep};

use crate::error::ReplicateError;
use crate::follower::Follower;
use crate::following::Following;
use crate::replicate::{Options, Status};

/// How long to wait after a checkpoint that has not led to a restart of the `-wal`: twice as long each time.
const CHECKPOINT_RETRY_MIN: Duration = Duration::from_millis(200);
const CHECKPOINT_RETRY_MAX: Duration = Duration::from_secs(5);

/// How long a checkpoint is tried again at a look, and the pause in between. A long transaction of the application must
/// not keep the looks at other databases waiting.
const CHECKPOINT_TRIES_MAX: Duration = Duration::from_millis(200);
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(5);

/// How often, and with which pause, the application's next moment without a write is waited for. A program that commits
/// without a pause leaves few of them.
const REST_TRIES_MAX: u32 = 20;
const REST_PAUSE: Duration = Duration::from_millis(1);

/// The shortest pause between two looks at a `-wal` that grows fast.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Since when something has changed that is not archived. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Behind(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    /// The bytes of the pages that had changed at the last look.
    bytes: u64,
    /// When a look succeeded last.
    looked_at: Option<Instant>,
    /// Whether a boundary was taken that is not stored yet. It is no longer news, but must be stored.
    is_taken: bool,
}

impl Behind {
    /// Continues with the lag that a former worker of this database has shown.
    pub fn from(status: &Status) -> Self {
        let Status { behind_since: since, behind_bytes: bytes, looked_at, .. } = *status;
        Self(Arc::new(Mutex::new(State { since, bytes, looked_at, is_taken: false })))
    }

    /// Shows what is known.
    pub fn show(&self, status: &mut Status) {
        let State { since, bytes, looked_at, .. } = *lock(&self.0);
        (status.behind_since, status.behind_bytes, status.looked_at) = (since, bytes, looked_at);
    }

    /// Whether there is something to archive.
    pub fn is_behind(&self) -> bool {
        lock(&self.0).since.is_some()
    }

    /// Records that a boundary was taken.
    pub fn taken(&self) {
        lock(&self.0).is_taken = true;
    }

    /// Records that the boundary that was taken at `at` is stored. Whatever has changed since then is found by the next
    /// look.
    pub fn stored(&self, at: Instant) {
        let mut state = lock(&self.0);
        (state.since, state.is_taken) = (Some(at), false);
    }

    /// Records a look that found news of so many bytes, or none.
    fn looked(&self, news: Option<u64>, now: Instant) {
        let mut state = lock(&self.0);
        state.looked_at = Some(now);
        if let Some(bytes) = news {
            state.since.get_or_insert(now);
            state.bytes = bytes;
        } else if !state.is_taken {
            (state.since, state.bytes) = (None, 0);
        }
    }

    /// Records that a look has failed. Something may have changed since the last one that succeeded.
    fn missed(&self) {
        let mut state = lock(&self.0);
        let since = state.looked_at.unwrap_or_else(Instant::now);
        state.since.get_or_insert(since);
    }
}

/// What looks at a database.
pub struct Looks {
    following: Following,
    behind: Behind,
    checkpoint_frames: u32,
    checkpoint_idle: Duration,
    changed_at: Instant,
    /// When a checkpoint was made last, and how many frames there were.
    checkpointed: Option<(Instant, u32)>,
    /// How long the next one waits if that one has not led to a restart.
    retry: Duration,
    interval: Duration,
    /// When the frames were counted last, and how many of them the next ones come after.
    counted: Option<(Instant, u32)>,
    pause: Duration,
}

impl Looks {
    pub fn new(following: Following, behind: Behind, options: &Options) -> Self {
        let Options { checkpoint_frames, checkpoint_idle, interval, .. } = *options;
        Self {
            following,
            behind,
            checkpoint_frames,
            checkpoint_idle,
            changed_at: Instant::now(),
            checkpointed: None,
            retry: CHECKPOINT_RETRY_MIN,
            interval,
            counted: None,
            pause: interval,
        }
    }

    /// Returns how long to wait until the next look.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// Looks at the database, and makes a checkpoint if it is time.
    pub async fn look(&mut self) -> Result<(), ReplicateError> {
        // If the look fails, nobody knows how fast the `-wal` grows.
        self.pause = self.interval;
        let news = self.following.with(Follower::news).await.inspect_err(|_| self.behind.missed())?;
        let now = Instant::now();
        if news.is_some() {
            self.changed_at = now;
        }
        self.behind.looked(news, now);
        match self.checkpoint(now).await {
            // The next look tries again.
            Err(ReplicateError::Busy) => Ok(()),
            made => made,
        }
    }

    /// Decides when to look again, after so many frames were counted.
    fn pace(&mut self, now: Instant, frames: u32) {
        if let Some((at, before)) = self.counted {
            // With fewer frames than before, the `-wal` was begun anew.
            let grown = if frames < before { frames } else { frames.saturating_sub(before) };
            let elapsed = now.saturating_duration_since(at);
            self.pause = paced(self.interval, self.checkpoint_frames, grown, elapsed);
        }
        self.counted = Some((now, frames));
    }

    /// Makes a checkpoint if the `-wal` is long, or if nothing has happened for a while.
    async fn checkpoint(&mut self, now: Instant) -> Result<(), ReplicateError> {
        let (frames, left) = self.following.with(Follower::wal_frames).await?;
        self.pace(now, frames);
        let is_idle = now.saturating_duration_since(self.changed_at) >= self.checkpoint_idle;
        let is_due = frames >= self.checkpoint_frames || (is_idle && left > 0);
        // Without a restart since the last one, there is either nothing to do or somebody in the way.
        self.checkpointed = self.checkpointed.filter(|(_, then)| frames >= *then);
        let is_early = |at: Instant| now.saturating_duration_since(at) < self.retry;
        let is_done = self.checkpointed.is_some_and(|(at, _)| left == 0 || is_early(at));
        if is_due && !is_done {
            let is_made = self.try_checkpoint(now).await?;
            self.retry = if is_made { CHECKPOINT_RETRY_MIN } else { CHECKPOINT_RETRY_MAX.min(2 * self.retry) };
            self.checkpointed = Some((now, frames));
            if is_made {
                // The next commit begins the `-wal` anew.
                self.counted = Some((Instant::now(), 0));
            }
        } else if left == 0 && frames > 0 {
            self.following.with(Follower::let_restart).await?;
        }
        Ok(())
    }

    /// Makes a checkpoint, and returns whether all frames are copied.
    ///
    /// A busy application is in the way at most moments, and not for long: each of its commits makes a checkpoint when
    /// the `-wal` is long. A `-wal` that is not begun anew grows, and then every commit is slower: it also makes the
    /// file longer.
    async fn try_checkpoint(&mut self, begun: Instant) -> Result<bool, ReplicateError> {
        loop {
            if self.following.with(Follower::copy).await? {
                for _ in 0..REST_TRIES_MAX {
                    if self.following.with(Follower::copy_rest).await? {
                        return Ok(true);
                    }
                    sleep(REST_PAUSE).await;
                }
            }
            if begun.elapsed() >= CHECKPOINT_TRIES_MAX {
                return Ok(false);
            }
            sleep(CHECKPOINT_PAUSE).await;
        }
    }
}

/// Returns the time in which a `-wal` gets so many frames that it is time for a checkpoint, if it goes on to grow as it
/// has in the time `elapsed`; at most the interval.
fn paced(interval: Duration, checkpoint_frames: u32, grown: u32, elapsed: Duration) -> Duration {
    if grown == 0 {
        return interval;
    }
    let time = elapsed.as_secs_f64() * f64::from(checkpoint_frames) / f64::from(grown);
    let time = Duration::try_from_secs_f64(time).unwrap_or(interval);
    time.max(PAUSE_MIN).min(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_the_time_to_the_next_checkpoint_and_never_longer_than_the_interval() {
        let second = Duration::from_secs(1);
        assert_eq!(paced(second, 1000, 0, second), second);
        assert_eq!(paced(second, 1000, 10, second), second);
        assert_eq!(paced(second, 1000, 4000, second), Duration::from_millis(250));
        assert_eq!(paced(second, 1000, 1000, second / 20), second / 20);
        assert_eq!(paced(second, 1000, u32::MAX, second), PAUSE_MIN);
        assert_eq!(paced(PAUSE_MIN / 2, 1000, u32::MAX, second), PAUSE_MIN / 2);
        assert_eq!(paced(second, u32::MAX, 1, Duration::MAX), second);
    }
}
