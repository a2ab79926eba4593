//! Archives entries soon after they were applied.
//!
//! Invariants:
//! - Entries are archived in their order, and none is left out that the log still has.
//! - The log keeps what is not archived yet.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_archive::EntryArchiver;
use quorate_archive::entries::SEGMENT_BYTES;
use quorate_consensus::{EntriesError, Group};
use quorate_env::mutant::Mutant;
use quorate_env::{Instant, sleep_until};
use quorate_model::Applied;
use tokio::sync::watch;

use super::progress::Part;
use super::tenure::{Failed, Pauses, Reached};
use super::{ArchiveState, Duty};
use crate::archive::record;

/// What archives entries.
pub(super) struct Tail {
    state: Arc<ArchiveState>,
    entries: EntryArchiver,
    group: Group,
    applied: watch::Receiver<Applied>,
    reach: watch::Sender<Reached>,
    /// The last entry that is in the last boundary.
    boundary: watch::Receiver<u64>,
    interval: Duration,
    /// The next entry that is to be archived.
    next: u64,
    /// When entries may be put next.
    at: Instant,
    /// Whether something has succeeded.
    pub(super) has_worked: bool,
}

impl Tail {
    /// Begins after the entry that is reached.
    pub(super) fn new(
        duty: &Duty,
        entries: EntryArchiver,
        group: Group,
        reach: watch::Sender<Reached>,
        boundary: watch::Receiver<u64>,
    ) -> Self {
        let next = reach.borrow().entry.saturating_add(1);
        let tail = Self {
            state: Arc::clone(&duty.state),
            entries,
            group,
            applied: duty.store.watch_applied(),
            reach,
            boundary,
            interval: duty.archive.interval,
            next,
            at: Instant::now(),
            has_worked: false,
        };
        tail.group.keep_from(Some(next));
        tail.tell();
        tail
    }

    /// Works until it can't go on.
    pub(super) async fn work(&mut self) -> Failed {
        let mut pauses = Pauses::default();
        loop {
            self.wait().await;
            match self.put().await {
                Ok(()) => {
                    pauses = Pauses::default();
                    self.has_worked = true;
                    self.tell();
                }
                Err(failed) if failed.is_passing() => {
                    self.state.failed(Part::Entries, &failed);
                    pauses.pause().await;
                }
                Err(failed) => return failed,
            }
        }
    }

    /// Waits until there are entries, and the interval has passed.
    async fn wait(&mut self) {
        while !self.has_entries() {
            if self.applied.changed().await.is_err() {
                // The node ends, and with it the task.
                return std::future::pending().await;
            }
        }
        self.state.update(|progress| progress.behind_since = progress.behind_since.or_else(|| Some(Instant::now())));
        // Entries that arrive meanwhile go along.
        let interval = Instant::now().checked_add(self.interval);
        sleep_until(interval.map_or(self.at, |at| at.max(self.at))).await;
    }

    fn has_entries(&self) -> bool {
        self.applied.borrow().index() >= self.next
    }

    /// Archives all entries that were applied. Those that are applied meanwhile go along with the next ones, so that
    /// the interval bounds the requests.
    async fn put(&mut self) -> Result<(), Failed> {
        let until = self.applied.borrow().index();
        while self.next <= until {
            let entries = match self.group.entries(self.next, SEGMENT_BYTES).await {
                Err(EntriesError::Purged { from, first }) => {
                    tracing::warn!(
                        event = "archive_gap",
                        from,
                        first,
                        "the log no longer has these entries: the states between them can't be restored, later ones can"
                    );
                    self.skip_to(first).await?;
                    continue;
                }
                entries => entries?,
            };
            let Some(last) = entries.last().map(|entry| entry.log_id.index) else { return Ok(()) };
            let first = entries.first().map_or(self.next, |entry| entry.log_id.index);
            let records: Vec<_> = entries.iter().map(record::encode).collect();
            let bytes = records.iter().map(Bytes::len).fold(0, usize::saturating_add);
            let put = self.entries.put(first, records).await;
            if put.is_err() && Mutant::EntryMissingBetween.is_on() {
                self.next = self.next.saturating_add(1);
            }
            put?;
            self.reaches(last, bytes);
            let now = Instant::now();
            self.at = now.checked_add(self.interval).unwrap_or(now);
        }
        Ok(())
    }

    /// Goes on with the entry `first`, once a boundary holds what the entries before it did.
    async fn skip_to(&mut self, first: u64) -> Result<(), Failed> {
        let needed = first.saturating_sub(1);
        self.reach.send_modify(|reached| reached.needed = needed);
        self.boundary.wait_for(|boundary| *boundary >= needed).await.map_err(|_| Failed::Ended)?;
        self.reaches(needed, 0);
        Ok(())
    }

    /// Records that everything up to this entry is archived.
    fn reaches(&mut self, entry: u64, bytes: usize) {
        self.next = entry.saturating_add(1);
        self.group.keep_from(Some(self.next));
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.reach.send_modify(|reached| {
            reached.entry = entry;
            reached.bytes = reached.bytes.saturating_add(bytes);
        });
        self.tell();
    }

    /// Tells how far this has come.
    fn tell(&self) {
        let (archived, is_behind) = (self.next.saturating_sub(1), self.has_entries());
        self.state.update(|progress| {
            progress.archived = archived;
            progress.behind_since = is_behind.then(|| progress.behind_since.unwrap_or_else(Instant::now));
            progress.entries_failure = None;
        });
    }
}
