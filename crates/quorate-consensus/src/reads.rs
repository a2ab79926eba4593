//! Read positions by ReadIndex, from any node.
//!
//! A position is confirmed by a round in which a majority acknowledged the leader after the read arrived. Reads that
//! arrive while a round is under way wait for the next and share it.
//!
//! Invariant: a round that is started serves only reads that arrived before it.

use std::sync::Arc;
use std::time::Duration;

use openraft::ReadPolicy;
use openraft::rt::WatchReceiver;
use quorate_env::mutant::Mutant;
use quorate_env::{Instant, timeout};
use tokio::sync::{mpsc, oneshot};

use crate::error::ReadPositionError;
use crate::metrics::ConsensusMetrics;
use crate::peer::messages::{ReadPositionReply, decode, method};
use crate::peers::Peers;
use crate::raft::Raft;

/// Reads that may wait for a round.
const WAITING_MAX: usize = 65_536;

/// A round that takes longer has failed.
const ROUND_MAX: Duration = Duration::from_secs(2);

type Answer = Result<u64, ReadPositionError>;

/// Where readers ask. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReadPositions(mpsc::Sender<oneshot::Sender<Answer>>);

/// The other end: what the core's thread runs.
pub(crate) struct Rounds(mpsc::Receiver<oneshot::Sender<Answer>>);

/// A new queue, empty.
pub(crate) fn read_positions() -> (ReadPositions, Rounds) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (ReadPositions(sender), Rounds(receiver))
}

impl ReadPositions {
    /// The index up to which a linearizable read must see the state.
    pub(crate) async fn get(&self) -> Answer {
        let (sender, receiver) = oneshot::channel();
        self.0.try_send(sender).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ReadPositionError::Unavailable("too many reads wait".to_owned()),
            mpsc::error::TrySendError::Closed(_) => ReadPositionError::Stopped,
        })?;
        receiver.await.unwrap_or(Err(ReadPositionError::Stopped))
    }
}

impl Rounds {
    /// Runs round after round until all who could ask are gone.
    pub(crate) async fn run(mut self, raft: Raft, peers: Arc<Peers>, metrics: Arc<ConsensusMetrics>) {
        let mut waiting = Vec::new();
        while self.0.recv_many(&mut waiting, WAITING_MAX).await > 0 {
            let begun = Instant::now();
            let answer = match timeout(ROUND_MAX, round(&raft, &peers)).await {
                Ok(answer) => answer,
                Err(_) => Err(ReadPositionError::Unavailable("no answer in time".to_owned())),
            };
            match &answer {
                Ok(_) => metrics.read_rounds.observe(begun.elapsed()),
                Err(_) => metrics.read_rounds_failed.inc(),
            }
            for reader in waiting.drain(..) {
                // The reader may have gone away.
                let _ = reader.send(answer.clone());
            }
        }
    }
}

async fn round(raft: &Raft, peers: &Peers) -> Answer {
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
pub(crate) async fn lead_round(raft: &Raft) -> Answer {
    let unavailable = |error: &dyn std::fmt::Display| ReadPositionError::Unavailable(error.to_string());
    if Mutant::ReadWithoutQuorum.is_on() {
        return Ok(raft.metrics().borrow_watched().last_applied.as_ref().map_or(0, |id| id.index));
    }
    let linearizer = raft.get_read_linearizer(ReadPolicy::ReadIndex).await.map_err(|error| unavailable(&error))?;
    Ok(linearizer.read_log_id().index())
}
