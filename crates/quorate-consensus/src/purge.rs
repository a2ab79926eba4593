//! When the log is purged: by bytes, and never above what the store holds durably.

use std::sync::Arc;
use std::time::Duration;

use openraft::rt::WatchReceiver;
use quorate_env::mutant::Mutant;
use quorate_env::{Env, sleep};
use quorate_model::{GroupId, Store};
use quorate_wal::Wal;

use crate::images::ImageSender;
use crate::raft::Raft;

/// How often it is looked whether something can be purged.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What purging looks at.
pub(crate) struct Purger {
    pub(crate) env: Env,
    pub(crate) raft: Raft,
    pub(crate) wal: Wal,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) images: Arc<ImageSender>,
    pub(crate) keep_bytes: u64,
}

impl Purger {
    /// Purges again and again until the core ends.
    pub(crate) async fn run(self) {
        loop {
            // A little randomness keeps the nodes of a cluster from doing this all at once.
            sleep(LOOK_EVERY + Duration::from_millis(self.env.rng().below(100))).await;
            if let Some(index) = self.limit()
                && self.purge(index).await.is_err()
            {
                return;
            }
        }
    }

    /// The index up to which the log can go now, if there is something worth it.
    fn limit(&self) -> Option<u64> {
        let floor = self.wal.purged(GroupId::MAIN).map_or(0, |id| id.index);
        let by_bytes = self.wal.index_at_bytes_before_end(GroupId::MAIN, self.keep_bytes)?;
        let is_early = Mutant::PurgedBeforeDurable.is_on();
        let durable = if is_early { self.store.applied() } else { self.store.durable() }.log_id?.index;
        let metrics = self.raft.metrics();
        let images = self.images.purge_limit(|id| {
            let metrics = metrics.borrow_watched();
            metrics.replication.as_ref().and_then(|all| all.get(&id).copied().flatten()).map(|id| id.index)
        });
        Some(by_bytes.min(durable).min(images)).filter(|index| *index > floor)
    }

    async fn purge(&self, index: u64) -> Result<(), openraft::errors::Fatal<crate::raft::types::TypeConfig>> {
        // openraft purges only below what it takes for a snapshot: this tells it what is durable.
        self.raft.trigger().snapshot().await?;
        self.raft.trigger().purge_log(index).await
    }
}
