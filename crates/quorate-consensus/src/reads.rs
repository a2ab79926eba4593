//! Read positions by ReadIndex, from any node.
//!
//! A position is confirmed by a round in which a majority acknowledged the leader after the read arrived. Reads that
//! arrive while a round is under way wait for the next and share it.
//!
//! Invariant: a round that is started serves only reads that arrived before it, and those after it that are content
//! with what was so when it began.

use std::sync::Arc;
use std::time::Duration;

use openraft::ReadPolicy;
use openraft::rt::WatchReceiver;
use quorate_env::mutant::Mutant;
use quorate_env::{Instant, timeout};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::ReadPositionError;
use crate::metrics::ConsensusMetrics;
use crate::peer::messages::{ReadPositionReply, decode, method};
use crate::peers::Peers;
use crate::raft::Raft;

/// Reads that may wait for a round.
const WAITING_MAX: usize = 65_536;

/// A round that takes longer has failed.
pub(crate) const ROUND_MAX: Duration = Duration::from_secs(2);

type ReadResult = Result<u64, ReadPositionError>;

/// Where readers ask. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReadPositions {
    waiting: mpsc::Sender<oneshot::Sender<ReadResult>>,
    latest: watch::Receiver<Option<Confirmed>>,
}

/// The other end: what the core's thread runs.
pub(crate) struct Rounds {
    waiting: mpsc::Receiver<oneshot::Sender<ReadResult>>,
    latest: watch::Sender<Option<Confirmed>>,
}

/// What a round came to.
#[derive(Clone, Copy)]
struct Confirmed {
    /// When it began, by this node's own clock.
    begun: Instant,
    index: u64,
}

/// A new queue, empty.
pub(crate) fn read_positions() -> (ReadPositions, Rounds) {
    let (sender, waiting) = mpsc::channel(WAITING_MAX);
    let (publisher, latest) = watch::channel(None);
    (ReadPositions { waiting: sender, latest }, Rounds { waiting, latest: publisher })
}

impl ReadPositions {
    /// The index up to which a linearizable read must see the state.
    pub(crate) async fn get(&self) -> ReadResult {
        let (sender, receiver) = oneshot::channel();
        self.waiting.try_send(sender).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ReadPositionError::Unavailable("too many reads wait".to_owned()),
            mpsc::error::TrySendError::Closed(_) => ReadPositionError::Stopped,
        })?;
        receiver.await.unwrap_or(Err(ReadPositionError::Stopped))
    }

    /// The same as it was at some time that is no longer ago than this. Asks nobody if a round that is as young was
    /// confirmed.
    pub(crate) async fn get_within(&self, age: Duration) -> ReadResult {
        let latest = *self.latest.borrow();
        match latest.filter(|latest| latest.begun.elapsed() <= age || Mutant::AgeNotChecked.is_on()) {
            Some(latest) => Ok(latest.index),
            None => self.get().await,
        }
    }
}

impl Rounds {
    /// Runs round after round until all who could ask are gone.
    pub(crate) async fn run(mut self, raft: Raft, peers: Arc<Peers>, metrics: Arc<ConsensusMetrics>) {
        let mut waiting = Vec::new();
        while self.waiting.recv_many(&mut waiting, WAITING_MAX).await > 0 {
            let begun = Instant::now();
            let answer = match timeout(ROUND_MAX, round(&raft, &peers)).await {
                Ok(answer) => answer,
                Err(_) => Err(ReadPositionError::Unavailable("no answer in time".to_owned())),
            };
            match &answer {
                Ok(index) => {
                    metrics.read_rounds.observe(begun.elapsed());
                    self.latest.send_replace(Some(Confirmed { begun, index: *index }));
                }
                Err(_) => metrics.read_rounds_failed.inc(),
            }
            for reader in waiting.drain(..) {
                // The reader may have gone away.
                let _ = reader.send(answer.clone());
            }
        }
    }
}

async fn round(raft: &Raft, peers: &Peers) -> ReadResult {
    if raft.is_leader() {
        return lead_round(raft).await;
    }
    let Some(leader) = raft.current_leader().await else {
        return Err(ReadPositionError::Unavailable("no leader is known".to_owned()));
    };
    let body = peers
        .call_member(leader, method::READ_POSITION, bytes::Bytes::new(), ROUND_MAX)
        .await
        .map_err(|error| ReadPositionError::Unavailable(error.to_string()))?;
    let reply: ReadPositionReply = decode(body).map_err(|error| ReadPositionError::Unavailable(error.to_string()))?;
    reply.index.ok_or_else(|| ReadPositionError::Unavailable("the leader has just changed".to_owned()))
}

/// A round of the leader itself.
pub(crate) async fn lead_round(raft: &Raft) -> ReadResult {
    let unavailable = |error: &dyn std::fmt::Display| ReadPositionError::Unavailable(error.to_string());
    if Mutant::ReadWithoutQuorum.is_on() {
        return Ok(raft.metrics().borrow_watched().last_applied.as_ref().map_or(0, |id| id.index));
    }
    let linearizer = raft.get_read_linearizer(ReadPolicy::ReadIndex).await.map_err(|error| unavailable(&error))?;
    Ok(linearizer.read_log_id().index())
}
