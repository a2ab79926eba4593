//! Decides when the log of a group is purged: by size while entries arrive, completely when it is idle, but never
//! beyond what the store holds durably. Also records in the node's identity how far the store is durable, so that a
//! later start can detect a store that has lost entries.
//!
//! Invariants:
//! - An idle log keeps what a member may still need, at most as many bytes as a busy log keeps. A member that does not
//!   answer may need everything.
//! - The groups of a node share files, which are freed from the oldest on. So a group gives up what lies in files that
//!   would hold more than all groups together may keep, even if a member needs it: that member gets an image.
//! - What the archive has not read yet is kept, up to a limit of its own ([`Kept`](crate::archive::Kept)).

use std::time::Duration;

use openraft::rt::WatchReceiver;
use quorate_env::mutant::Mutant;
use quorate_env::{Instant, sleep};
use quorate_model::LogId;
use quorate_wal::WalError;

use crate::group::Group;

/// How often the log is checked for something to purge.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The time without a new entry after which the log is idle.
const IDLE_AFTER: Duration = Duration::from_secs(3);

/// Purges the log of a group.
pub(crate) struct Purger(pub(crate) Group);

/// The last entry of the log, and since when it is the last.
struct Quiet {
    last: Option<LogId>,
    since: Instant,
}

impl Quiet {
    /// Whether the log is idle, given its present last entry.
    fn is_idle(&mut self, last: Option<LogId>) -> bool {
        if last != self.last {
            *self = Self { last, since: Instant::now() };
        }
        self.since.elapsed() >= IDLE_AFTER
    }
}

impl Purger {
    /// Purges at regular intervals until the core ends or the log fails.
    pub(crate) async fn run(self) {
        let log = &self.0.log;
        let mut quiet = Quiet { last: None, since: Instant::now() };
        loop {
            // The random part keeps the nodes of a cluster from purging all at once.
            sleep(LOOK_EVERY + Duration::from_millis(log.env().rng().below(100))).await;
            if self.note_stored().await.is_err() {
                return;
            }
            let last = log.last();
            let rests = quiet.is_idle(last) && log.wal().would_shrink();
            if let Some(index) = self.limit(rests) {
                if self.purge(index).await.is_err() {
                    return;
                }
            } else if rests && log.wal().is_purged() {
                // What another group keeps would hold the old file, and a busy group would need yet another one.
                // Nothing waits for this, and a failure of the log is reported to its other users too.
                let _ = log.wal().cut_active(Box::new(drop));
            }
        }
    }

    /// Records how far the store is durable, if that has changed.
    async fn note_stored(&self) -> Result<(), WalError> {
        let durable = self.0.store.durable().log_id.map(|id| id.index);
        match durable.filter(|_| durable > self.0.log.notes().stored) {
            Some(index) => self.0.log.note_stored(index).await,
            None => Ok(()),
        }
    }

    /// Returns the index up to which the log can be purged now, if there is something to purge.
    fn limit(&self, rests: bool) -> Option<u64> {
        let Group { log, config, raft, store, images, kept, .. } = &self.0;
        let floor = log.purged().map_or(0, |id| id.index);
        let by_bytes = log.wal().index_at_bytes_before_end(log.group(), config.keep_log_bytes);
        let by_need = if rests { self.applied_by_others() } else { None };
        // A member that is away may need everything of a quiet group, but the files must not grow until it returns.
        let by_files = log.wal().index_in_surplus_files(log.group(), config.keep_log_bytes);
        let wanted = by_bytes.max(by_need).max(by_files)?;
        let is_early = Mutant::PurgedBeforeDurable.is_on();
        let durable = if is_early { store.applied() } else { store.durable() }.log_id?.index;
        let metrics = raft.metrics();
        let images = images.purge_limit(|id| {
            let metrics = metrics.borrow_watched();
            metrics.replication.as_ref().and_then(|all| all.get(&id).copied().flatten()).map(|id| id.index)
        });
        let wanted = Some(wanted.min(durable).min(images)).filter(|index| *index > floor)?;
        kept.limit(log, wanted, config.keep_for_archive_bytes).filter(|index| *index > floor)
    }

    /// Returns the index up to which all other members have applied the log, if all of them have answered lately.
    fn applied_by_others(&self) -> Option<u64> {
        let mut members = self.0.peers.members();
        // A node that does not know the members yet, or is not a member, can't tell which entries others still need.
        members.remove(self.0.raft.node_id())?;
        let mut indexes = members.into_keys().map(|id| self.0.peers.applied_index(id, self.0.id()));
        indexes.try_fold(u64::MAX, |least, index| Some(least.min(index?)))
    }

    async fn purge(&self, index: u64) -> Result<(), openraft::errors::Fatal<crate::raft::types::TypeConfig>> {
        // openraft purges only up to its latest snapshot. Building one tells it what the store holds durably.
        self.0.raft.trigger().snapshot().await?;
        self.0.raft.trigger().purge_log(index).await
    }
}
