//! Writes the archive, while this node is the cluster's archiver.
//!
//! The archiver runs on a thread of its own: what it compresses, encrypts and sends must not hold up consensus.
//!
//! Invariants:
//! - The node's log keeps the entries that are not archived yet, within the bound of
//!   [`Group::keep_from`](quorate_consensus::Group::keep_from).
//! - When nothing is written, nothing is sent.
//! - The node does not close its store before the archiver has let go of it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select;
use quorate_archive::{ArchiveError, Archiver, Counting, Identity};
use quorate_env::{Env, sleep};
use quorate_model::NodeId;
use quorate_sql::store::SqlStore;
use tokio::sync::oneshot;

use super::gateway::Gateway;
use crate::archive::Archive;

mod boundaries;
mod progress;
mod tail;
mod tenure;

use progress::Part;
pub(crate) use progress::{ArchiveState, Progress};
use tenure::{Failed, Tenure};

/// The pause after a failure; it grows.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

/// A running archiver.
pub(super) struct Archiving {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Archiving {
    /// Starts the archiver of a node, which waits until the node has the role.
    pub(super) fn start(env: &Env, gateway: &Arc<Gateway>, archive: Archive) -> std::io::Result<Self> {
        let (stop, stopping) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let node = Duty {
            env: env.clone(),
            state: Arc::clone(&gateway.archive),
            store: gateway.store.clone(),
            gateway: Arc::downgrade(gateway),
            archive,
        };
        env.start_background("archiver", async move {
            // The future is dropped, with all that it holds of the store, before the end is told.
            drop(select(node.run().boxed(), stopping).await);
            end
        })?;
        Ok(Self { stop, ended })
    }

    /// Stops the archiver, and waits until it has let go of the store.
    pub(super) async fn stop(self) {
        // It has ended if nobody listens.
        let _ = self.stop.send(());
        let _ = self.ended.await;
    }
}

/// What a node has to do while it is the archiver.
struct Duty {
    env: Env,
    state: Arc<ArchiveState>,
    store: SqlStore,
    gateway: Weak<Gateway>,
    archive: Archive,
}

impl Duty {
    async fn run(self) {
        let mut roles = self.store.watch_archiver();
        loop {
            let role = *roles.borrow_and_update();
            let own = self.gateway.upgrade().map(|gateway| gateway.consensus.status().node);
            match role.filter(|role| Some(role.node) == own) {
                Some(present) => {
                    let tenure = self.serve(present.node, present.token).boxed();
                    let replaced = roles.wait_for(|role| *role != Some(present)).map(drop).boxed();
                    drop(select(tenure, replaced).await);
                }
                None => drop(roles.changed().await),
            }
            self.state.update(|progress| *progress = Progress::default());
            match self.gateway.upgrade() {
                Some(gateway) => gateway.consensus.main().keep_from(None),
                None => return,
            }
        }
    }

    /// Archives until another node takes over, whatever fails meanwhile.
    async fn serve(&self, node: NodeId, token: u64) {
        let mut pause = PAUSE_FIRST;
        self.state.update(|progress| progress.is_archiver = true);
        // Until it is known where the archive ends, all of the log may be needed.
        if let Some(gateway) = self.gateway.upgrade() {
            gateway.consensus.main().keep_from(Some(0));
        }
        loop {
            let failed = match self.take_over(node, token).await {
                Ok(mut tenure) => {
                    let failed = tenure.work().await;
                    if tenure.has_worked() {
                        pause = PAUSE_FIRST;
                    }
                    failed
                }
                Err(failed) => failed,
            };
            self.state.failed(Part::Entries, &failed);
            if let Failed::Archive(ArchiveError::Fenced { node, token }) = &failed {
                tracing::info!(event = "archive_fenced", node, token, "another node archives now");
                return std::future::pending().await;
            }
            sleep(pause).await;
            pause = PAUSE_LONGEST.min(pause.saturating_mul(2));
        }
    }

    async fn take_over(&self, node: NodeId, token: u64) -> Result<Tenure, Failed> {
        let identity = self.store.options().identity;
        let identity = Identity { cluster: identity.cluster, epoch: identity.epoch.0, node: node.0, token };
        let objects = Counting::new(Arc::clone(&self.archive.objects), Arc::clone(&self.state.requests));
        let archiver = Archiver::take(&self.env, Arc::new(objects), identity).await?;
        let group = self.gateway.upgrade().ok_or(Failed::Ended)?.consensus.main().clone();
        Tenure::begin(self, archiver, group).await
    }
}
