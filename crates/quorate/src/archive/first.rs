//! The archived state with which a new cluster begins.

use std::fmt;
use std::sync::Arc;

use quorate_archive::Objects;
use quorate_archive::restore::Target;
use quorate_consensus::ClusterId;

/// The archived state with which a new cluster begins. The same on all of its nodes.
///
/// The node that would found the cluster restores it, once all other members have said that they belong to none, and
/// is the cluster; the others join it. Where there is a cluster, nothing is restored: not on a restart, and not on a
/// node that lost its directory.
#[derive(Clone)]
#[non_exhaustive]
pub struct FirstState {
    /// The store.
    pub objects: Arc<dyn Objects>,
    /// The cluster; `None` if the store has the archive of only one.
    pub cluster: Option<ClusterId>,
    /// The state.
    pub target: Target,
}

impl FirstState {
    /// Returns the last state in a store with the archive of one cluster.
    pub fn new(objects: Arc<dyn Objects>) -> Self {
        Self { objects, cluster: None, target: Target::Latest }
    }

    /// Sets the cluster.
    #[must_use]
    pub fn with_cluster(self, cluster: ClusterId) -> Self {
        Self { cluster: Some(cluster), ..self }
    }

    /// Sets the state.
    #[must_use]
    pub fn with_target(self, target: Target) -> Self {
        Self { target, ..self }
    }
}

impl fmt::Debug for FirstState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, cluster, target } = self;
        let mut state = f.debug_struct("FirstState");
        state.field("objects", objects).field("cluster", cluster).field("target", target).finish()
    }
}

impl PartialEq for FirstState {
    fn eq(&self, other: &Self) -> bool {
        let Self { objects, cluster, target } = self;
        Arc::ptr_eq(objects, &other.objects) && (*cluster, *target) == (other.cluster, other.target)
    }
}
