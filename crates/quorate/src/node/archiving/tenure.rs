//! The time in which this node archives: entries at an interval, and meanwhile boundaries at a longer one.
//!
//! Invariant: entries do not wait for boundaries, whose pages may take minutes to be read and sent.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use quorate_archive::{ArchiveError, Archiver};
use quorate_consensus::{EntriesError, Group};
use quorate_env::Instant;
use quorate_model::StoreFault;
use tokio::sync::watch;

use super::boundaries::Boundaries;
use super::tail::Tail;
use super::{Duty, PAUSE_FIRST, PAUSE_LONGEST};

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
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Archive(error) => error.is_retryable(),
            Self::Store(_) => true,
            Self::Log(_) | Self::Ended => false,
        }
    }
}

/// The pauses after failures that pass. They grow until something succeeds.
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSE_FIRST)
    }
}

impl Pauses {
    pub(super) async fn pause(&mut self) {
        quorate_env::sleep(self.0).await;
        self.0 = PAUSE_LONGEST.min(self.0.saturating_mul(2));
    }
}

/// How far the entries are archived, for the boundaries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// The last archived entry.
    pub(super) entry: u64,
    /// The bytes of all entries that were archived in this tenure.
    pub(super) bytes: u64,
    /// The entry that a boundary has to hold before more entries can be archived, because the log lacks some before.
    pub(super) needed: u64,
}

/// The archiver at work.
pub(super) struct Tenure {
    tail: Tail,
    boundaries: Boundaries,
}

impl Tenure {
    /// Finds out where the archive ends, so that this node can go on from there.
    pub(super) async fn begin(duty: &Duty, mut archiver: Archiver, group: Group) -> Result<Self, Failed> {
        archiver.set_tidying(duty.archive.tidying);
        archiver.set_sizes(duty.archive.sizes);
        let end = archiver.end().await?;
        let entries = archiver.entries();
        let (reach, reached) = watch::channel(Reached::default());
        let mut boundaries = Boundaries::new(duty, archiver, reached).await?;
        let entry = match end {
            Some(end) => {
                boundaries.continue_after(end.boundary);
                end.entry
            }
            None => {
                // Nothing is archived before the first boundary is, which may take minutes.
                duty.state.update(|progress| progress.behind_since = Some(Instant::now()));
                boundaries.put().await?
            }
        };
        reach.send_modify(|reached| reached.entry = entry);
        let tail = Tail::new(duty, entries, group, reach, boundaries.watch());
        tracing::info!(event = "archiving", next = entry.saturating_add(1), "this node archives");
        Ok(Self { tail, boundaries })
    }

    /// Works until it can't go on.
    pub(super) async fn work(&mut self) -> Failed {
        match select(self.tail.work().boxed(), self.boundaries.work().boxed()).await {
            Either::Left((failed, _)) | Either::Right((failed, _)) => failed,
        }
    }

    /// Whether something has succeeded.
    pub(super) fn has_worked(&self) -> bool {
        self.tail.has_worked || self.boundaries.has_worked
    }
}
