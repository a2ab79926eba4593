//! Holds: an interactive transaction holds back all other writes, so that its statements see no effects of them.
//!
//! Invariants:
//! - While a hold lasts, this node proposes only what goes through the hold, which is at most one proposal. The hold
//!   ends when its handle is dropped, when that proposal is made, when this node no longer leads, or when its time is
//!   up.
//! - A hold begins after all earlier proposals have their responses and a majority has confirmed the leader since then.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use openraft::rt::WatchReceiver;
use quorate_env::{Instant, timeout};
use quorate_model::{Outcome, Position};
use tokio::sync::{mpsc, oneshot};

use super::forward::leader_elsewhere;
use super::{Combiner, Destination, Gatherer, QueuedProposal, Request};
use crate::error::ProposeError;
use crate::raft::Raft;
use crate::reads::{ROUND_MAX, lead_round};

/// The longest time that one hold may last.
pub const HOLD_MAX: Duration = Duration::from_secs(10);

/// A request for a hold.
pub(super) struct HoldRequest {
    limit: Duration,
    granted: oneshot::Sender<Result<Granted, ProposeError>>,
}

/// The gatherer's answer to a request for a hold.
struct Granted {
    index: u64,
    now: u64,
    queue: mpsc::Sender<QueuedProposal>,
}

/// A hold on writes: no other writes are proposed while this value exists, within the limit of time.
pub struct Hold {
    granted: Granted,
    combiner: Combiner,
    /// A position of the group.
    origin: Position,
}

impl Hold {
    /// The position up to which the store must be applied to contain everything that was acknowledged before the hold.
    pub fn position(&self) -> Position {
        self.at(self.granted.index)
    }

    /// The time at which the hold began, in nanoseconds since 1970-01-01 UTC, by the clock that stamps entries.
    pub fn now(&self) -> u64 {
        self.granted.now
    }

    /// Makes the one proposal of this hold, and ends the hold.
    ///
    /// # Errors
    ///
    /// The errors of [`Group::propose`](crate::Group::propose). [`ProposeError::NotLeader`] if the hold had
    /// ended: nothing was proposed then.
    pub async fn propose(self, proposal: Bytes) -> Result<(Position, Outcome), ProposeError> {
        let (queued, response) = self.combiner.prepare(proposal, Destination::Local)?;
        let ended = |_| ProposeError::NotLeader { leader: None };
        self.granted.queue.try_send(queued).map_err(ended)?;
        let (index, outcome) = response.result("the hold on writes ended, or the node went down").await?;
        Ok((self.at(index), outcome))
    }

    fn at(&self, index: u64) -> Position {
        Position { index, ..self.origin }
    }
}

impl Combiner {
    /// Waits for a hold, after all proposals that are queued before it. `origin` is a position of the group.
    pub(crate) async fn hold(&self, limit: Duration, origin: Position) -> Result<Hold, ProposeError> {
        let (sender, granted) = oneshot::channel();
        self.send(Request::Hold(HoldRequest { limit, granted: sender }))?;
        let stopped = |_| ProposeError::Stopped("it is shutting down".to_owned());
        let granted = granted.await.map_err(stopped)??;
        Ok(Hold { granted, combiner: self.clone(), origin })
    }
}

impl Gatherer {
    /// Grants a hold and waits until it ends. Returns the proposal that was made through it, if there is one.
    pub(super) async fn hold(&mut self, HoldRequest { limit, granted }: HoldRequest) -> Option<QueuedProposal> {
        let (raft, peers) = (&self.raft, &self.peers);
        if granted.is_closed() {
            return None;
        }
        let Ok(Ok(index)) = timeout(ROUND_MAX, lead_round(raft)).await else {
            let leader = leader_elsewhere(raft).and_then(|leader| peers.leader_member(leader, None));
            // The caller may have gone away.
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

/// Waits until this node does not lead.
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
