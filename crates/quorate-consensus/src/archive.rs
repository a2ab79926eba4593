//! What an archive needs of a group's log: its committed entries, and that the log keeps them until they are archived.
//!
//! Invariants:
//! - Only entries that are committed and that this node has applied are read, so each of them is final, and it is known
//!   whether it was rejected. An entry and its rejection may lie far apart in the log; an archive that ends between the
//!   two must still tell a replay not to run the entry.
//! - The log keeps a bounded number of bytes for the archive: a store of objects that can't be reached must not fill
//!   the disk of a node ([`ConsensusConfig::keep_for_archive_bytes`](crate::ConsensusConfig::keep_for_archive_bytes)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use quorate_env::Throttle;
use quorate_model::codec::entry::rejected_index;
use quorate_model::{DecodeError, Entry, LogId, REJECTIONS_MAX, StateMachine};
use quorate_wal::ReadError;

use crate::error::EntriesError;
use crate::group::Group;
use crate::group_log::GroupLog;
use crate::raft::codec;
use crate::verdict;

/// An entry of the log that is committed and applied. It is the same on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEntry {
    /// The id, which names the entry's place in the log.
    pub log_id: LogId,
    /// The content, encoded as the log holds it ([`quorate_model::codec::entry`]).
    pub bytes: Bytes,
    /// Whether the cluster decided not to run it. The bytes don't say so.
    pub is_rejected: bool,
}

impl LoggedEntry {
    /// Decodes the entry for a store. A rejected proposal becomes a
    /// [`Payload::Rejected`](quorate_model::Payload::Rejected), as when a node applies it.
    ///
    /// # Errors
    ///
    /// An error if the content is damaged, or written by a later version.
    pub fn entry(&self) -> Result<Entry, DecodeError> {
        let entry = codec::stored(self.log_id, self.bytes.clone())?;
        Ok(if self.is_rejected { verdict::reject(entry) } else { entry })
    }

    /// Returns the index of the earlier entry that this entry rejects. Cheap, because it decodes nothing else.
    ///
    /// After a decision of an operator (`quorate recover reject-entry`) that entry may have been read as one that ran,
    /// at a node that the others could not reach. So whoever replays entries looks at the later ones first.
    pub fn rejects(&self) -> Option<u64> {
        rejected_index(&self.bytes)
    }
}

/// The first entry that the log keeps for the archive.
#[derive(Debug)]
pub(crate) struct Kept {
    /// `u64::MAX` if nothing is kept.
    from: AtomicU64,
    given_up: Throttle,
}

impl Default for Kept {
    fn default() -> Self {
        Self { from: AtomicU64::new(u64::MAX), given_up: Throttle::default() }
    }
}

impl Kept {
    /// Returns the index up to which the log can be purged if it is to be purged up to `wanted`. Keeps at most about
    /// `bytes` bytes of entries and, as groups share files, not many more bytes in files.
    pub(crate) fn limit(&self, log: &GroupLog, wanted: u64, bytes: u64) -> Option<u64> {
        let from = self.from.load(Ordering::Acquire);
        if wanted < from {
            return Some(wanted);
        }
        let by_bytes = log.wal().index_at_bytes_before_end(log.group(), bytes);
        let by_files = log.wal().index_in_surplus_files(log.group(), bytes);
        let Some(beyond) = by_bytes.max(by_files).filter(|index| *index >= from) else { return from.checked_sub(1) };
        let index = wanted.min(beyond);
        if self.given_up.is_due() {
            tracing::warn!(
                event = "not_archived",
                from,
                index,
                "the archive is so far behind that the log does not keep all entries for it: these entries will not be \
                 in it one by one, and it needs a copy of the whole database to go on; see that this node reaches it"
            );
        }
        Some(index)
    }
}

impl Group {
    /// Reads entries from the index `from` on that are committed and that this node has applied: about `bytes` bytes of
    /// them, but at least one if there is one. Returns none if nothing is applied from there on. The store's handle
    /// tells when more is applied. Reads on another thread what is no longer in memory.
    ///
    /// # Errors
    ///
    /// [`EntriesError::Purged`] if the log no longer holds `from`.
    pub async fn entries(&self, from: u64, bytes: usize) -> Result<Vec<LoggedEntry>, EntriesError> {
        let (log, store) = (self.log.clone(), self.store.clone());
        let read = self.log.env().blocking(move || read(&log, &*store, from, bytes)).await;
        read.unwrap_or(Err(EntriesError::Stopped))
    }

    /// Has the log keep the entries from this index on, as long as they take no more bytes than the configuration
    /// allows; `None` ends that. Nothing is kept until the first call, so an archiver should call this right after the
    /// node has started. When an image replaces the state of a store, the log begins after the image all the same.
    pub fn keep_from(&self, index: Option<u64>) {
        self.kept.from.store(index.unwrap_or(u64::MAX), Ordering::Release);
    }
}

fn read(log: &GroupLog, store: &dyn StateMachine, from: u64, bytes: usize) -> Result<Vec<LoggedEntry>, EntriesError> {
    let purged = |first| EntriesError::Purged { from, first };
    if let Some(floor) = log.purged().filter(|floor| from <= floor.index) {
        return Err(purged(floor.index.saturating_add(1)));
    }
    // The store may have applied more, as an image of another node, than this log knows to be committed: then the rest
    // of the log may still have other entries there.
    let (Some(applied), Some(committed)) = (store.applied().log_id, log.committed()) else { return Ok(Vec::new()) };
    let end = applied.index.min(committed.index).saturating_add(1);
    if from >= end {
        return Ok(Vec::new());
    }
    let entries = log.entries(from, end, bytes).map_err(|error| match error {
        ReadError::Purged { floor, .. } => purged(floor.index.saturating_add(1)),
        error => EntriesError::Log(error),
    })?;
    // A log that does not begin with the first entry may begin after `from`.
    match entries.first() {
        Some((first, _)) if first.index > from => return Err(purged(first.index)),
        _ => {}
    }
    let rejected = rejected(log, store, from, committed.index)?;
    let logged = |(log_id, bytes): (LogId, Bytes)| {
        let is_rejected = rejected.contains(&log_id.index);
        LoggedEntry { log_id, bytes, is_rejected }
    };
    Ok(entries.into_iter().map(logged).collect())
}

/// Returns the rejected ones of the applied entries from `from` on. The store knows the latest; for older ones the log
/// is searched.
fn rejected(
    log: &GroupLog,
    store: &dyn StateMachine,
    from: u64,
    committed: u64,
) -> Result<BTreeSet<u64>, EntriesError> {
    let latest = store.rejections();
    let has_forgotten = latest.len() >= REJECTIONS_MAX && latest.first().is_some_and(|oldest| from < *oldest);
    let mut logged = BTreeMap::new();
    if has_forgotten {
        let end = committed.saturating_add(1);
        verdict::scan_rejections(log, from, end, &mut logged).map_err(EntriesError::Log)?;
    }
    Ok(latest.into_iter().chain(logged.into_values()).collect())
}
