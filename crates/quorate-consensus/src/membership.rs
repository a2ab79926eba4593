//! Changes of the members: joining, taking over the name of a lost directory, removing, handing leadership over.
//!
//! Joining is an idempotent question that a new node repeats until it is a voter ([`ask`]); the leader answers each
//! time with the next step that is possible ([`admit`]): learner, caught up, then one joint change in which it
//! replaces the member that had its name.
//!
//! Invariants:
//! - A name has one voter. Its old id goes only when nothing was heard of it for [`Timing::silence`](crate::Timing).
//! - One change at a time. One that a leader left half done is finished by the next ([`finish`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::rt::WatchReceiver;
use quorate_env::{Instant, sleep, timeout};
use quorate_model::{NodeId, Store};
use quorate_wal::Wal;
use quorate_wire::Purpose;

use crate::Member;
use crate::config::{ConsensusConfig, Timing};
use crate::error::MembershipError;
use crate::peer::messages::{Join, Joined, MemberInfo, decode, encode, method};
use crate::peers::Peers;
use crate::raft::Raft;
use crate::raft::types::RaftMembership;

/// A learner is caught up when it lacks at most this many entries.
const CAUGHT_UP: u64 = 1_024;

/// A change must be committed within this time, or it is looked at again later.
const CHANGE_MAX: Duration = Duration::from_secs(5);

/// Another node must take over the leadership within this time.
const TRANSFER_MAX: Duration = Duration::from_secs(3);

/// Asks to become a member, until this node is a voter.
pub(crate) async fn ask(raft: Raft, peers: Arc<Peers>, config: ConsensusConfig, own: Member) {
    let id = *raft.node_id();
    let mut said = String::new();
    while !raft.voter_ids().any(|voter| voter == id) {
        let member = MemberInfo { id, name: own.name.clone(), addr: own.addr.clone(), voter: false };
        let join = encode(&Join { member });
        for addr in peers.addrs() {
            let answer = peers.link(&addr, 0, Purpose::Heartbeat).call(method::JOIN, join.clone(), CHANGE_MAX).await;
            let Ok(Ok(joined)) = answer.map(decode::<Joined>) else { continue };
            if !joined.done && !joined.why.is_empty() && joined.why != said {
                tracing::info!(node = own.name, "waiting to become a voter: {}", joined.why);
                said = joined.why;
            }
        }
        sleep(config.timing.status).await;
    }
}

/// Takes the next step in making a node a member; only the leader can.
pub(crate) async fn admit(raft: &Raft, peers: &Peers, config: &ConsensusConfig, new: &MemberInfo) -> Joined {
    match step(raft, peers, config, new).await {
        Ok(()) => Joined { done: true, why: String::new() },
        Err(why) => Joined { done: false, why },
    }
}

async fn step(raft: &Raft, peers: &Peers, config: &ConsensusConfig, new: &MemberInfo) -> Result<(), String> {
    if !raft.is_leader() {
        return Err(String::new());
    }
    let membership = membership(raft);
    if membership.voter_ids().any(|id| id == new.id) {
        return Ok(());
    }
    let namesakes: BTreeSet<u64> =
        membership.nodes().filter(|(id, node)| node.name == new.name && **id != new.id).map(|(id, _)| *id).collect();
    if namesakes.is_empty() && !config.members.iter().any(|member| member.name == new.name) {
        return Err(format!("'{}' is not in the list of members", new.name));
    }
    if membership.get_node(&new.id).is_none() {
        let member = Member { name: new.name.clone(), addr: new.addr.clone() };
        let added = timeout(CHANGE_MAX, raft.add_learner(new.id, member, false)).await;
        confirmed(added.map(|result| result.map(drop))).map_err(|error| error.to_string())?;
        return Err("it is a learner now and catches up".to_owned());
    }
    let metrics = raft.metrics().borrow_watched().clone();
    let matched = metrics.replication.as_ref().and_then(|all| all.get(&new.id).copied().flatten());
    let last = metrics.last_log_index.unwrap_or(0);
    if matched.is_none_or(|id| id.index.saturating_add(CAUGHT_UP) < last) {
        return Err(format!("it catches up: {} of {last}", matched.map_or(0, |id| id.index)));
    }
    if let Some(alive) = namesakes.iter().find(|id| peers.silence(**id) < config.timing.silence) {
        let left = config.timing.silence.saturating_sub(peers.silence(*alive));
        return Err(format!("the node that had the name '{}' must be silent for {left:?} more", new.name));
    }
    replace(raft, &membership, &namesakes, new.id).await.map_err(|error| error.to_string())
}

/// One joint change: the new id in, the old ones out, of the voters and of the list of nodes.
async fn replace(
    raft: &Raft,
    membership: &RaftMembership,
    old: &BTreeSet<u64>,
    new: u64,
) -> Result<(), MembershipError> {
    let mut voters: BTreeSet<u64> = membership.voter_ids().filter(|id| !old.contains(id)).collect();
    voters.insert(new);
    tracing::info!(new = format_args!("{new:016x}"), replaced = old.len(), "a new member becomes a voter");
    change(raft, ChangeMembers::ReplaceAllVoters(voters)).await?;
    let stale: BTreeSet<u64> = self::membership(raft).learner_ids().filter(|id| old.contains(id)).collect();
    if stale.is_empty() { Ok(()) } else { change(raft, ChangeMembers::RemoveNodes(stale)).await }
}

/// Removes a member by its name.
pub(crate) async fn remove(raft: &Raft, name: &str) -> Result<(), MembershipError> {
    let membership = membership(raft);
    let ids: BTreeSet<u64> = membership.nodes().filter(|(_, node)| node.name == name).map(|(id, _)| *id).collect();
    if ids.is_empty() {
        return Err(MembershipError::Refused(format!("there is no member '{name}'")));
    }
    let voters: BTreeSet<u64> = membership.voter_ids().filter(|id| !ids.contains(id)).collect();
    if voters.is_empty() {
        return Err(MembershipError::Refused("the last voter can't be removed".to_owned()));
    }
    change(raft, ChangeMembers::ReplaceAllVoters(voters)).await?;
    let left: BTreeSet<u64> = self::membership(raft).learner_ids().filter(|id| ids.contains(id)).collect();
    if left.is_empty() { Ok(()) } else { change(raft, ChangeMembers::RemoveNodes(left)).await }
}

/// Finishes what a leader that died had begun: a joint membership, and the removal of ids whose name has a new voter.
/// Who joined is a voter by then, and asks no more.
pub(crate) async fn finish(raft: Raft, peers: Arc<Peers>, timing: Timing) {
    loop {
        sleep(timing.status).await;
        if !raft.is_leader() {
            continue;
        }
        let Some(rest) = unfinished(&membership(&raft), |id| peers.silence(id) >= timing.silence) else { continue };
        if let Err(error) = change(&raft, rest).await {
            tracing::info!(%error, "an unfinished change of the members has to wait");
        }
    }
}

fn unfinished(membership: &RaftMembership, is_silent: impl Fn(u64) -> bool) -> Option<ChangeMembers<u64, Member>> {
    if let [_, .., last] = membership.get_joint_config().as_slice() {
        return Some(ChangeMembers::ReplaceAllVoters(last.clone()));
    }
    let name = |id: &u64| membership.get_node(id).map(|member| &member.name);
    let voters: BTreeSet<&String> = membership.voter_ids().filter_map(|id| name(&id)).collect();
    let is_stale = |id: &u64| name(id).is_some_and(|name| voters.contains(name)) && is_silent(*id);
    let stale: BTreeSet<u64> = membership.learner_ids().filter(is_stale).collect();
    (!stale.is_empty()).then_some(ChangeMembers::RemoveNodes(stale))
}

/// Hands leadership over, again and again, as long as this node leads with a full disk or with a store that applies
/// nothing for another reason. The others have disks of their own.
pub(crate) async fn step_aside(raft: Raft, wal: Wal, store: Arc<dyn Store>, every: Duration) {
    loop {
        sleep(every).await;
        let why = match store.fault() {
            Some(fault) => fault.to_string(),
            None if wal.is_disk_full() => "no space left for the log".to_owned(),
            None => continue,
        };
        if raft.is_leader() {
            let taken_over = transfer(&raft, None).await.is_ok();
            tracing::warn!(why, taken_over, "this node should not lead");
        }
    }
}

async fn change(raft: &Raft, change: ChangeMembers<u64, Member>) -> Result<(), MembershipError> {
    confirmed(timeout(CHANGE_MAX, raft.change_membership(change, false)).await.map(|result| result.map(drop)))
}

fn confirmed<E: std::fmt::Display>(result: Result<Result<(), E>, quorate_env::Elapsed>) -> Result<(), MembershipError> {
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(MembershipError::Unconfirmed(error.to_string())),
        Err(_) => Err(MembershipError::Unconfirmed("it took too long".to_owned())),
    }
}

/// The membership in force.
pub(crate) fn membership(raft: &Raft) -> RaftMembership {
    raft.metrics().borrow_watched().membership_config.membership().clone()
}

/// Hands leadership to a voter, or to the one that has most of the log, and waits until another node leads.
pub(crate) async fn transfer(raft: &Raft, to: Option<NodeId>) -> Result<NodeId, MembershipError> {
    let own = *raft.node_id();
    if !raft.is_leader() {
        return Err(MembershipError::Refused("this node does not lead".to_owned()));
    }
    let metrics = raft.metrics().borrow_watched().clone();
    let matched: BTreeMap<u64, u64> = metrics
        .replication
        .iter()
        .flatten()
        .filter_map(|(id, matched)| matched.map(|matched| (*id, matched.index)))
        .collect();
    let best = raft.voter_ids().filter(|id| *id != own).max_by_key(|id| matched.get(id).copied());
    let Some(target) = to.map(|id| id.0).or(best) else {
        return Err(MembershipError::Refused("there is no other voter".to_owned()));
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
