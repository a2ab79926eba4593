//! The log of one group: its part of the node's log, and what the node's identity records about the group.

use bytes::Bytes;
use quorate_env::Env;
use quorate_model::{GroupId, LogId, NodeId};
use quorate_wal::{ReadError, Wal, WalError};
use tokio::sync::oneshot;

use crate::home::Home;
use crate::identity::{GroupNotes, Halt, Trial};
use crate::raft::codec;

/// A handle to the log of one group. Cheap to clone.
#[derive(Clone)]
pub(crate) struct GroupLog {
    home: Home,
    group: GroupId,
}

impl GroupLog {
    pub(crate) fn new(home: &Home, group: GroupId) -> Self {
        Self { home: home.clone(), group }
    }

    /// The node to which the log belongs.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn group(&self) -> GroupId {
        self.group
    }

    pub(crate) fn env(&self) -> &Env {
        &self.home.env
    }

    /// The log of all groups.
    pub(crate) fn wal(&self) -> &Wal {
        &self.home.wal
    }

    /// The node's Raft id.
    pub(crate) fn node(&self) -> NodeId {
        self.home.identity().node()
    }

    /// The last entry, even if it is purged.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.home.wal.last_log_id(self.group)
    }

    /// The index after the last entry.
    pub(crate) fn end(&self) -> u64 {
        self.last().map_or(0, |id| id.index.saturating_add(1))
    }

    /// The last entry that is purged.
    pub(crate) fn purged(&self) -> Option<LogId> {
        self.home.wal.purged(self.group)
    }

    /// The last entry that is known to be committed.
    pub(crate) fn committed(&self) -> Option<LogId> {
        self.home.wal.committed(self.group)
    }

    pub(crate) fn id_at(&self, index: u64) -> Option<LogId> {
        self.home.wal.log_id_at(self.group, index)
    }

    /// The last vote, encoded.
    pub(crate) fn vote(&self) -> Option<Bytes> {
        self.home.wal.vote(self.group)
    }

    /// The term of the last vote.
    pub(crate) fn term_of_vote(&self) -> u64 {
        self.vote().map_or(0, |bytes| codec::decode_vote(&bytes).map_or(u64::MAX, |vote| vote.leader_id.term))
    }

    /// Reads entries from `first` to before `end`: at least one if there is one, and about `bytes`.
    pub(crate) fn entries(&self, first: u64, end: u64, bytes: usize) -> Result<Vec<(LogId, Bytes)>, ReadError> {
        self.home.wal.entries(self.group, first..end, bytes)
    }

    /// Waits until the log holds everything up to an index.
    pub(crate) async fn written(&self, index: u64) -> Result<(), WalError> {
        let (sender, receiver) = oneshot::channel();
        self.home.wal.when_written(self.group, index, Box::new(move |result| drop(sender.send(result))))?;
        receiver.await.unwrap_or(Err(WalError::Closed))
    }

    /// Appends entries and waits until they are durable.
    pub(crate) async fn append(&self, entries: Vec<(LogId, Bytes)>) -> Result<(), WalError> {
        let (sender, receiver) = oneshot::channel();
        self.home.wal.append(self.group, entries, Box::new(move |result| drop(sender.send(result))))?;
        receiver.await.unwrap_or(Err(WalError::Closed))
    }

    /// What the node's identity records about the group.
    pub(crate) fn notes(&self) -> GroupNotes {
        self.home.identity().notes(self.group)
    }

    /// Records that an image which ends at this index is about to replace the store's state.
    pub(crate) async fn note_image(&self, end: u64) -> Result<(), WalError> {
        self.note(|notes| {
            notes.image_end_before = notes.image_end.replace(end);
            // An image that replaces damaged data may end before that data.
            notes.stored = notes.stored.min(Some(end));
        })
        .await
    }

    /// Records that the store durably holds everything up to this index.
    pub(crate) async fn note_stored(&self, index: u64) -> Result<(), WalError> {
        self.note(|notes| notes.stored = Some(index)).await
    }

    /// Records what the next start must know about entries that can't be applied.
    pub(crate) async fn note_trial(&self, trial: Trial) -> Result<(), WalError> {
        self.note(|notes| notes.trial = Some(trial)).await
    }

    /// Records the entry that is about to be applied alone, or could not be applied.
    pub(crate) async fn note_trying(&self, index: u64) -> Result<(), WalError> {
        self.note(|notes| notes.trial = Some(Trial { trying: Some(index), ..notes.trial.unwrap_or_default() })).await
    }

    /// Records all entries before which this node has promised to stop. `halts` is called when they are written.
    pub(crate) async fn note_halts(&self, halts: impl FnOnce() -> Vec<Halt>) -> Result<(), WalError> {
        self.note(|notes| notes.halts = halts()).await
    }

    /// Records that this node is released from a promise.
    pub(crate) async fn note_release(&self, halt: Halt) -> Result<(), WalError> {
        self.note(|notes| notes.halts.retain(|known| *known != halt)).await
    }

    async fn note(&self, note: impl FnOnce(&mut GroupNotes)) -> Result<(), WalError> {
        let noted = self.home.change(|identity| {
            identity.note(self.group, note);
            Ok::<(), ()>(())
        });
        noted.await.map(drop)
    }
}
