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
use quorate_model::{Command, ControlCommand, Proposal, codec};

use crate::peer_service::{PeerService, Running};
use crate::stamp;

/// How often the leader looks whether something is due.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Proposes ticks while this node leads. Never returns.
pub(crate) async fn run(env: Env, service: Arc<PeerService>, running: Running) {
    let tick = Command::from(ControlCommand::Tick);
    let level = tick.level();
    // Encoding fails only for a proposal that is too large.
    let Ok(proposal) = codec::encode_proposal(&Proposal::new(None, vec![tick])) else { return };
    loop {
        sleep(LOOK_EVERY).await;
        if !running.raft.is_leader() {
            continue;
        }
        let applied = running.store.applied();
        let now = || stamp::limited_now(&env, &mut service.peers.voter_clock_offsets(&running.raft));
        let is_due = applied.due.is_some_and(|due| due <= now());
        // If it fails, another leader or the next round proposes one.
        if is_due
            && applied.level >= level
            && let Err(error) = running.combiner.propose(proposal.clone()).await
        {
            tracing::debug!(%error, "a tick was not applied");
        }
    }
}
