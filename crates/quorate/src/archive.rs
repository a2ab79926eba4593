//! The archive: everything that the cluster applies goes to object storage, and a restore reaches any entry.
//!
//! A node that has an [`Archive`] in its [`Config`](crate::Config) may become the cluster's archiver, which writes it.
//! [`fetch`] makes a backup of the state after any archived entry, for [`restore`](crate::restore()). [`rehearse`]
//! compares the archive with the nodes.
//! `docs/archive.md` says what this promises.
//!
//! Invariant: a write counts as archived only when the store has confirmed the object with its entry.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

mod fetch;
mod first;
pub(crate) mod metrics;
pub(crate) mod record;
mod rehearse;

pub(crate) use fetch::fetch_unchecked;
pub use fetch::{FetchError, FetchOptions, Fetched, fetch};
pub use first::FirstState;
pub use quorate_archive::restore::{Plan, Progress, Target, TellProgress, clusters, manifest, only_cluster};
pub use quorate_archive::{
    ArchiveError, Counting, File, Generation, Manifest, Objects, Pruned, Requests, objects, prune,
};
#[doc(hidden)]
pub use quorate_archive::{Sizes, Tidying};
pub use rehearse::{RehearseError, rehearse};

/// How often entries are archived, while some are written.
pub const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

/// How often the pages that have changed are archived, while some have.
pub const BOUNDARY_DEFAULT: Duration = Duration::from_secs(30);

/// Where and how a cluster is archived. The same on all of its nodes.
#[derive(Clone)]
#[non_exhaustive]
pub struct Archive {
    /// The store.
    pub objects: Arc<dyn Objects>,
    /// How often entries are archived, while some are written. What is written within this time is lost if all nodes
    /// are.
    pub interval: Duration,
    /// How often the pages that have changed are archived. A restore applies the entries since then.
    pub boundary: Duration,
    /// How long states of the database can be restored; `None` for ever.
    pub keep: Option<Duration>,
    /// How late the archive may be while the archiver is ready; `None` for any time.
    pub ready_lag: Option<Duration>,
    /// How the archive is kept tidy. For simulations.
    #[doc(hidden)]
    pub tidying: Tidying,
    /// The sizes of what is sent to the store. For simulations.
    #[doc(hidden)]
    pub sizes: Sizes,
}

impl Archive {
    /// Returns an archive in a store, which keeps everything for ever.
    pub fn new(objects: Arc<dyn Objects>) -> Self {
        Self {
            objects,
            interval: INTERVAL_DEFAULT,
            boundary: BOUNDARY_DEFAULT,
            keep: None,
            ready_lag: None,
            tidying: Tidying::default(),
            sizes: Sizes::default(),
        }
    }

    /// Sets how often entries are archived.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets how often pages are archived.
    #[must_use]
    pub fn with_boundary(mut self, boundary: Duration) -> Self {
        self.boundary = boundary;
        self
    }

    /// Sets how long states can be restored.
    #[must_use]
    pub fn with_keep(mut self, keep: Option<Duration>) -> Self {
        self.keep = keep;
        self
    }

    /// Sets how late the archive may be while the archiver is ready.
    #[must_use]
    pub fn with_ready_lag(mut self, ready_lag: Option<Duration>) -> Self {
        self.ready_lag = ready_lag;
        self
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, interval, boundary, keep, .. } = self;
        let mut archive = f.debug_struct("Archive");
        archive.field("objects", objects).field("interval", interval).field("boundary", boundary).field("keep", keep);
        archive.finish()
    }
}

impl PartialEq for Archive {
    fn eq(&self, other: &Self) -> bool {
        let Self { objects, interval, boundary, keep, ready_lag, tidying, sizes } = self;
        let is_same_store = Arc::ptr_eq(objects, &other.objects);
        let of_other = (other.interval, other.boundary, other.keep, other.ready_lag, other.tidying, other.sizes);
        is_same_store && (*interval, *boundary, *keep, *ready_lag, *tidying, *sizes) == of_other
    }
}
