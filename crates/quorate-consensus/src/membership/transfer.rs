//! Hands leadership of a group over: on request, before this node stops, or because it should not lead.

use std::time::Duration;

use openraft::rt::WatchReceiver;
use quorate_env::{Instant, Throttle, timeout};
use quorate_model::{NodeId, StoreFault};

use super::{ids_named, leading, no_such, progress};
use crate::error::MembershipError;
use crate::group::Group;
use crate::peers::Peers;
use crate::raft::Raft;

/// How long a hand-over waits for another node to lead.
const TRANSFER_MAX: Duration = Duration::from_secs(3);

/// How long a stopping leader waits for the answers of voters that could take over, and how much longer if none of them
/// has answered by then.
const HAND_OVER_ASK_MAX: Duration = Duration::from_millis(300);
const HAND_OVER_LATE_MAX: Duration = Duration::from_secs(1);

impl Group {
    /// Rejects the entry at which the leader waits for voters that can't be reached. Only the leader can do this.
    ///
    /// A voter that has applied the entry takes a copy of the others' data when it comes back.
    pub fn reject_entry(&self, index: u64) -> Result<(), MembershipError> {
        leading(&self.peers, &self.raft)?;
        self.verdicts.force(index).map_err(MembershipError::Refused)
    }

    /// Hands leadership to a voter that answers now. The latest status is not enough: a voter may have stopped since.
    pub(crate) async fn hand_over(&self) {
        let (raft, peers) = (&self.raft, &self.peers);
        let own = *raft.node_id();
        let voters: Vec<u64> = raft.voter_ids().filter(|id| *id != own).collect();
        let mut there = peers.answering(&voters, HAND_OVER_ASK_MAX).await;
        if there.is_empty() {
            // On a busy machine they answer late. One that is down refuses the connection at once.
            there = peers.answering(&voters, HAND_OVER_LATE_MAX).await;
        }
        if there.is_empty() {
            return tracing::info!(event = "no_hand_over", "no other voter answers, so none can take over leadership");
        }
        match transfer(raft, peers, |id| there.contains(&id)).await {
            Ok(leader) => {
                let name =
                    peers.leader_member(leader.0, None).map_or_else(|| leader.to_string(), |(_, member)| member.name);
                tracing::info!(event = "handed_over", member = name, "{name} has taken over leadership");
            }
            Err(error) => tracing::info!(event = "no_hand_over", %error, "no other voter took over leadership"),
        }
    }
}

/// Hands leadership over, again and again, as long as this node leads with a full disk or with a store that can't apply
/// entries. The others have disks of their own. If they have applied an entry that this node can't apply, one of them
/// can answer callers at once, while this node could not before it has caught up. If the database is damaged, the core
/// is stopped.
pub(crate) async fn step_aside(group: Group) {
    let Group { raft, store, verdicts, peers, config, log, .. } = group;
    let throttle = Throttle::default();
    let mut changed = verdicts.changes();
    loop {
        // Waits for a change, but not longer than the interval.
        let _ = timeout(config.timing.status, changed.changed()).await;
        let holders = verdicts.holders();
        let why = match store.fault() {
            Some(fault) => fault.to_string(),
            None if !holders.is_empty() => "an entry that others have applied can't be applied here".to_owned(),
            None if log.wal().is_disk_full() => "no space left for the log".to_owned(),
            None => continue,
        };
        if raft.is_leader() {
            let taken_over =
                transfer(&raft, &peers, |id| holders.is_empty() || holders.contains(&NodeId(id))).await.is_ok();
            if throttle.is_due() || taken_over {
                tracing::warn!(why, taken_over, "this node should not lead");
            }
        }
        // If the damage also blocks an entry, the database is replaced while the node runs.
        if matches!(store.fault(), Some(StoreFault::Damaged(_))) && verdicts.blocked().is_none() {
            // The next start replaces the database. Otherwise the node would end only at the next entry.
            verdicts.close();
            let _ = raft.shutdown().await;
            return;
        }
    }
}

/// Hands leadership to the voter with this name, or to the most suitable voter, and returns the new leader.
pub(crate) async fn transfer_to(peers: &Peers, raft: &Raft, name: Option<&str>) -> Result<NodeId, MembershipError> {
    let now = leading(peers, raft)?;
    let Some(name) = name else { return transfer(raft, peers, |_| true).await };
    let ids = ids_named(now.membership(), name);
    if ids.is_empty() {
        return Err(no_such(now.membership(), name));
    }
    if ids.contains(raft.node_id()) {
        return Ok(NodeId(*raft.node_id()));
    }
    if !now.membership().voter_ids().any(|id| ids.contains(&id)) {
        return Err(MembershipError::Refused(format!("'{name}' is a learner: only a voter can lead")));
    }
    let leads = transfer(raft, peers, |id| ids.contains(&id)).await?;
    if ids.contains(&leads.0) {
        return Ok(leads);
    }
    Err(MembershipError::Unconfirmed(format!("another node, {leads}, took the leadership over")))
}

/// Hands leadership over because this node must not make a change as the leader. Returns the error for the caller: it
/// names the new leader, or says why no other node leads.
pub(crate) async fn give_way(peers: &Peers, raft: &Raft, may: impl Fn(u64) -> bool) -> MembershipError {
    match transfer(raft, peers, may).await {
        Ok(leader) => MembershipError::NotLeader { leader: peers.leader_member(leader.0, None) },
        Err(error) => error,
    }
}

/// Hands leadership to one of the voters that `may` allows, preferably one that has answered lately and has most of the
/// log, and waits until another node leads.
pub(crate) async fn transfer(raft: &Raft, peers: &Peers, may: impl Fn(u64) -> bool) -> Result<NodeId, MembershipError> {
    let own = *raft.node_id();
    if !raft.is_leader() {
        return Err(MembershipError::NotLeader { leader: None });
    }
    let others = raft.voter_ids().filter(|id| *id != own && may(*id));
    let best = others.max_by_key(|id| (peers.is_heard(*id), progress(raft, *id).matched));
    let Some(target) = best else {
        return Err(MembershipError::Refused("there is no other voter that could lead".to_owned()));
    };
    let failed = |error: &dyn std::fmt::Display| MembershipError::Unconfirmed(error.to_string());
    raft.trigger().transfer_leader(target).await.map_err(|error| failed(&error))?;
    let deadline = Instant::now() + TRANSFER_MAX;
    let mut metrics = raft.metrics();
    loop {
        let leader = metrics.borrow_watched().current_leader;
        if let Some(leader) = leader.filter(|leader| *leader != own) {
            return Ok(NodeId(leader));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match timeout(left, metrics.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(failed(&"the core stopped")),
            Err(_) => return Err(failed(&"nobody took over in time")),
        }
    }
}
