//! Ticks: entries by which the leader lets time pass when nothing else is written.
//!
//! The state machine knows when something is due next. Once that time has come by the clock of stamps, the leader
//! proposes a tick, which sweeps it on all nodes. Any other entry of the state machine's stores sweeps too, so a busy
//! cluster needs few ticks.
//!
//! Invariant: nothing is proposed while nothing is due, so an idle cluster writes nothing.

use std::sync::Arc;
use std::time::Duration;

use quorate_env::{Env, sleep};
use quorate_model::{Applied, ControlCommand, Proposal, codec};

use crate::peer_service::{PeerService, Running};
use crate::stamp;

/// How often the leader looks whether something is due.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Proposes ticks while this node leads, one after the other while more is due. Never returns.
pub(crate) async fn run(env: Env, service: Arc<PeerService>, running: Running) {
    loop {
        let is_due = running.raft.is_leader() && is_due(&env, &service, &running);
        if !is_due || !tick(&running).await {
            sleep(LOOK_EVERY).await;
        }
    }
}

fn is_due(env: &Env, service: &PeerService, running: &Running) -> bool {
    let Applied { level, due, .. } = running.store.applied();
    let now = || stamp::limited_now(env, &mut service.peers.voter_clock_offsets(&running.raft));
    level >= ControlCommand::Tick.level() && due.is_some_and(|due| due == 0 || due <= now())
}

/// Proposes a tick. Returns whether it was applied; if not, another leader or the next round proposes one.
async fn tick(running: &Running) -> bool {
    let proposal = Proposal::new(None, vec![ControlCommand::Tick.into()]);
    let Ok(proposal) = codec::encode_proposal(&proposal) else { return false };
    match running.combiner.propose(proposal).await {
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
