//! Ticks: entries by which the leader lets time pass when nothing else is written.
//!
//! The state machine knows when something is due next. Once that time has come by the clock of stamps, the leader
//! proposes a tick, which sweeps it on all nodes. Any other entry of the state machine's stores sweeps too, so a busy
//! cluster needs few ticks. The leader proposes no tick while its store slows the writer for a checkpoint. A sweep at
//! full speed adds pages faster than the checkpoint copies them, and then other writes have to wait for the rest.
//!
//! Invariant: nothing is proposed while nothing is due, so an idle cluster writes nothing.

use std::time::Duration;

use quorate_env::sleep;
use quorate_model::{Applied, ControlCommand, Proposal, codec};

use crate::group::Group;
use crate::stamp;

/// How often the leader looks whether something is due.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Proposes ticks while this node leads, one after the other while more is due. Never returns.
pub(crate) async fn run(group: Group) {
    loop {
        let is_due = group.raft.is_leader() && !group.store.is_slowed() && is_due(&group);
        if !is_due || !tick(&group).await {
            sleep(LOOK_EVERY).await;
        }
    }
}

fn is_due(group: &Group) -> bool {
    let Applied { level, due, .. } = group.store.applied();
    let now = || stamp::limited_now(group.log.env(), &mut group.peers.voter_clock_offsets(&group.raft));
    level >= ControlCommand::Tick.level() && due.is_some_and(|due| due == 0 || due <= now())
}

/// Proposes a tick. Returns whether it was applied; if not, another leader or the next round proposes one.
async fn tick(group: &Group) -> bool {
    let proposal = Proposal::new(None, vec![ControlCommand::Tick.into()]);
    let Ok(proposal) = codec::encode_proposal(&proposal) else { return false };
    match group.combiner.propose(proposal).await {
        Ok((_, Ok(_))) => true,
        Ok((_, Err(failure))) => {
            tracing::warn!(%failure, "a tick has failed");
            false
        }
        Err(error) => {
            tracing::debug!(%error, "a tick was not applied");
            false
        }
    }
}
