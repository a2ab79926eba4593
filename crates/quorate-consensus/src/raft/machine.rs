//! openraft's state machine over a [`StateMachine`].
//!
//! Invariants:
//! - The store's thread answers the callers, while the core continues with the next batch. This wakes the callers one
//!   by one, but does not harm group commit, because the combiner proposes nothing before a batch is answered
//!   completely.
//! - The snapshot that is reported for purging is what the store holds durably, but never more than the core has had
//!   applied. An image may end later than announced, and an image may replace the store's state without the core. Then
//!   the core applies the entries up to there again, so the log must still have them.
//! - No entry is applied before it is written to this node's own log, even if the other nodes have committed it. If the
//!   process is killed, the store must not be ahead of its log, except by an image whose end was recorded before.
//! - A fault of the store is never an outcome. [`Verdicts`] finds out whether the entry or this node is to blame. If it
//!   is the node, the core ends.

use std::io;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{OptionalSend, RaftSnapshotBuilder};
use quorate_env::mutant::Mutant;
use quorate_model::{Applied, Entry, Outcome, StateMachine, StoreFault, WholeImage};
use tokio::sync::oneshot;

use super::codec;
use super::types::{AppliedOutcome, RaftLogId, SnapshotMeta, StoredMembership, TypeConfig, to_raft};
use crate::group_log::GroupLog;
use crate::verdict::{self, Verdicts};

/// The maximum number of entries that are handed to the store at once.
const BATCH_ENTRIES_MAX: usize = 4_096;

/// The maximum number of bytes of entries that are read from the log at once.
const READ_BYTES: usize = 8 << 20;

/// A snapshot, as openraft passes it around.
pub(crate) enum Image {
    /// The present state of a store: read when it is sent, not before.
    Present(Arc<dyn StateMachine>),
    /// Received from the leader, not yet installed.
    Received(Box<dyn WholeImage>),
}

pub(crate) type Snapshot = openraft::alias::SnapshotOf<TypeConfig, Image>;

/// The receiver of an entry's outcome, if there is one on this node.
type Responder = Option<ApplyResponder<TypeConfig>>;

/// openraft's handle to the store.
pub(crate) struct Machine {
    log: GroupLog,
    store: Arc<dyn StateMachine>,
    verdicts: Arc<Verdicts>,
    /// The last entry that the core has had applied, or knows to be applied.
    known: Option<RaftLogId>,
}

impl Machine {
    pub(crate) fn new(log: GroupLog, store: Arc<dyn StateMachine>, verdicts: Arc<Verdicts>) -> Self {
        Self { log, store, verdicts, known: None }
    }

    /// Applies the entries that the log knows to be committed, before the core runs. Stops at the first entry that
    /// can't be applied or must wait: the core gets to it again, and then the other nodes can be asked.
    pub(crate) async fn replay(&self) {
        let last = self.log.committed().min(self.log.last()).map_or(0, |id| id.index);
        // The first entry of a log has the index 0.
        let mut next = self.store.applied().log_id.map_or(0, |id| id.index.saturating_add(1));
        while next <= last {
            let most = last.min(next.saturating_add(BATCH_ENTRIES_MAX as u64 - 1));
            let Some(cleared) = self.verdicts.clear_now(next, most) else { return };
            let Ok(page) = self.read_page(next, cleared.last) else { return self.verdicts.answered() };
            next = page.last().map_or(last, |entry| entry.log_id.index).saturating_add(1);
            let nobody = page.iter().map(|_| None).collect();
            match self.hand_over(page, nobody).await {
                Ok(()) => self.verdicts.answered(),
                Err((StoreFault::Stuck(_), _)) => return,
                Err(_) => return self.verdicts.answered(),
            }
        }
    }

    /// Applies a batch: in one part, or in several if one of its entries can't be applied or must wait.
    async fn apply_batch(&self, mut batch: Vec<Entry>, mut responders: Vec<Responder>) -> Result<(), StoreFault> {
        while let (Some(first), Some(last)) = (batch.first(), batch.last()) {
            let (first, last) = (first.log_id.index, last.log_id.index);
            let cleared = self.verdicts.clear(first, last).await?;
            let count = batch.iter().take_while(|entry| entry.log_id.index <= cleared.last).count();
            let (later, later_responders) = (batch.split_off(count), responders.split_off(count));
            let part = if cleared.rejected { batch.into_iter().map(verdict::reject).collect() } else { batch };
            let handed = self.hand_over(part, responders).await;
            // A store that is stuck still runs the entries that it was given.
            if !matches!(handed, Err((StoreFault::Stuck(_), _))) {
                self.verdicts.answered();
            }
            (batch, responders) = match handed {
                Ok(()) => (later, later_responders),
                Err((fault, mut kept)) => {
                    self.verdicts.fault(&fault).await?;
                    let next = first.saturating_add(count.saturating_sub(kept.len()) as u64);
                    kept.extend(later_responders);
                    ([self.read(next, cleared.last)?, later].concat(), kept)
                }
            };
        }
        Ok(())
    }

    /// Reads entries from the log, to hand them over again.
    fn read(&self, first: u64, last: u64) -> Result<Vec<Entry>, StoreFault> {
        let (mut entries, mut next) = (Vec::new(), first);
        while next <= last {
            let page = self.read_page(next, last)?;
            next = page.last().map_or(last, |entry| entry.log_id.index).saturating_add(1);
            entries.extend(page);
        }
        Ok(entries)
    }

    /// Reads the first entries of a range: at least one, and about [`READ_BYTES`].
    fn read_page(&self, first: u64, last: u64) -> Result<Vec<Entry>, StoreFault> {
        let unreadable = |error: &dyn std::fmt::Display| StoreFault::Io(format!("the log can't be read: {error}"));
        let page = self.log.entries(first, last.saturating_add(1), READ_BYTES);
        let page = page.map_err(|error| unreadable(&error))?;
        if page.is_empty() {
            return Err(unreadable(&"entries are missing"));
        }
        let read = |(id, bytes)| codec::stored(id, bytes).map_err(|error| unreadable(&error));
        page.into_iter().map(read).collect()
    }

    /// Hands entries to the store, and answers each caller as soon as its entry is applied. A fault returns the
    /// responders of the entries that are not applied.
    async fn hand_over(
        &self,
        batch: Vec<Entry>,
        mut responders: Vec<Responder>,
    ) -> Result<(), (StoreFault, Vec<Responder>)> {
        let is_awaited = responders.iter().any(Option::is_some);
        let (sender, receiver) = oneshot::channel();
        let mut sender = Some(sender);
        let mut end = move |result| drop(sender.take().map(|sender| sender.send(result)));
        let on_applied = move |result: Result<Vec<Option<Outcome>>, StoreFault>| {
            let outcomes = match result {
                Ok(outcomes) => outcomes,
                Err(fault) => return end(Err((fault, std::mem::take(&mut responders)))),
            };
            let others = responders.split_off(outcomes.len().min(responders.len()));
            let applied = std::mem::replace(&mut responders, others);
            if responders.is_empty() {
                // Wakes the core first, because that takes a while.
                end(Ok(()));
            }
            for (responder, outcome) in applied.into_iter().zip(outcomes) {
                // If the outcome is not known here, the responder is dropped. The caller gets no outcome, and asks
                // again under its session.
                if let (Some(responder), Some(outcome)) = (responder, outcome) {
                    responder.send(AppliedOutcome(outcome));
                }
            }
        };
        self.store.apply(batch, is_awaited, Box::new(on_applied));
        let done = self.verdicts.unless_stuck(receiver).await.map_err(|fault| (fault, Vec::new()))?;
        done.unwrap_or(Err((StoreFault::Closed, Vec::new())))
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Image;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<RaftLogId>, StoredMembership), io::Error> {
        let applied = self.store.applied();
        self.known = applied.log_id.map(to_raft);
        Ok((self.known, codec::decode_stored(applied.membership.as_ref()).map_err(io::Error::other)?))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut ended = false;
        while !ended {
            let (mut batch, mut responders) = (Vec::new(), Vec::new());
            while batch.len() < BATCH_ENTRIES_MAX {
                let Some(item) = entries.next().await else {
                    ended = true;
                    break;
                };
                let (entry, responder) = item?;
                batch.push(codec::to_model(&entry).map_err(io::Error::other)?);
                responders.push(responder);
            }
            let Some(last) = batch.last() else { break };
            let last = to_raft(last.log_id);
            if !Mutant::AppliedBeforeLogged.is_on() {
                self.log.written(last.index).await.map_err(io::Error::other)?;
            }
            self.apply_batch(batch, responders).await.map_err(io::Error::other)?;
            self.known = Some(last);
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<Builder> {
        let builder = self.get_snapshot_builder().await;
        let known = self.known.map(|id| id.index);
        (builder.durable.log_id.map(|id| id.index) <= known).then_some(builder)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let is_early = Mutant::PurgedBeforeDurable.is_on();
        let durable = if is_early { self.store.applied() } else { self.store.durable() };
        Builder { durable, store: Arc::clone(&self.store) }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Image) -> Result<(), io::Error> {
        let end = match &snapshot {
            Image::Received(image) => image.end(),
            Image::Present(_) => None,
        };
        if let Some(end) = end {
            if self.store.fault().is_none() && end.index <= self.store.applied().index() {
                // Another image, which ends later, has replaced the store's state without the core. The store never
                // goes back.
                self.known = self.known.max(meta.last_log_id);
                return Ok(());
            }
            self.log.note_image(end.index).await.map_err(io::Error::other)?;
        }
        let store = Arc::clone(&self.store);
        let install = move || match snapshot {
            Image::Received(image) => image.install(),
            Image::Present(source) => copy(&*source, &*store),
        };
        // The image may end later than announced. The entries up to its end are handed over again and skipped.
        let installed = self.log.env().blocking(install).await.unwrap_or(Err(StoreFault::Closed));
        installed.map_err(io::Error::other)?;
        self.known = self.known.max(meta.last_log_id);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let applied = self.store.applied();
        if applied.log_id.is_none() {
            return Ok(None);
        }
        snapshot_of(&applied, &self.store).map(Some)
    }
}

/// Builds what openraft uses as a snapshot: a record of what is durable, up to which the log may be purged.
pub(crate) struct Builder {
    durable: Applied,
    store: Arc<dyn StateMachine>,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = Image;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        snapshot_of(&self.durable, &self.store)
    }
}

fn snapshot_of(applied: &Applied, store: &Arc<dyn StateMachine>) -> Result<Snapshot, io::Error> {
    let last_membership = codec::decode_stored(applied.membership.as_ref()).map_err(io::Error::other)?;
    let meta = SnapshotMeta { last_log_id: applied.log_id.map(to_raft), last_membership };
    Ok(Snapshot { meta, snapshot: Image::Present(Arc::clone(store)) })
}

/// Copies the state of one store in this process to another.
fn copy(source: &dyn StateMachine, target: &dyn StateMachine) -> Result<Applied, StoreFault> {
    let (mut pieces, mut sink) = (source.send_image()?, target.receive_image()?);
    while let Some(piece) = pieces.next()? {
        sink.write(piece)?;
    }
    sink.finish()?.install()
}
