//! openraft's log over the log of one group.
//!
//! Every call runs in openraft's only task, so no call may wait for the disk, except for a vote, which must wait, and
//! reads of entries that are no longer in memory. The log's writer calls the completions strictly in order, because
//! openraft takes each as the promise that everything before is durable too.
//!
//! The leader also passes the entries that it appends to the state machine, which may run them ahead
//! ([`StateMachine::prefetch`]).

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use futures_util::stream::{Stream, StreamExt, iter, unfold};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend, RaftLogReader};
use quorate_env::mutant::Mutant;
use quorate_model::{Entry, StateMachine};
use tokio::sync::oneshot;

use super::codec;
use super::types::{RaftEntry, RaftLogId, RaftVote, TypeConfig, from_raft, to_raft};
use crate::group_log::GroupLog;
use crate::stages::Stages;
use crate::verdict::{Verdicts, rejections};

/// The maximum number of bytes of entries in one message to a follower. A single entry may be larger.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// How many bytes of entries are read at once for applying.
const APPLY_BYTES_MAX: usize = 8 << 20;

/// The log of one group.
#[derive(Clone)]
pub(crate) struct LogStore {
    log: GroupLog,
    stages: Arc<Stages>,
    store: Arc<dyn StateMachine>,
    verdicts: Arc<Verdicts>,
}

impl LogStore {
    pub(crate) fn new(
        log: &GroupLog,
        stages: &Arc<Stages>,
        store: &Arc<dyn StateMachine>,
        verdicts: &Arc<Verdicts>,
    ) -> Self {
        let (stages, store, verdicts) = (Arc::clone(stages), Arc::clone(store), Arc::clone(verdicts));
        Self { log: log.clone(), stages, store, verdicts }
    }

    /// Returns the entries from `start` to before `end` that fit into `bytes`: at least one, if there is one.
    fn read(&self, start: u64, end: u64, bytes: usize) -> Result<Vec<RaftEntry>, io::Error> {
        let entries = self.log.entries(start, end, bytes).map_err(io::Error::other)?;
        // If the group's first entries have higher indexes, the range begins after `start`, perhaps after `end` too.
        let within = entries.into_iter().take_while(|(id, _)| id.index < end);
        within.map(|(id, bytes)| codec::entry_from(id, bytes).map_err(io::Error::other)).collect()
    }

    /// Returns the bounds of a range, limited to the entries that exist.
    fn bounds(&self, range: &impl RangeBounds<u64>) -> (u64, u64) {
        let start = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(index) => index.saturating_add(1),
            Bound::Excluded(index) => *index,
            Bound::Unbounded => u64::MAX,
        };
        let first = self.log.purged().map_or(0, |id| id.index.saturating_add(1));
        (start.max(first), end.min(self.log.end()))
    }
}

/// Returns the index after the last of some entries.
fn index_after(entries: &[RaftEntry]) -> Option<u64> {
    entries.last().map(|entry| entry.log_id.index.saturating_add(1))
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = Result<RaftEntry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = self.bounds(&range);
        let store = self.clone();
        // Reads page by page, so that applying a long log needs no more memory than a short one.
        let pages = unfold(start, move |next| {
            let page = (next < end).then(|| store.read(next, end, APPLY_BYTES_MAX));
            async move {
                let page = page?;
                let next = page.as_ref().ok().and_then(|entries| index_after(entries)).unwrap_or(end);
                Some((page, next))
            }
        });
        Box::pin(pages.flat_map(|page| {
            let items: Vec<_> = match page {
                Ok(entries) => entries.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            iter(items)
        }))
    }

    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<RaftEntry>, io::Error> {
        let (mut next, end) = self.bounds(&range);
        let mut all = Vec::new();
        while next < end {
            let page = self.read(next, end, APPLY_BYTES_MAX)?;
            let Some(after) = index_after(&page) else { break };
            next = after;
            all.extend(page);
        }
        Ok(all)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<RaftEntry>, io::Error> {
        self.read(start, end, MESSAGE_BYTES_MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<RaftVote>, io::Error> {
        self.log.vote().map(|bytes| codec::decode_vote(&bytes)).transpose().map_err(io::Error::other)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        Ok(LogState { last_purged_log_id: self.log.purged().map(to_raft), last_log_id: self.log.last().map(to_raft) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &RaftVote) -> Result<(), io::Error> {
        let (sender, receiver) = oneshot::channel();
        let done = Box::new(move |result| drop(sender.send(result)));
        self.log.wal().save_vote(self.log.group(), codec::encode_vote(vote), done).map_err(io::Error::other)?;
        if Mutant::VoteNotAwaited.is_on() {
            return Ok(());
        }
        match receiver.await {
            Ok(result) => result.map_err(io::Error::other),
            Err(_) => Err(io::Error::other("the log was closed before the vote was durable")),
        }
    }

    async fn save_committed(&mut self, committed: Option<RaftLogId>) -> Result<(), io::Error> {
        let Some(committed) = committed else { return Ok(()) };
        self.stages.committed(committed.index);
        self.verdicts.committed(committed.index);
        self.log.wal().save_committed(self.log.group(), from_raft(&committed)).map_err(io::Error::other)
    }

    /// Returns nothing. Otherwise openraft would apply entries before it has started, and could not start if one can't
    /// be applied. [`Machine::replay`](super::machine::Machine::replay) has already applied what it could.
    async fn read_committed(&mut self) -> Result<Option<RaftLogId>, io::Error> {
        Ok(None)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut writes = 0_u64;
        let encoded = entries.into_iter().map(|entry| {
            writes = writes.saturating_add(u64::from(matches!(entry.payload, EntryPayload::Normal(_))));
            (from_raft(&entry.log_id), codec::payload_bytes(&entry))
        });
        let entries: Vec<_> = encoded.collect();
        self.verdicts.appended(rejections(&entries));
        let handed = entries.last().and_then(|(last, _)| self.stages.handed(*last, writes));
        if handed.is_some() && self.verdicts.may_prefetch() {
            let prefetched: Result<Vec<Entry>, _> =
                entries.iter().map(|(id, bytes)| codec::stored(*id, bytes.clone())).collect();
            // Errors are ignored here; they recur when the entries are applied.
            self.store.prefetch(prefetched.unwrap_or_default());
        }
        if Mutant::AppendNotAwaited.is_on() {
            callback.io_completed(Ok(()));
            return self.log.wal().append(self.log.group(), entries, Box::new(drop)).map_err(io::Error::other);
        }
        let done = Box::new(move |result: Result<(), quorate_wal::WalError>| {
            if let (Some(handed), Ok(())) = (handed, &result) {
                handed.durable();
            }
            callback.io_completed(result.map_err(io::Error::other));
        });
        self.log.wal().append(self.log.group(), entries, done).map_err(io::Error::other)
    }

    async fn truncate_after(&mut self, last_log_id: Option<RaftLogId>) -> Result<(), io::Error> {
        self.verdicts.truncated(last_log_id.map(|id| id.index));
        self.log.wal().truncate_after(self.log.group(), last_log_id.map(|id| id.index)).map_err(io::Error::other)
    }

    async fn purge(&mut self, log_id: RaftLogId) -> Result<(), io::Error> {
        self.log.wal().purge(self.log.group(), from_raft(&log_id)).map_err(io::Error::other)
    }
}
