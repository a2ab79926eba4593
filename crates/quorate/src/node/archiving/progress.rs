//! How far the archiver of this node has come, for its status and for those who wait.

use std::sync::{Arc, Mutex};

use quorate_archive::Requests;
use quorate_env::metrics::{Counter, Gauge};
use quorate_env::{Instant, Throttle, lock};
use tokio::sync::watch;

use super::tenure::Failed;
use crate::archive::metrics::ArchiveMetrics;
use crate::status::ArchiveStatus;

/// How far the archiver has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Whether this node is the archiver.
    pub(crate) is_archiver: bool,
    /// The last entry up to which everything is archived.
    pub(crate) archived: u64,
    /// The last entry that is in the last boundary.
    pub(crate) boundary: u64,
    /// Since when something waits to be archived.
    pub(crate) behind_since: Option<Instant>,
    /// The last failure of each part of the work, if the part has not succeeded since.
    pub(crate) entries_failure: Option<String>,
    pub(crate) boundary_failure: Option<String>,
}

/// The parts of the work, which fail and succeed by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// To archive entries, and to begin.
    Entries,
    /// To archive boundaries, and to tidy up.
    Boundaries,
}

/// The progress of the archiver of a node.
#[derive(Debug)]
pub(crate) struct ArchiveState {
    progress: watch::Sender<Progress>,
    failures: Mutex<u64>,
    told: Throttle,
    /// What was asked of the store.
    pub(super) requests: Arc<Requests>,
    rehearsed: Gauge,
    rehearsal_failures: Counter,
}

impl Default for ArchiveState {
    fn default() -> Self {
        let progress = watch::Sender::new(Progress::default());
        Self {
            progress,
            failures: Mutex::new(0),
            told: Throttle::default(),
            requests: Arc::default(),
            rehearsed: Gauge::default(),
            rehearsal_failures: Counter::default(),
        }
    }
}

impl ArchiveState {
    /// Returns how far the archiver has come, if this node is it.
    pub(crate) fn status(&self) -> Option<ArchiveStatus> {
        let Progress { is_archiver, archived, boundary, behind_since, entries_failure, boundary_failure } =
            self.progress.borrow().clone();
        is_archiver.then(|| ArchiveStatus {
            archived_index: archived,
            boundary_index: boundary,
            lag: behind_since.map(|since| since.elapsed()).unwrap_or_default(),
            failures: *lock(&self.failures),
            failure: entries_failure.or(boundary_failure),
            rehearsed_at: Some(self.rehearsed.get()).filter(|time| *time > 0),
        })
    }

    /// Returns what was counted.
    pub(crate) fn metrics(&self) -> ArchiveMetrics {
        ArchiveMetrics {
            requests: Requests::clone(&self.requests),
            rehearsed: self.rehearsed.clone(),
            rehearsal_failures: self.rehearsal_failures.clone(),
        }
    }

    /// Waits until the archive has come this far, if this node is the archiver; returns how far it has come.
    pub(crate) async fn reached(&self, index: u64) -> u64 {
        let mut progress = self.progress.subscribe();
        let reached = progress.wait_for(|progress| progress.is_archiver && progress.archived >= index).await;
        // The sender is not dropped before `self`.
        reached.map_or(0, |progress| progress.archived)
    }

    /// Counts a rehearsal that ended at `time`, in seconds since 1970.
    pub(crate) fn rehearsed(&self, is_sound: bool, time: u64) {
        match is_sound {
            true => self.rehearsed.set(time),
            false => self.rehearsal_failures.inc(),
        }
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Progress)) {
        self.progress.send_modify(change);
    }

    pub(super) fn failed(&self, part: Part, failed: &Failed) {
        let text = failed.to_string();
        if self.told.is_due() {
            tracing::warn!(event = "archive_failed", error = text, "archiving failed, and is tried again");
        }
        let mut failures = lock(&self.failures);
        *failures = failures.saturating_add(1);
        drop(failures);
        self.update(|progress| match part {
            Part::Entries => progress.entries_failure = Some(text),
            Part::Boundaries => progress.boundary_failure = Some(text),
        });
    }
}
