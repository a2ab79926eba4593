//! When the log is purged: by bytes while entries come, wholly when idle; never above what the store holds durably. It
//! also records in the node's identity how far the store is durable, so that a later start can detect a store that has
//! lost entries.
//!
//! Invariant: an idle log keeps what a member may still need, as far as it could be asked, up to the bytes that a busy
//! one keeps.

use std::sync::Arc;
use std::time::Duration;

use openraft::rt::WatchReceiver;
use quorate_env::mutant::Mutant;
use quorate_env::{Env, Instant, sleep};
use quorate_model::{GroupId, LogId};
use quorate_wal::WalError;

use crate::home::Home;
use crate::peer_service::Running;
use crate::peers::Peers;

/// How often it is looked whether something can be purged.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long no entry must have come for the log to rest.
const IDLE_AFTER: Duration = Duration::from_secs(3);

/// What purging looks at.
pub(crate) struct Purger {
    pub(crate) env: Env,
    pub(crate) running: Running,
    pub(crate) home: Home,
    pub(crate) peers: Arc<Peers>,
    pub(crate) keep_bytes: u64,
}

/// Since when no entry came.
struct Quiet {
    last: Option<LogId>,
    since: Instant,
}

impl Quiet {
    /// Whether the log is idle, now that its last entry is this.
    fn is_idle(&mut self, last: Option<LogId>) -> bool {
        if last != self.last {
            *self = Self { last, since: Instant::now() };
        }
        self.since.elapsed() >= IDLE_AFTER
    }
}

impl Purger {
    /// Purges again and again until the core ends, or the log.
    pub(crate) async fn run(self) {
        let mut quiet = Quiet { last: None, since: Instant::now() };
        loop {
            // A little randomness keeps the nodes of a cluster from doing this all at once.
            sleep(LOOK_EVERY + Duration::from_millis(self.env.rng().below(100))).await;
            if self.note_stored().await.is_err() {
                return;
            }
            let last = self.home.wal.last_log_id(GroupId::MAIN);
            let rests = quiet.is_idle(last) && self.home.wal.would_shrink();
            if let Some(index) = self.limit(rests) {
                if self.purge(index).await.is_err() {
                    return;
                }
            } else if rests && self.home.wal.purged(GroupId::MAIN) == last {
                // Nobody waits for it; what the log says to the contrary its other users hear too.
                let _ = self.home.wal.cut_active(Box::new(drop));
            }
        }
    }

    /// Records how far the store is durable, if that has changed.
    async fn note_stored(&self) -> Result<(), WalError> {
        let durable = self.running.store.durable().log_id.map(|id| id.index);
        match durable.filter(|_| durable > self.home.identity().stored) {
            Some(index) => self.home.note_stored(index).await,
            None => Ok(()),
        }
    }

    /// The index up to which the log can go now, if there is something worth it.
    fn limit(&self, rests: bool) -> Option<u64> {
        let floor = self.home.wal.purged(GroupId::MAIN).map_or(0, |id| id.index);
        let by_bytes = self.home.wal.index_at_bytes_before_end(GroupId::MAIN, self.keep_bytes);
        let by_need = if rests { self.applied_by_others() } else { None };
        let wanted = by_bytes.max(by_need)?;
        let is_early = Mutant::PurgedBeforeDurable.is_on();
        let durable = if is_early { self.running.store.applied() } else { self.running.store.durable() }.log_id?.index;
        let metrics = self.running.raft.metrics();
        let images = self.running.images.purge_limit(|id| {
            let metrics = metrics.borrow_watched();
            metrics.replication.as_ref().and_then(|all| all.get(&id).copied().flatten()).map(|id| id.index)
        });
        Some(wanted.min(durable).min(images)).filter(|index| *index > floor)
    }

    /// Up to where all other members have applied the log, if all of them said so lately.
    fn applied_by_others(&self) -> Option<u64> {
        let mut members = self.peers.members();
        // Who does not know the members yet, or is none, knows nobody's needs.
        members.remove(self.running.raft.node_id())?;
        let mut indexes = members.into_keys().map(|id| self.peers.applied_index(id));
        indexes.try_fold(u64::MAX, |least, index| Some(least.min(index?)))
    }

    async fn purge(&self, index: u64) -> Result<(), openraft::errors::Fatal<crate::raft::types::TypeConfig>> {
        // openraft purges only below what it takes for a snapshot: this tells it what is durable.
        self.running.raft.trigger().snapshot().await?;
        self.running.raft.trigger().purge_log(index).await
    }
}
