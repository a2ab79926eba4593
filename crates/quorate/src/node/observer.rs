//! Looking at a node from outside of it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorate_consensus::WriteTrace;
use tokio::sync::watch;

use super::gateway::Gateway;
use crate::metrics::Metrics;
use crate::readiness::NotReady;
use crate::runtime::Runtime;
use crate::status::Status;

/// Looks at a node without keeping it alive. Cheap to clone. Its calls may wait for a disk for a moment, and may be
/// made on any thread; a node that stops waits until they have returned.
#[derive(Clone)]
pub struct Observer {
    gateway: Weak<Gateway>,
    runtime: Runtime,
}

impl Observer {
    pub(super) fn new(gateway: &Arc<Gateway>, runtime: Runtime) -> Self {
        Self { gateway: Arc::downgrade(gateway), runtime }
    }

    /// How the node and its cluster stand, as the node sees it, and how long a member may have been silent and still
    /// counts as reachable; `None` once the node has ended.
    pub fn status(&self) -> Option<(Status, Duration)> {
        self.look(|gateway| (gateway.status(), gateway.consensus.silence_max()))
    }

    /// What the node measures; `None` once it has ended.
    pub fn metrics(&self) -> Option<Metrics> {
        self.look(Gateway::metrics)
    }

    /// Why the node can't serve at the moment; nothing if it can.
    pub fn not_ready(&self) -> Vec<NotReady> {
        self.look(Gateway::not_ready).unwrap_or_else(|| vec![NotReady::Ended("it was stopped".to_owned())])
    }

    /// Traces of writes that the node proposes from now on, as long as it leads; `None` once it has ended.
    pub fn write_traces(&self) -> Option<WriteTraces> {
        self.look(|gateway| WriteTraces(gateway.consensus.write_traces()))
    }

    /// The node's parts are let go of before it may end.
    fn look<T>(&self, look: impl FnOnce(&Gateway) -> T) -> Option<T> {
        self.runtime.inside(|| self.gateway.upgrade().map(|gateway| look(&gateway))).ok().flatten()
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// Samples of a leader's writes: of those since the last look, the one that was answered last.
#[derive(Clone, Debug)]
pub struct WriteTraces(watch::Receiver<Option<WriteTrace>>);

impl WriteTraces {
    /// The latest, if there was one since the last look.
    pub fn latest(&mut self) -> Option<WriteTrace> {
        let is_new = self.0.has_changed().unwrap_or(false);
        if is_new { *self.0.borrow_and_update() } else { None }
    }
}
