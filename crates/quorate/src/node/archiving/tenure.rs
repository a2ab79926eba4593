//! The time in which this node archives: entries at an interval, boundaries at a longer one, and tidying up.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use quorate_archive::entries::SEGMENT_BYTES;
use quorate_archive::{ArchiveError, Archiver, Changed, End, PageSource, Put};
use quorate_consensus::{EntriesError, Group};
use quorate_env::mutant::Mutant;
use quorate_env::{Env, Instant, sleep_until, timeout_at};
use quorate_model::{Applied, StoreFault};
use quorate_sql::capture::{self, Boundary, Capture};
use quorate_sql::store::SqlStore;
use tokio::sync::watch;

use super::{ArchiveState, Duty, PAUSE_FIRST, PAUSE_LONGEST};
use crate::archive::{Archive, record};

/// The bytes of entries after which a boundary is taken, however long ago the last one was: a restore has to apply
/// them.
const BOUNDARY_BYTES: usize = 16 << 20;

/// The nanoseconds of a millisecond.
const NANOS_PER_MILLI: u64 = 1_000_000;

/// Why archiving stops or pauses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("the log: {0}")]
    Log(#[from] EntriesError),
    #[error("the database: {0}")]
    Store(#[from] StoreFault),
    #[error("the node ends")]
    Ended,
}

impl Failed {
    /// Whether the same archiver may go on after a pause.
    fn is_passing(&self) -> bool {
        match self {
            Self::Archive(error) => error.is_retryable(),
            Self::Store(_) => true,
            Self::Log(_) | Self::Ended => false,
        }
    }
}

/// The archiver at work.
pub(super) struct Tenure {
    env: Env,
    state: Arc<ArchiveState>,
    archive: Archive,
    archiver: Archiver,
    group: Group,
    applied: watch::Receiver<Applied>,
    capture: Option<Capture>,
    /// The next entry that is to be archived.
    next: u64,
    /// The last entry that is in the last boundary; `None` before the first.
    boundary: Option<u64>,
    /// The bytes of the entries that were archived since.
    bytes: usize,
    /// When entries, and a boundary, may be put next.
    entries_at: Instant,
    boundary_at: Instant,
    tidy_at: Instant,
    is_tidy: bool,
}

impl Tenure {
    /// Finds out where the archive ends, so that this node can go on from there.
    pub(super) async fn begin(duty: &Duty, mut archiver: Archiver, group: Group) -> Result<Self, Failed> {
        archiver.set_tidying(duty.archive.tidying);
        archiver.set_sizes(duty.archive.sizes);
        let end = archiver.end().await?;
        let capture = capture(&duty.env, &duty.store).await?;
        let now = Instant::now();
        let End { boundary, entry } = end.unwrap_or(End { boundary: 0, entry: 0 });
        let next = entry.saturating_add(1);
        group.keep_from(Some(next));
        let mut tenure = Self {
            env: duty.env.clone(),
            state: Arc::clone(&duty.state),
            archive: duty.archive.clone(),
            archiver,
            group,
            applied: duty.store.watch_applied(),
            capture: Some(capture),
            next,
            boundary: end.map(|_| boundary),
            bytes: 0,
            entries_at: now,
            boundary_at: now.checked_add(duty.archive.boundary).unwrap_or(now),
            tidy_at: now.checked_add(duty.archive.tidying.every).unwrap_or(now),
            is_tidy: false,
        };
        if end.is_none() {
            // Nothing is archived before the first boundary is, which may take minutes.
            tenure.state.update(|progress| progress.behind_since = Some(now));
            tenure.put_boundary().await?;
        }
        tracing::info!(event = "archiving", next = tenure.next, "this node archives");
        tenure.tell();
        Ok(tenure)
    }

    /// Works until it can't go on.
    pub(super) async fn work(&mut self, pause: &mut Duration) -> Failed {
        loop {
            self.wait().await;
            match self.step().await {
                Ok(()) => {
                    *pause = PAUSE_FIRST;
                    self.tell();
                }
                Err(failed) if failed.is_passing() => {
                    self.state.failed(&failed);
                    quorate_env::sleep(*pause).await;
                    *pause = PAUSE_LONGEST.min(pause.saturating_mul(2));
                }
                Err(failed) => return failed,
            }
        }
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        while !self.has_entries() {
            let due = match self.has_boundary() {
                true => Some(self.boundary_at),
                false => Some(self.tidy_at).filter(|_| !self.is_tidy),
            };
            let changed = self.applied.changed();
            let ended = match due {
                Some(due) => match timeout_at(due, changed).await {
                    Ok(changed) => changed.is_err(),
                    Err(_) => return,
                },
                None => changed.await.is_err(),
            };
            if ended {
                // The node ends, and with it the task.
                return std::future::pending().await;
            }
        }
        self.state.update(|progress| progress.behind_since = progress.behind_since.or_else(|| Some(Instant::now())));
        // Entries that arrive meanwhile go along.
        let interval = Instant::now().checked_add(self.archive.interval);
        sleep_until(interval.map_or(self.entries_at, |at| at.max(self.entries_at))).await;
    }

    fn has_entries(&self) -> bool {
        self.applied.borrow().index() >= self.next
    }

    /// Whether something was applied since the last boundary.
    fn has_boundary(&self) -> bool {
        self.applied.borrow().index() > self.boundary.unwrap_or(0)
    }

    async fn step(&mut self) -> Result<(), Failed> {
        self.archiver.settle().await?;
        let begun = Instant::now();
        self.put_entries().await?;
        if self.has_boundary() && (begun >= self.boundary_at || self.bytes >= BOUNDARY_BYTES) {
            self.put_boundary().await?;
        }
        if !self.is_tidy && begun >= self.tidy_at {
            let keep = self.archive.keep;
            self.archiver.tidy(i64::try_from(self.env.unix_nanos() / NANOS_PER_MILLI).unwrap_or(0), keep).await?;
            self.is_tidy = true;
        }
        Ok(())
    }

    /// Archives all entries that were applied. Those that are applied meanwhile go along with the next ones, so that
    /// the interval bounds the requests.
    async fn put_entries(&mut self) -> Result<(), Failed> {
        let until = self.applied.borrow().index();
        while self.next <= until {
            let entries = match self.group.entries(self.next, SEGMENT_BYTES).await {
                // The next boundary holds what these entries did.
                Err(EntriesError::Purged { from, first }) => {
                    tracing::warn!(
                        event = "archive_gap",
                        from,
                        first,
                        "the log no longer has these entries: the states between them can't be restored, later ones can"
                    );
                    return self.put_boundary().await;
                }
                entries => entries?,
            };
            let Some(last) = entries.last().map(|entry| entry.log_id.index) else { return Ok(()) };
            let first = entries.first().map_or(self.next, |entry| entry.log_id.index);
            let records: Vec<_> = entries.iter().map(record::encode).collect();
            let bytes = records.iter().map(bytes::Bytes::len).fold(0, usize::saturating_add);
            let put = self.archiver.put_entries(first, records).await;
            if put.is_err() && Mutant::EntryMissingBetween.is_on() {
                self.next = self.next.saturating_add(1);
            }
            put?;
            self.bytes = self.bytes.saturating_add(bytes);
            self.is_archived_to(last);
            self.later();
        }
        Ok(())
    }

    /// Archives the pages that have changed.
    async fn put_boundary(&mut self) -> Result<(), Failed> {
        let capture = self.capture.take().ok_or(Failed::Ended)?;
        let taken = self.env.blocking(move || {
            let mut capture = capture;
            let boundary = capture.boundary();
            (capture, boundary)
        });
        let (capture, boundary) = taken.await.ok_or(Failed::Ended)?;
        self.capture = Some(capture);
        let source = Source::new(boundary?);
        let index = source.index;
        let put = self.archiver.put_pages(Box::new(source)).await?;
        if put != Put::Unchanged {
            tracing::debug!(index, ?put, "a boundary was archived");
            self.is_tidy = false;
        }
        self.boundary = Some(index);
        self.bytes = 0;
        let now = Instant::now();
        self.boundary_at = now.checked_add(self.archive.boundary).unwrap_or(now);
        if self.next <= index {
            self.is_archived_to(index);
        }
        self.later();
        Ok(())
    }

    /// Records that everything up to this entry is archived.
    fn is_archived_to(&mut self, index: u64) {
        self.next = index.saturating_add(1);
        self.group.keep_from(Some(self.next));
        if self.is_tidy {
            let now = Instant::now();
            self.tidy_at = now.checked_add(self.archive.tidying.every).unwrap_or(now);
            self.is_tidy = false;
        }
        self.tell();
    }

    /// Nothing more is put before the interval has passed.
    fn later(&mut self) {
        let now = Instant::now();
        self.entries_at = now.checked_add(self.archive.interval).unwrap_or(now);
    }

    /// Tells how far this has come.
    fn tell(&self) {
        let (archived, boundary) = (self.next.saturating_sub(1), self.boundary.unwrap_or(0));
        let is_behind = self.has_entries();
        self.state.update(|progress| {
            (progress.archived, progress.boundary) = (archived, boundary);
            progress.behind_since = is_behind.then(|| progress.behind_since.unwrap_or_else(Instant::now));
            progress.failure = None;
        });
    }
}

async fn capture(env: &Env, store: &SqlStore) -> Result<Capture, Failed> {
    let store = store.clone();
    Ok(env.blocking(move || store.capture()).await.ok_or(Failed::Ended)??)
}

/// A boundary of the store, for the archive.
struct Source {
    boundary: Boundary,
    index: u64,
}

impl Source {
    fn new(boundary: Boundary) -> Self {
        let index = boundary.applied().index();
        Self { boundary, index }
    }
}

impl PageSource for Source {
    fn index(&self) -> u64 {
        self.index
    }

    fn time(&self) -> i64 {
        i64::try_from(self.boundary.stamp() / NANOS_PER_MILLI).unwrap_or(i64::MAX)
    }

    fn page_size(&self) -> u32 {
        self.boundary.page_size()
    }

    fn pages(&self) -> u32 {
        self.boundary.pages()
    }

    fn changed(&self) -> Changed {
        match self.boundary.changed() {
            capture::Changed::All => Changed::All,
            capture::Changed::Pages(pages) => Changed::Pages(pages.clone()),
        }
    }

    fn read(&mut self, number: u32, page: &mut [u8]) -> io::Result<()> {
        self.boundary.read(number, page).map_err(io::Error::other)
    }

    fn kept(self: Box<Self>) {
        self.boundary.kept();
    }
}
