//! Archives boundaries, which are the pages that have changed, and keeps the archive tidy.
//!
//! Invariant: when no entry is archived, nothing is done.

use std::io;
use std::sync::Arc;

use quorate_archive::{Archiver, Changed, PageSource, Put};
use quorate_env::{Env, Instant, timeout_at};
use quorate_sql::capture::{self, Boundary, Capture};
use quorate_sql::store::SqlStore;
use tokio::sync::watch;

use super::progress::Part;
use super::tenure::{Failed, Pauses, Reached};
use super::{ArchiveState, Duty};
use crate::archive::Archive;

/// The bytes of entries after which a boundary is taken, however long ago the last one was: a restore has to apply
/// them.
const BOUNDARY_BYTES: u64 = 16 << 20;

/// The nanoseconds of a millisecond.
const NANOS_PER_MILLI: u64 = 1_000_000;

/// What archives boundaries.
pub(super) struct Boundaries {
    env: Env,
    state: Arc<ArchiveState>,
    archive: Archive,
    archiver: Archiver,
    capture: Option<Capture>,
    reached: watch::Receiver<Reached>,
    /// The last entry that is in the last boundary; 0 before the first.
    boundary: watch::Sender<u64>,
    /// The bytes of the entries that were archived when the last boundary was taken.
    bytes: u64,
    /// When the next boundary may be taken.
    at: Instant,
    tidy_at: Instant,
    is_tidy: bool,
    /// Whether something has succeeded.
    pub(super) has_worked: bool,
}

impl Boundaries {
    pub(super) async fn new(
        duty: &Duty,
        archiver: Archiver,
        reached: watch::Receiver<Reached>,
    ) -> Result<Self, Failed> {
        let capture = capture(&duty.env, &duty.store).await?;
        let now = Instant::now();
        Ok(Self {
            env: duty.env.clone(),
            state: Arc::clone(&duty.state),
            archive: duty.archive.clone(),
            archiver,
            capture: Some(capture),
            reached,
            boundary: watch::Sender::new(0),
            bytes: 0,
            at: now.checked_add(duty.archive.boundary).unwrap_or(now),
            tidy_at: now.checked_add(duty.archive.tidying.every).unwrap_or(now),
            is_tidy: false,
            has_worked: false,
        })
    }

    /// Continues a chain whose last boundary holds this entry.
    pub(super) fn continue_after(&self, boundary: u64) {
        self.boundary.send_replace(boundary);
        self.tell();
    }

    /// Returns the last entry that is in the last boundary, from now on.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.boundary.subscribe()
    }

    /// Works until it can't go on.
    pub(super) async fn work(&mut self) -> Failed {
        let mut pauses = Pauses::default();
        loop {
            self.wait().await;
            match self.step().await {
                Ok(()) => {
                    pauses = Pauses::default();
                    self.has_worked = true;
                    self.tell();
                }
                Err(failed) if failed.is_passing() => {
                    self.state.failed(Part::Boundaries, &failed);
                    pauses.pause().await;
                }
                Err(failed) => return failed,
            }
        }
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        loop {
            let now = Instant::now();
            let tidy_at = Some(self.tidy_at).filter(|_| !self.is_tidy);
            if self.is_boundary_due(now) || tidy_at.is_some_and(|at| now >= at) {
                return;
            }
            let boundary_at = Some(self.at).filter(|_| self.has_boundary());
            let at = boundary_at.into_iter().chain(tidy_at).min();
            let changed = self.reached.changed();
            let changed = match at {
                Some(at) => timeout_at(at, changed).await.ok(),
                None => Some(changed.await),
            };
            match changed {
                Some(Ok(())) => self.untidy(),
                // The node ends, and with it the task.
                Some(Err(_)) => return std::future::pending().await,
                None => {}
            }
        }
    }

    /// Whether something was archived since the last boundary.
    fn has_boundary(&self) -> bool {
        let reached = *self.reached.borrow();
        reached.entry.max(reached.needed) > *self.boundary.borrow()
    }

    fn is_boundary_due(&self, now: Instant) -> bool {
        let Reached { bytes, needed, .. } = *self.reached.borrow();
        let is_much = bytes.saturating_sub(self.bytes) >= BOUNDARY_BYTES;
        needed > *self.boundary.borrow() || (self.has_boundary() && (is_much || now >= self.at))
    }

    async fn step(&mut self) -> Result<(), Failed> {
        let begun = Instant::now();
        if self.is_boundary_due(begun) {
            self.put().await?;
        }
        if !self.is_tidy && begun >= self.tidy_at {
            let keep = self.archive.keep;
            self.archiver.tidy(i64::try_from(self.env.unix_nanos() / NANOS_PER_MILLI).unwrap_or(0), keep).await?;
            self.is_tidy = true;
        }
        Ok(())
    }

    /// Archives the pages that have changed, and returns the last entry whose changes they hold.
    pub(super) async fn put(&mut self) -> Result<u64, Failed> {
        let bytes = self.reached.borrow().bytes;
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
            self.untidy();
        }
        self.boundary.send_replace(index);
        self.bytes = bytes;
        let now = Instant::now();
        self.at = now.checked_add(self.archive.boundary).unwrap_or(now);
        self.tell();
        Ok(index)
    }

    /// There will be something to tidy up.
    fn untidy(&mut self) {
        if std::mem::take(&mut self.is_tidy) {
            let now = Instant::now();
            self.tidy_at = now.checked_add(self.archive.tidying.every).unwrap_or(now);
        }
    }

    /// Tells how far this has come.
    fn tell(&self) {
        let boundary = *self.boundary.borrow();
        self.state.update(|progress| {
            progress.boundary = boundary;
            progress.boundary_failure = None;
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
