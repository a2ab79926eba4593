//! Read positions by ReadIndex, available on any node.
//!
//! A round confirms a position: a majority acknowledges the leader after the read has arrived. Reads that arrive during
//! a round wait for the next one and share it.
//!
//! Invariant: a round serves only reads that arrived before it began, and later reads that accept the state as of its
//! beginning.

use std::sync::Arc;
use std::time::Duration;

use openraft::ReadPolicy;
use openraft::rt::WatchReceiver;
use quorate_env::mutant::Mutant;
use quorate_env::{Instant, timeout};
use quorate_model::GroupId;
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::ReadPositionError;
use crate::metrics::GroupMetrics;
use crate::peer::messages::{ReadPositionAsk, ReadPositionReply, decode, encode, method};
use crate::peers::Peers;
use crate::raft::Raft;

/// The maximum number of reads that may wait for a round.
const WAITING_MAX: usize = 65_536;

/// A round that takes longer has failed.
pub(crate) const ROUND_MAX: Duration = Duration::from_secs(2);

type ReadResult = Result<u64, ReadPositionError>;

/// The readers' end of the queue. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReadPositions {
    waiting: mpsc::Sender<oneshot::Sender<ReadResult>>,
    latest: watch::Receiver<Option<Confirmed>>,
}

/// The other end of the queue, which runs on the core's thread.
pub(crate) struct Rounds {
    waiting: mpsc::Receiver<oneshot::Sender<ReadResult>>,
    latest: watch::Sender<Option<Confirmed>>,
}

/// The result of a round.
#[derive(Clone, Copy)]
struct Confirmed {
    /// When the round began, by this node's clock.
    begun: Instant,
    index: u64,
}

/// Creates an empty queue.
pub(crate) fn read_positions() -> (ReadPositions, Rounds) {
    let (sender, waiting) = mpsc::channel(WAITING_MAX);
    let (publisher, latest) = watch::channel(None);
    (ReadPositions { waiting: sender, latest }, Rounds { waiting, latest: publisher })
}

impl ReadPositions {
    /// Returns the index up to which a linearizable read must see the state.
    pub(crate) async fn get(&self) -> ReadResult {
        let (sender, receiver) = oneshot::channel();
        self.waiting.try_send(sender).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                ReadPositionError::Unavailable("too many reads are waiting".to_owned())
            }
            mpsc::error::TrySendError::Closed(_) => ReadPositionError::Stopped,
        })?;
        receiver.await.unwrap_or(Err(ReadPositionError::Stopped))
    }

    /// Returns the index for a read that accepts a state of this age. Starts no round if the latest one is young
    /// enough.
    pub(crate) async fn get_within(&self, age: Duration) -> ReadResult {
        let latest = *self.latest.borrow();
        match latest.filter(|latest| latest.begun.elapsed() <= age || Mutant::AgeNotChecked.is_on()) {
            Some(latest) => Ok(latest.index),
            None => self.get().await,
        }
    }
}

impl Rounds {
    /// Runs round after round until all senders of the queue are dropped.
    pub(crate) async fn run(mut self, group: GroupId, raft: Raft, peers: Arc<Peers>, metrics: Arc<GroupMetrics>) {
        let mut waiting = Vec::new();
        while self.waiting.recv_many(&mut waiting, WAITING_MAX).await > 0 {
            let begun = Instant::now();
            let answer = match timeout(ROUND_MAX, round(group, &raft, &peers)).await {
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

async fn round(group: GroupId, raft: &Raft, peers: &Peers) -> ReadResult {
    if raft.is_leader() {
        return lead_round(raft).await;
    }
    let Some(leader) = raft.current_leader().await else {
        return Err(ReadPositionError::Unavailable("no leader is known".to_owned()));
    };
    let unavailable = |error: &dyn std::fmt::Display| ReadPositionError::Unavailable(error.to_string());
    let ask = encode(&ReadPositionAsk { group: group.0 });
    let asked = peers.call_member(leader, method::READ_POSITION, ask, ROUND_MAX).await;
    let reply: ReadPositionReply =
        decode(asked.map_err(|error| unavailable(&error))?).map_err(|error| unavailable(&error))?;
    reply.index.ok_or_else(|| ReadPositionError::Unavailable("the leader has just changed".to_owned()))
}

/// Runs a round on the leader itself.
pub(crate) async fn lead_round(raft: &Raft) -> ReadResult {
    let unavailable = |error: &dyn std::fmt::Display| ReadPositionError::Unavailable(error.to_string());
    if Mutant::ReadWithoutQuorum.is_on() {
        return Ok(raft.metrics().borrow_watched().last_applied.as_ref().map_or(0, |id| id.index));
    }
    let linearizer = raft.get_read_linearizer(ReadPolicy::ReadIndex).await.map_err(|error| unavailable(&error))?;
    Ok(linearizer.read_log_id().index())
}
