//! Holding writes back, for one whose statements must see no other's.
//!
//! Invariants:
//! - While a hold lasts this node proposes nothing but what goes through it, one proposal at most. It ends with its
//!   handle, with that proposal, with this node's leadership, or when its time is up.
//! - It begins when all that was proposed before it is answered, and a majority has confirmed the leader since.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use openraft::rt::WatchReceiver;
use quorate_env::{Instant, timeout};
use quorate_model::{Epoch, GroupId, Outcome, Position};
use tokio::sync::{mpsc, oneshot};

use super::forward::leader_elsewhere;
use super::{Combiner, Destination, Gatherer, QueuedProposal, Request};
use crate::error::ProposeError;
use crate::raft::Raft;
use crate::reads::{ROUND_MAX, lead_round};

/// The longest time for which writes are held back at once.
pub const HOLD_MAX: Duration = Duration::from_secs(10);

/// Who asks for a hold.
pub(super) struct HoldRequest {
    limit: Duration,
    granted: oneshot::Sender<Result<Granted, ProposeError>>,
}

/// What a hold is made of.
struct Granted {
    index: u64,
    now: u64,
    queue: mpsc::Sender<QueuedProposal>,
}

/// Nobody else's writes are proposed while this is kept.
pub struct Hold {
    granted: Granted,
    combiner: Combiner,
    epoch: Epoch,
}

impl Hold {
    /// The position that must be applied so that nothing that was acknowledged before is missing.
    pub fn position(&self) -> Position {
        self.at(self.granted.index)
    }

    /// The time at which it began, in nanoseconds since 1970-01-01 UTC, as the clock that stamps entries has it.
    pub fn now(&self) -> u64 {
        self.granted.now
    }

    /// Proposes, and ends the hold.
    ///
    /// # Errors
    ///
    /// Those of [`Consensus::propose`](crate::Consensus::propose); nothing was proposed where the hold had ended.
    pub async fn propose(self, proposal: Bytes) -> Result<(Position, Outcome), ProposeError> {
        let (queued, response) = self.combiner.prepare(proposal, Destination::Local)?;
        let ended = |_| ProposeError::NotLeader { leader: None };
        self.granted.queue.try_send(queued).map_err(ended)?;
        let (index, outcome) = response.result("the hold ended, or the node went down").await?;
        Ok((self.at(index), outcome))
    }

    fn at(&self, index: u64) -> Position {
        Position { epoch: self.epoch, group: GroupId::MAIN, index }
    }
}

impl Combiner {
    /// Waits for a hold, behind all proposals that wait.
    pub(crate) async fn hold(&self, limit: Duration, epoch: Epoch) -> Result<Hold, ProposeError> {
        let (sender, granted) = oneshot::channel();
        self.send(Request::Hold(HoldRequest { limit, granted: sender }))?;
        let stopped = |_| ProposeError::Stopped("it is going down".to_owned());
        let granted = granted.await.map_err(stopped)??;
        Ok(Hold { granted, combiner: self.clone(), epoch })
    }
}

impl Gatherer {
    /// Grants a hold and waits for its end; the proposal that it ends with, if there is one.
    pub(super) async fn hold(&mut self, HoldRequest { limit, granted }: HoldRequest) -> Option<QueuedProposal> {
        let (raft, peers) = (&self.raft, &self.peers);
        if granted.is_closed() {
            return None;
        }
        let Ok(Ok(index)) = timeout(ROUND_MAX, lead_round(raft)).await else {
            let leader = leader_elsewhere(raft).and_then(|leader| peers.leader_member(leader, None));
            // Who asked may have gone away.
            let _ = granted.send(Err(ProposeError::NotLeader { leader }));
            return None;
        };
        let (queue, mut receiver) = mpsc::channel(1);
        let now = self.stamper.stamp(&mut peers.voter_clock_offsets(raft)).now;
        granted.send(Ok(Granted { index, now, queue })).ok()?;
        let begun = Instant::now();
        let (proposed, deposed) = (pin!(receiver.recv()), pin!(leads_no_more(raft)));
        let last = match timeout(limit, select(proposed, deposed)).await {
            Ok(Either::Left((last, _))) => last,
            Ok(Either::Right(_)) | Err(_) => None,
        };
        self.metrics.holds.observe(begun.elapsed());
        last
    }
}

async fn leads_no_more(raft: &Raft) {
    let mut metrics = raft.metrics();
    while metrics.borrow_watched().current_leader.as_ref() == Some(raft.node_id()) {
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("position", &self.position()).finish_non_exhaustive()
    }
}
