//! The handle of a log: the interface for callers. Only reads of entries that are no longer in memory wait for the
//! disk.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::{GroupId, LogId};

use crate::error::{ReadError, WalError};
use crate::group::Group;
use crate::metrics::WalMetrics;
use crate::options::{Durability, MAX_ENTRY_BYTES, MAX_STATE_BYTES};
pub use crate::queue::Completion;
use crate::queue::{Item, Need, Task, Waiter};
use crate::read;
use crate::record::{Kind, RECORD_HEADER};
use crate::shared::Shared;

/// A handle to a log. Clones refer to the same log.
///
/// If an operation returns an error, nothing was submitted and its completion is dropped without being called. The
/// completion of an accepted operation is called exactly once, on the writer's thread, in the order of submission. It
/// must not block; it may call the log.
#[derive(Clone)]
pub struct Wal(pub(crate) Arc<Shared>);

/// Statistics of a log.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalStats {
    /// Frames ever written to this log, including those from before it was opened.
    pub sequence: u64,
    /// The highest frame sequence that is known to be durable.
    pub durable_sequence: u64,
    /// The segment that holds the last frame, and the frame's byte offset in it.
    pub last_frame: (u32, u64),
    /// Segments in use.
    pub segments: usize,
    /// Spare files: segments prepared in advance or waiting to be reused.
    pub spares: usize,
    /// Bytes of entries held in memory.
    pub tail_bytes: usize,
    /// Frames written since the log was opened.
    pub frames: u64,
    /// Syncs since the log was opened.
    pub syncs: u64,
    /// Bytes written since the log was opened, padding and headers included.
    pub bytes_written: u64,
    /// Segments begun since the log was opened.
    pub segments_begun: u64,
    /// Segments recycled since the log was opened.
    pub segments_recycled: u64,
}

impl Wal {
    /// Sets when appends of a group complete. This setting is not stored; the default is [`Durability::Fsync`].
    pub fn set_durability(&self, group: GroupId, durability: Durability) {
        self.0.lock().group(group).durability = durability;
    }

    /// Appends entries, which can be read at once. `done` is called when everything up to the last of them has reached
    /// the group's [`Durability`].
    ///
    /// The first entry must follow the last one of the group; a group without entries accepts any first index. An empty
    /// append acts as a barrier.
    pub fn append(&self, group: GroupId, entries: Vec<(LogId, Bytes)>, done: Completion) -> Result<(), WalError> {
        let cost = entries.iter().map(|(_, bytes)| RECORD_HEADER + bytes.len()).sum();
        let mut guard = self.0.lock_accepting(cost)?;
        let state = &mut *guard;
        let known = state.group(group);
        check_entries(group, known.next_index(), &entries)?;
        let need = match known.durability {
            Durability::Fsync => Need::Sync,
            Durability::Os => Need::Write,
        };
        let mut items = Vec::with_capacity(entries.len().max(1));
        for (id, bytes) in entries {
            known.append(id, bytes.clone());
            items.push(Item::record(Kind::Entry, group, id, bytes, need));
        }
        match items.pop() {
            Some(last) => items.push(last.with_done(done)),
            None => items.push(Item { task: Task::Barrier, need, done: Some(done) }),
        }
        items.into_iter().for_each(|item| self.0.submit(state, item));
        Ok(())
    }

    /// Calls `done` when every entry up to `upto` is written, at once and on the caller's thread if that is already so.
    /// Written entries survive the end of this process, but not necessarily a power loss.
    pub fn when_written(&self, group: GroupId, upto: u64, done: Completion) -> Result<(), WalError> {
        let mut state = self.0.lock_working()?;
        if state.group(group).has_unwritten(upto) {
            state.waiters.push(Waiter { group, upto, done });
        } else {
            drop(state);
            done(Ok(()));
        }
        Ok(())
    }

    /// Replaces a group's vote. It can be read at once; `done` is called when it and everything before it are synced.
    pub fn save_vote(&self, group: GroupId, vote: Bytes, done: Completion) -> Result<(), WalError> {
        check_length(vote.len(), MAX_STATE_BYTES)?;
        let mut state = self.0.lock_accepting(vote.len())?;
        state.group(group).state.vote = Some(vote.clone());
        let item = Item::record(Kind::Vote, group, LogId::default(), vote, Need::Sync);
        self.0.submit(&mut state, item.with_done(done));
        Ok(())
    }

    /// Replaces the node's identity. `done` is called when it and everything before it are synced.
    pub fn save_identity(&self, identity: Bytes, done: Completion) -> Result<(), WalError> {
        check_length(identity.len(), MAX_STATE_BYTES)?;
        let mut state = self.0.lock_accepting(identity.len())?;
        state.identity = Some(identity.clone());
        let item = Item::record(Kind::Identity, GroupId(0), LogId::default(), identity, Need::Sync);
        self.0.submit(&mut state, item.with_done(done));
        Ok(())
    }

    /// Records up to where a group is committed. The record is written with the next frame, or once the log has been
    /// idle for a moment; a crash before that loses it.
    pub fn save_committed(&self, group: GroupId, committed: LogId) -> Result<(), WalError> {
        let mut state = self.0.lock_accepting(0)?;
        state.group(group).state.committed = Some(committed);
        state.queue.commit(group, committed);
        self.0.wake_writer(&mut state, false);
        Ok(())
    }

    /// Removes all entries after `to`, or all entries if `to` is `None`. The record is written before anything
    /// submitted later.
    pub fn truncate_after(&self, group: GroupId, to: Option<u64>) -> Result<(), WalError> {
        let mut guard = self.0.lock_accepting(RECORD_HEADER)?;
        let state = &mut *guard;
        let known = state.group(group);
        let last = known.state.last.map(|last| last.index);
        if last.is_none() || to.is_some_and(|to| last.is_some_and(|last| last <= to)) {
            return Ok(());
        }
        let floor = known.state.floor;
        let kept = known.kept_by(to).map_err(|()| WalError::BelowFloor { group, to, floor })?;
        known.truncate(kept);
        known.await_truncation(kept);
        let item = Item::record(Kind::Truncate, group, kept.unwrap_or_default(), Bytes::new(), Need::Lazy);
        self.0.submit(state, item.with_flag(kept.is_none()));
        Ok(())
    }

    /// Removes all entries up to `upto`. If `upto` lies beyond the last entry, the log continues after it. Takes
    /// constant time. The record is written with the next frame, or once the log has been idle for a moment; disk space
    /// is freed later.
    pub fn purge(&self, group: GroupId, upto: LogId) -> Result<(), WalError> {
        let mut guard = self.0.lock_accepting(RECORD_HEADER)?;
        let state = &mut *guard;
        let known = state.group(group);
        if known.state.floor.is_some_and(|floor| floor.index >= upto.index) {
            return Ok(());
        }
        let garbage = known.purge(upto);
        state.garbage.push(garbage);
        state.to_trim.push(group);
        if Mutant::SegmentReusedEarly.is_on() {
            state.durable_floors.insert(group, upto.index);
            self.0.keeper_signal.wake();
        }
        self.0.submit(state, Item::record(Kind::Purge, group, upto, Bytes::new(), Need::Lazy));
        Ok(())
    }

    /// Records that the caller has handled the machine restart reported by
    /// [`Recovery::may_have_lost`](crate::Recovery). Until then every opening reports it again. `done` is called when
    /// the record is synced.
    pub fn accept_reboot(&self, done: Completion) -> Result<(), WalError> {
        let mut state = self.0.lock_accepting(RECORD_HEADER)?;
        state.rebooted = false;
        let item = Item::record(Kind::Boot, GroupId(0), LogId::default(), state.boot.clone(), Need::Sync);
        self.0.submit(&mut state, item.with_done(done));
        Ok(())
    }

    /// Begins a new, small segment, so that the old one can be removed once it is purged, and releases the spares.
    /// Intended for an idle log. `done` is called when everything before it is synced.
    pub fn cut_active(&self, done: Completion) -> Result<(), WalError> {
        let mut state = self.0.lock_accepting(RECORD_HEADER)?;
        state.releases_spares = true;
        self.0.submit(&mut state, Item { task: Task::Cut, need: Need::Sync, done: Some(done) });
        self.0.keeper_signal.wake();
        Ok(())
    }

    /// Closes the log cleanly. `done` is called when everything, including the closing record, is synced. The log
    /// accepts nothing after this call, and the writer and the keeper finish.
    pub fn close_clean(&self, done: Completion) -> Result<(), WalError> {
        let mut state = self.0.lock_accepting(RECORD_HEADER)?;
        state.closing = true;
        let item = Item::record(Kind::Closed, GroupId(0), LogId::default(), Bytes::new(), Need::Sync);
        let item = item.with_flag(state.rebooted);
        self.0.submit(&mut state, item.with_done(done));
        Ok(())
    }

    /// Returns the existing entries of `range`, up to about `max_bytes` bytes, but at least the first one. Entries that
    /// are no longer in memory are read from the disk, which blocks.
    pub fn entries(
        &self,
        group: GroupId,
        range: Range<u64>,
        max_bytes: usize,
    ) -> Result<Vec<(LogId, Bytes)>, ReadError> {
        read::entries(&self.0, group, range, max_bytes)
    }

    /// The id of the last entry, purged or not.
    pub fn last_log_id(&self, group: GroupId) -> Option<LogId> {
        self.with(group, |group| group.state.last)
    }

    /// The id of the last purged entry.
    pub fn purged(&self, group: GroupId) -> Option<LogId> {
        self.with(group, |group| group.state.floor)
    }

    /// The id of the entry at `index`, if it is not purged or is the last purged one.
    pub fn log_id_at(&self, group: GroupId, index: u64) -> Option<LogId> {
        self.with(group, |group| group.id_at(index))
    }

    /// The last saved vote.
    pub fn vote(&self, group: GroupId) -> Option<Bytes> {
        self.with(group, |group| group.state.vote.clone())
    }

    /// The last saved committed id.
    pub fn committed(&self, group: GroupId) -> Option<LogId> {
        self.with(group, |group| group.state.committed)
    }

    /// The last saved identity.
    pub fn identity(&self) -> Option<Bytes> {
        self.0.lock().identity.clone()
    }

    /// The highest index that at least `bytes` bytes of entries follow: purging up to it keeps that much.
    pub fn index_at_bytes_before_end(&self, group: GroupId, bytes: u64) -> Option<u64> {
        self.with(group, |group| group.index.index_before_end(bytes))
            .filter(|index| self.purged(group).is_none_or(|floor| floor.index < *index))
    }

    /// The highest index of the group in files that the log does not need if it keeps `bytes` bytes of entries for each
    /// of its groups. Files are freed from the oldest on, so purging up to it keeps a group that rarely writes from
    /// holding the files of all others.
    pub fn index_in_surplus_files(&self, group: GroupId, bytes: u64) -> Option<u64> {
        let state = self.0.lock();
        let kept = bytes.saturating_mul(state.groups.len() as u64);
        let floor = state.groups.get(&group)?.state.floor.map(|floor| floor.index);
        state.index_before_newest(group, kept).filter(|index| floor.is_none_or(|floor| floor < *index))
    }

    /// Whether every entry of every group is purged.
    pub fn is_purged(&self) -> bool {
        self.0.lock().groups.values().all(|group| group.state.floor == group.state.last)
    }

    /// The total size of the entries after `index`, in bytes.
    pub fn bytes_after(&self, group: GroupId, index: u64) -> u64 {
        self.with(group, |group| Some(group.index.bytes_after(index.max(group.first().saturating_sub(1))))).unwrap_or(0)
    }

    /// The bytes that wait to be written or synced; admission control should bound them.
    pub fn pending_bytes(&self) -> usize {
        self.0.lock().pending()
    }

    /// The total size of the log's segments and spares, in bytes.
    pub fn disk_bytes(&self) -> u64 {
        let state = self.0.lock();
        let live: u64 = state.segments.values().map(|live| live.segment.len).sum();
        live.saturating_add(state.spares.iter().map(|spare| spare.len).sum())
    }

    /// Whether [`Wal::cut_active`] is worthwhile once everything is purged: the files take more than twice the space
    /// that they would take afterwards.
    pub fn would_shrink(&self) -> bool {
        self.disk_bytes() > self.0.options.quick_segment_bytes(0).saturating_mul(2)
    }

    /// Whether the log is waiting for disk space. Nothing completes until there is some.
    pub fn is_disk_full(&self) -> bool {
        self.0.lock().disk_full
    }

    /// The error that stopped the log, if it has stopped.
    pub fn stopped(&self) -> Option<WalError> {
        self.0.lock().stopped.clone()
    }

    /// Figures about the log.
    pub fn stats(&self) -> WalStats {
        let state = self.0.lock();
        let counters = state.counters;
        WalStats {
            sequence: state.sequence,
            durable_sequence: state.durable,
            last_frame: state.last_frame,
            segments: state.segments.len(),
            spares: state.spares.len(),
            tail_bytes: state.groups.values().map(|group| group.tail_bytes).sum(),
            frames: counters.frames,
            syncs: counters.syncs,
            bytes_written: counters.bytes_written,
            segments_begun: counters.segments_begun,
            segments_recycled: counters.segments_recycled,
        }
    }

    /// The writer's measurements so far.
    pub fn metrics(&self) -> WalMetrics {
        self.0.metrics.clone()
    }

    fn with<T>(&self, group: GroupId, look: impl FnOnce(&Group) -> Option<T>) -> Option<T> {
        self.0.lock().groups.get(&group).and_then(look)
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wal").field("dir", &self.0.dir).finish_non_exhaustive()
    }
}

fn check_entries(group: GroupId, next: Option<u64>, entries: &[(LogId, Bytes)]) -> Result<(), WalError> {
    let mut expected = next;
    for (id, bytes) in entries {
        check_length(bytes.len(), MAX_ENTRY_BYTES)?;
        if let Some(expected) = expected
            && expected != id.index
        {
            return Err(WalError::Hole { group, expected, found: id.index });
        }
        expected = Some(id.index.saturating_add(1));
    }
    Ok(())
}

fn check_length(bytes: usize, limit: usize) -> Result<(), WalError> {
    if bytes > limit { Err(WalError::TooLarge { bytes, limit }) } else { Ok(()) }
}
