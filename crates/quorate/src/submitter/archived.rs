//! Writes that return only when they are archived.
//!
//! Invariants:
//! - A write counts as archived only if the archiver has said so, of its entry or of a later one of the same history.
//! - However many writes wait, one request asks on behalf of all of them. It asks for any progress, so each waits no
//!   longer than it has to.
//! - An error after the write is [`Error::NotArchived`], because the write was done.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use quorate_env::{Instant, timeout_at};
use quorate_model::Position;
use tokio::sync::{Mutex, Semaphore};

use super::Submitter;
use crate::error::Error;

/// How many writes may wait for the archive at once: on one handle with its clones, and on one node for its clients.
const ARCHIVE_WAITERS_MAX: usize = 4_096;

const LATE: &str = "the archive did not get there in time";

/// When a write returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Acknowledge {
    /// When it is committed and applied.
    #[default]
    Applied,
    /// When it is archived, too.
    Archived,
}

impl Acknowledge {
    /// Begins a call that writes. Fails if it is known that no node archives.
    pub(crate) async fn begin(self, submitter: &Submitter, limit: Duration) -> Result<Due, Error> {
        let deadline = submitter.runtime().inside(|| Instant::now() + limit).map_err(|_| Error::Closed)?;
        if self == Self::Archived {
            submitter.check_archive(limit).await?;
        }
        Ok(Due { acknowledge: self, deadline })
    }
}

/// A write that is under way, until it may be acknowledged.
pub(crate) struct Due {
    acknowledge: Acknowledge,
    deadline: Instant,
}

impl Due {
    /// Returns the time that is left for the call.
    pub(crate) fn left(&self, submitter: &Submitter) -> Result<Duration, Error> {
        let left = || self.deadline.saturating_duration_since(Instant::now());
        submitter.runtime().inside(left).map_err(|_| Error::Closed)
    }

    /// Waits until the write at this position may be acknowledged.
    pub(crate) async fn reach(self, submitter: &Submitter, position: Position) -> Result<(), Error> {
        match self.acknowledge {
            Acknowledge::Applied => Ok(()),
            Acknowledge::Archived => {
                let unknown = |error: Error| Error::NotArchived { position, why: error.reason() };
                let left = self.left(submitter).map_err(unknown)?;
                submitter.archived(position, left).await.map_err(unknown)
            }
        }
    }
}

/// How far an archive is known to have come, and those who wait for it.
pub(crate) struct Archived {
    /// The last position that is known to be archived. Whoever holds the lock may ask for a later one.
    known: Mutex<Option<Position>>,
    waiters: Semaphore,
}

impl Default for Archived {
    fn default() -> Self {
        Self { known: Mutex::default(), waiters: Semaphore::new(ARCHIVE_WAITERS_MAX) }
    }
}

impl Archived {
    /// Waits until a position is archived, and returns the last archived index. `ask` returns that index as soon as
    /// it is not lower than the one that it is given.
    pub(crate) async fn reach<F: Future<Output = Result<u64, Error>>>(
        &self,
        position: Position,
        deadline: Instant,
        ask: impl Fn(Position) -> F,
    ) -> Result<u64, Error> {
        let many = |_| Error::Overloaded(format!("{ARCHIVE_WAITERS_MAX} writes wait for the archive").into());
        let _waits = self.waiters.try_acquire().map_err(many)?;
        let reached = async {
            let mut known = self.known.lock().await;
            loop {
                // What was archived of another history says nothing about this one.
                let of_same = known.filter(|known| (known.epoch, known.group) == (position.epoch, position.group));
                let last = of_same.map_or(0, |known| known.index);
                if last >= position.index {
                    return Ok(last);
                }
                let next = Position { index: last.saturating_add(1), ..position };
                let index = ask(next).await?;
                if index < next.index {
                    return Err(Error::Unavailable("the archiver has answered too early".into()));
                }
                *known = Some(Position { index, ..position });
            }
        };
        timeout_at(deadline, reached).await.unwrap_or_else(|_| Err(Error::TimedOut(LATE.into())))
    }
}

/// What a handle knows of the archive.
#[derive(Default)]
pub(super) struct Archiving {
    archived: Archived,
    /// Whether there was an archiver when this handle heard of it last.
    has_archiver: AtomicBool,
}

impl Submitter {
    /// Fails if it is known that no node archives.
    async fn check_archive(&self, limit: Duration) -> Result<(), Error> {
        if self.archiving.has_archiver.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.until_served(limit, |deadline| self.transport.archived(None, deadline)).await?;
        self.archiving.has_archiver.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until a position is archived.
    async fn archived(&self, position: Position, limit: Duration) -> Result<(), Error> {
        let reached = self.until_served(limit, |deadline| {
            let ask = move |next| self.transport.archived(Some(next), deadline);
            self.archiving.archived.reach(position, deadline, ask).boxed()
        });
        let reached = reached.await;
        if reached.is_err() {
            // The next write finds out first whether there still is an archiver.
            self.archiving.has_archiver.store(false, Ordering::Relaxed);
        }
        reached.map(drop)
    }
}

#[cfg(test)]
mod tests;
