//! Access to the state of a node without keeping the node alive.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorate_consensus::WriteTrace;
use tokio::sync::watch;

use super::gateway::Gateway;
use crate::archive::{self, FetchOptions, Objects, RehearseError};
use crate::metrics::Metrics;
use crate::readiness::NotReady;
use crate::remote::ClientConfig;
use crate::runtime::Runtime;
use crate::status::Status;
use crate::verify::Verification;

/// The nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// Reads the state and the metrics of a node without keeping the node alive. Cheap to clone. Its methods may be called
/// on any thread and may block briefly on a disk. A node that is stopping waits until they have returned.
#[derive(Clone)]
pub struct Observer {
    gateway: Weak<Gateway>,
    runtime: Runtime,
}

impl Observer {
    pub(super) fn new(gateway: &Arc<Gateway>, runtime: Runtime) -> Self {
        Self { gateway: Arc::downgrade(gateway), runtime }
    }

    /// Returns the state of the node and its cluster, as the node sees it, and the longest silence of a member that
    /// still counts as reachable; `None` once the node has ended.
    pub fn status(&self) -> Option<(Status, Duration)> {
        self.look(|gateway| (gateway.status(), gateway.consensus.silence_max()))
    }

    /// Returns the [time of the cluster](crate::Node::cluster_time); `None` once the node has ended.
    pub fn cluster_time(&self) -> Option<SystemTime> {
        self.look(|gateway| UNIX_EPOCH + Duration::from_nanos(gateway.store.cluster_time()))
    }

    /// Returns the node's metrics; `None` once it has ended.
    pub fn metrics(&self) -> Option<Metrics> {
        self.look(Gateway::metrics)
    }

    /// Returns why the node can't serve at the moment; empty if it can.
    pub fn not_ready(&self) -> Vec<NotReady> {
        self.look(Gateway::not_ready).unwrap_or_else(|| vec![NotReady::Ended("it was stopped".to_owned())])
    }

    /// Returns traces of writes that the node proposes from now on, while it leads; `None` once it has ended.
    pub fn write_traces(&self) -> Option<WriteTraces> {
        self.look(|gateway| WriteTraces(gateway.consensus.main().write_traces()))
    }

    /// Rehearses a restore of the cluster's archive ([`rehearse`](crate::archive::rehearse())), and shows in the status
    /// and the metrics of this node what came of it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`rehearse`](crate::archive::rehearse()).
    pub async fn rehearse(
        &self,
        client: ClientConfig,
        objects: &Arc<dyn Objects>,
        file: impl AsRef<Path>,
        options: &FetchOptions,
    ) -> Result<Verification, RehearseError> {
        let rehearsed = archive::rehearse(client, objects, file, options).await;
        let is_sound = rehearsed.as_ref().is_ok_and(Verification::is_sound);
        let _ = self.look(|gateway| gateway.archive.rehearsed(is_sound, gateway.env.unix_nanos() / NANOS));
        rehearsed
    }

    /// Runs `look` on the node. The reference to the node is released before the runtime may end.
    fn look<T>(&self, look: impl FnOnce(&Gateway) -> T) -> Option<T> {
        self.runtime.inside(|| self.gateway.upgrade().map(|gateway| look(&gateway))).ok().flatten()
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// Samples of a leader's writes. Each call returns the trace of the latest write.
#[derive(Clone, Debug)]
pub struct WriteTraces(watch::Receiver<Option<WriteTrace>>);

impl WriteTraces {
    /// Returns the latest trace, if there is a new one since the previous call.
    pub fn latest(&mut self) -> Option<WriteTrace> {
        let is_new = self.0.has_changed().unwrap_or(false);
        if is_new { *self.0.borrow_and_update() } else { None }
    }
}
