//! The changes of the members that the leader makes: admitting a node, replacing a node that lost its directory,
//! removing a member, handing leadership over.
//!
//! A new node repeats its idempotent request to join until it is a voter ([`belong`](crate::belong)). Each time the
//! leader takes the next step that is possible ([`admit`]): it makes the node a learner, waits until the node has
//! caught up, then makes it a voter by one joint change, in which it replaces the member that had its name, or that an
//! operator named ([`permits`](crate::permits)).
//!
//! Invariants:
//! - A name has one voter. Its old id is removed only when the old node did not answer for
//!   [`Timing::silence`](crate::Timing), or when an operator orders it.
//! - A voter is removed only after the leader has applied everything that its log held at that moment. Otherwise an
//!   entry could be rejected that only this voter has applied, and whose caller it has answered.
//! - A change that is not forced leaves every group a majority of the voters that it has until it follows `main`.
//! - There is one change at a time, and each is made only if the members have not changed since it was computed
//!   ([`change`]). A change that a leader left unfinished is finished by the next leader ([`finish`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::rt::WatchReceiver;
use openraft::{ChangeMembers, Precondition};
use quorate_env::{sleep, timeout};
use quorate_model::{GroupId, NodeId};

use crate::Member;
use crate::belong;
use crate::error::MembershipError;
use crate::group::Group;
use crate::peer::messages::{Join, Joined, MemberInfo};
use crate::peer_service::PeerService;
use crate::peers::Peers;
use crate::permits;
use crate::raft::Raft;
use crate::raft::types::{RaftMembership, StoredMembership};

pub(crate) mod follow;
mod level;
mod transfer;

pub(crate) use transfer::{give_way, step_aside, transfer_to};

/// A learner has caught up when it lacks at most this many entries.
const CAUGHT_UP: u64 = 1_024;

/// How long a change may take to be committed. After this time its result is unknown, and a later request finds it out.
pub(crate) const CHANGE_MAX: Duration = Duration::from_secs(5);

/// How long a change waits until the leader has applied what its log holds.
const APPLY_MAX: Duration = Duration::from_secs(2);

/// Answers a node that asks to become a member: takes the next step, or reports that the id was removed. Only the
/// leader takes steps, but every node can report a removal.
pub(crate) async fn admit(service: &PeerService, main: &Group, join: &Join) -> Joined {
    if belong::is_removed(&main.store.applied(), join.member.id, join.voter_since) {
        let why = belong::refusal(&join.member.name, NodeId(join.member.id));
        return Joined { removed: true, why, ..Joined::default() };
    }
    let admitted = match level::too_old(service, main, &join.member.name, join.level) {
        Some(why) => Err(why),
        None => step(service, &main.raft, &join.member).await,
    };
    match admitted {
        Ok(()) => Joined { done: true, ..Joined::default() },
        Err(why) => {
            service.permits.note_reply(join.member.id, &why);
            Joined { why, ..Joined::default() }
        }
    }
}

async fn step(service: &PeerService, raft: &Raft, new: &MemberInfo) -> Result<(), String> {
    let now = current(raft);
    let membership = now.membership();
    let moved = membership.get_node(&new.id).filter(|known| known.addr != new.addr);
    if moved.is_some() && new.id != *raft.node_id() {
        find(service, new).await?;
    }
    if !raft.is_leader() {
        return Err(String::new());
    }
    if let Some(known) = moved {
        return readdress(raft, &now, known, new).await;
    }
    if membership.voter_ids().any(|id| id == new.id) {
        return Ok(());
    }
    let permit = service.permits.of(new.id, &new.name);
    let mut namesakes = ids_named(membership, &new.name);
    namesakes.remove(&new.id);
    let is_listed = service.config.members.iter().any(|member| member.name == new.name);
    if namesakes.is_empty() && !is_listed && permit.is_none() {
        return Err(format!("'{}' is not in the list of members; it waits until it is added", new.name));
    }
    settled(&now).map_err(|error| error.to_string())?;
    let is_forced = permit.as_ref().is_some_and(|permit| permit.force);
    if !is_forced {
        followed(service, &now).map_err(|error| error.to_string())?;
    }
    if membership.get_node(&new.id).is_none() {
        let member = Member { name: new.name.clone(), addr: new.addr.clone() };
        let nodes = ChangeMembers::AddNodes(BTreeMap::from([(new.id, member)]));
        change(raft, &now, nodes).await.map_err(|error| error.to_string())?;
        return Err("it is a learner now and catches up".to_owned());
    }
    let Progress { matched, last } = progress(raft, new.id);
    if matched.is_none_or(|index| index.saturating_add(CAUGHT_UP) < last) {
        return Err(matched.map_or_else(
            || "it is sent the database".to_owned(),
            |matched| format!("it catches up: {matched} of {last}"),
        ));
    }
    let old = match permit.as_ref().and_then(|permit| permit.replaces.as_deref()) {
        Some(leaving) => {
            let mut old = ids_named(membership, leaving);
            old.remove(&new.id);
            may_leave(service, membership, &old, new.id, is_forced)?;
            if leaving != new.name {
                are_silent(service, &namesakes, &new.name)?;
            }
            old.into_iter().chain(namesakes).collect()
        }
        None => {
            are_silent(service, &namesakes, &new.name)?;
            namesakes
        }
    };
    if !is_forced {
        has_applied_all(raft).await?;
        groups_allow(service, membership, &old, Some(new.id))?;
    }
    replace(raft, &now, &old, new.id).await.map_err(|error| error.to_string())
}

/// Fails unless this leader soon applies everything that its log holds now. An entry that it can't apply may be
/// rejected once all remaining voters promise not to apply it, but a voter that leaves may have applied it and answered
/// its caller.
async fn has_applied_all(raft: &Raft) -> Result<(), String> {
    let mut metrics = raft.metrics();
    let last = metrics.borrow_watched().last_log_index;
    let reached = async {
        while metrics.borrow_watched().last_applied.map(|id| id.index) < last && metrics.changed().await.is_ok() {}
    };
    if timeout(APPLY_MAX, reached).await.is_ok() {
        return Ok(());
    }
    Err("the leader has not yet applied all entries, and the member that leaves may be the only one that has: try \
         again, or see in 'quorate status' at which entry the leader waits"
        .to_owned())
}

/// Calls a member at the address that it announces. If the member answers there, this node uses that address from now
/// on, before the list of members has it: the member's vote may be needed to change the list, or to elect a leader that
/// changes it.
async fn find(service: &PeerService, new: &MemberInfo) -> Result<(), String> {
    let there = permits::identify(service, &new.name, &new.addr).await;
    if there.as_ref().ok() == Some(&new.id) {
        service.peers.found(new.id, &new.addr);
        return Ok(());
    }
    let why = there.map_or_else(|error| error.to_string(), |_| "another node answers there".to_owned());
    let own = &service.config.name;
    Err(format!("'{}' announces the address {}, but '{own}' can't reach it there: {why}", new.name, new.addr))
}

/// Changes a member's address to the one at which it was found. The address of another node would do no harm, because
/// the handshake proves the id of the node that answers.
async fn readdress(raft: &Raft, now: &Current, known: &Member, new: &MemberInfo) -> Result<(), String> {
    settled(now).map_err(|error| error.to_string())?;
    let member = Member { name: known.name.clone(), addr: new.addr.clone() };
    tracing::info!(
        event = "moved",
        member = known.name,
        from = known.addr,
        addr = new.addr,
        "{} has another address",
        known.name
    );
    let nodes = ChangeMembers::SetNodes(BTreeMap::from([(new.id, member)]));
    change(raft, now, nodes).await.map_err(|error| error.to_string())
}

/// Fails unless all of these ids, which share a name, have been silent for [`Timing::silence`](crate::Timing).
fn are_silent(service: &PeerService, ids: &BTreeSet<u64>, name: &str) -> Result<(), String> {
    let silence = service.config.timing.silence;
    let Some(alive) = ids.iter().find(|id| service.peers.silence(**id) < silence) else { return Ok(()) };
    let left = silence.saturating_sub(service.peers.silence(*alive));
    Err(format!("the node that had the name '{name}' must be silent for another {left:?}"))
}

/// Fails if the members that an operator wants to replace can't be removed by the change that makes `new` a voter.
fn may_leave(
    service: &PeerService,
    membership: &RaftMembership,
    old: &BTreeSet<u64>,
    new: u64,
    force: bool,
) -> Result<(), String> {
    if old.contains(&service.home.identity().id) {
        return Err("the member that it replaces leads, and must hand leadership over first".to_owned());
    }
    if force {
        Ok(())
    } else {
        enough(&service.peers, service.home.identity().id, membership, &voters_without(membership, old), Some(new))
    }
}

/// How much of the leader's log a follower has, as far as the leader knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) matched: Option<u64>,
    pub(crate) last: u64,
}

pub(crate) fn progress(raft: &Raft, id: u64) -> Progress {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let matched = metrics.replication.as_ref().and_then(|all| all.get(&id).copied().flatten());
    Progress { matched: matched.map(|id| id.index), last: metrics.last_log_index.unwrap_or(0) }
}

/// Makes the new id a voter and removes the old ones by one joint change, then removes them from the list of nodes.
async fn replace(raft: &Raft, now: &Current, old: &BTreeSet<u64>, new: u64) -> Result<(), MembershipError> {
    let mut voters = voters_without(now.membership(), old);
    voters.insert(new);
    tracing::info!(new = format_args!("{new:016x}"), replaced = old.len(), "a new member becomes a voter");
    change(raft, now, ChangeMembers::ReplaceAllVoters(voters)).await?;
    remove_learners(raft, old).await
}

/// Removes a member by its name, with all ids that have this name. If that is the leader itself, it only hands
/// leadership over and names the new leader.
pub(crate) async fn remove(service: &PeerService, raft: &Raft, name: &str, force: bool) -> Result<(), MembershipError> {
    let now = leading(&service.peers, raft)?;
    let membership = now.membership();
    let ids = ids_named(membership, name);
    if ids.is_empty() {
        return Err(no_such(membership, name));
    }
    let voters = voters_without(membership, &ids);
    if voters.is_empty() {
        return Err(MembershipError::Refused("the last voter can't be removed".to_owned()));
    }
    settled(&now)?;
    if !force {
        followed(service, &now)?;
        enough(&service.peers, *raft.node_id(), membership, &voters, None).map_err(MembershipError::Refused)?;
        groups_allow(service, membership, &ids, None).map_err(MembershipError::Refused)?;
    }
    if ids.contains(raft.node_id()) {
        return Err(give_way(&service.peers, raft, |id| voters.contains(&id)).await);
    }
    tracing::info!(name, ids = ids.len(), "a member is removed");
    if membership.voter_ids().any(|id| ids.contains(&id)) {
        if !force {
            has_applied_all(raft).await.map_err(MembershipError::Refused)?;
        }
        change(raft, &now, ChangeMembers::ReplaceAllVoters(voters)).await?;
    }
    remove_learners(raft, &ids).await
}

async fn remove_learners(raft: &Raft, ids: &BTreeSet<u64>) -> Result<(), MembershipError> {
    let now = current(raft);
    let left: BTreeSet<u64> = now.membership().learner_ids().filter(|id| ids.contains(id)).collect();
    if left.is_empty() { Ok(()) } else { change(raft, &now, ChangeMembers::RemoveNodes(left)).await }
}

/// Whether a majority of the voters, with this node, has answered lately.
pub(crate) fn hears_majority(peers: &Peers, raft: &Raft) -> bool {
    let now = current(raft);
    let voters: BTreeSet<u64> = now.membership().voter_ids().collect();
    enough(peers, *raft.node_id(), now.membership(), &voters, None).is_ok()
}

/// Fails if no majority of the voters that are left has answered lately. `joins` is a new voter that has just answered.
fn enough(
    peers: &Peers,
    own: u64,
    membership: &RaftMembership,
    left: &BTreeSet<u64>,
    joins: Option<u64>,
) -> Result<(), String> {
    let voters: BTreeSet<u64> = left.iter().copied().chain(joins).collect();
    let is_there = |id: &u64| *id == own || Some(*id) == joins || peers.is_heard(*id);
    let there = voters.iter().filter(|id| is_there(id)).count();
    if there > voters.len() / 2 {
        return Ok(());
    }
    let name = |id: &u64| membership.get_node(id).map_or_else(|| NodeId(*id).to_string(), |node| node.name.clone());
    let silent: Vec<String> = voters.iter().filter(|id| !is_there(id)).map(name).collect();
    let (count, silent) = (voters.len(), silent.join(", "));
    Err(format!(
        "only {there} of the {count} voters that would be left can be reached: nothing could be written until {silent} \
         can be reached again; make them reachable first, or force the change"
    ))
}

/// Finishes changes that a former leader has left unfinished: a joint membership, and the removal of ids whose name has
/// a new voter. The node that joined is a voter by then, and does not ask again.
pub(crate) async fn finish(service: Arc<PeerService>, raft: Raft) {
    let timing = service.config.timing;
    loop {
        let applied = raft.metrics().borrow_watched().last_applied.map(|id| id.index);
        sleep(timing.status).await;
        if !raft.is_leader() {
            continue;
        }
        let now = current(&raft);
        let is_silent = |id| service.peers.silence(id) >= timing.silence;
        let Some(rest) = unfinished(now.membership(), is_silent) else { continue };
        let finished = match may_leave_joint(&service, &raft, &rest, applied).await {
            Ok(()) => change(&raft, &now, rest).await,
            Err(error) => Err(error),
        };
        if let Err(error) = finished {
            tracing::info!(%error, "an unfinished change of the members can't be finished yet");
        }
    }
}

/// Fails if the rest of a change removes a voter that may be the only one that has applied an entry and answered its
/// caller. A leader that would be removed hands over first, to a voter that stays and has applied what this node had
/// applied a moment ago.
async fn may_leave_joint(
    service: &PeerService,
    raft: &Raft,
    rest: &ChangeMembers<u64, Member>,
    applied: Option<u64>,
) -> Result<(), MembershipError> {
    let ChangeMembers::ReplaceAllVoters(left) = rest else { return Ok(()) };
    if left.contains(raft.node_id()) {
        return has_applied_all(raft).await.map_err(MembershipError::Refused);
    }
    Err(give_way(&service.peers, raft, |id| {
        left.contains(&id) && service.peers.applied_index(id, GroupId::MAIN) >= applied
    })
    .await)
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

/// Makes a change, unless the membership is no longer the one that the change was computed for.
async fn change(raft: &Raft, now: &Current, change: ChangeMembers<u64, Member>) -> Result<(), MembershipError> {
    let unchanged = Precondition::LastMembershipLogId { last_membership_log_id: *now.log_id() };
    let failed = |error: &dyn std::fmt::Display| MembershipError::Unconfirmed(error.to_string());
    match timeout(CHANGE_MAX, raft.change_membership_if(change, false, [unchanged])).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err(failed(&"it took too long")),
    }
}

/// A membership and the entry that set it.
pub(crate) type Current = Arc<StoredMembership>;

/// The membership in force.
pub(crate) fn current(raft: &Raft) -> Current {
    Arc::clone(&raft.metrics().borrow_watched().membership_config)
}

/// The membership in force, if this node leads.
pub(crate) fn leading(peers: &Peers, raft: &Raft) -> Result<Current, MembershipError> {
    if raft.is_leader() {
        return Ok(current(raft));
    }
    let leader = raft.metrics().borrow_watched().current_leader.filter(|leader| leader != raft.node_id());
    Err(MembershipError::NotLeader { leader: leader.and_then(|leader| peers.leader_member(leader, None)) })
}

/// Fails while a change is under way or unfinished, because it is not certain which membership follows.
pub(crate) fn settled(now: &Current) -> Result<(), MembershipError> {
    if now.membership().get_joint_config().len() <= 1 {
        return Ok(());
    }
    Err(MembershipError::Unconfirmed("another change of the members is under way".to_owned()))
}

/// Fails while a group does not have the voters of `main`, because it still needs those that it has.
fn followed(service: &PeerService, now: &Current) -> Result<(), MembershipError> {
    let voters = now.membership().get_joint_config();
    let follows = |group: &Group| current(&group.raft).membership().get_joint_config() == voters;
    match service.groups.get().into_iter().flat_map(|groups| groups.others.values()).find(|group| !follows(group)) {
        None => Ok(()),
        Some(group) => Err(MembershipError::Unconfirmed(format!(
            "group {} has not yet followed the last change of the members",
            group.id().0
        ))),
    }
}

/// Fails if a group might not be able to follow a change of the voters of `main`. A voter that leaves takes no further
/// part in any group, so the others must be a majority of those that the group has until it has followed. `joins` is a
/// new voter; it must have caught up in all groups.
fn groups_allow(
    service: &PeerService,
    membership: &RaftMembership,
    leaving: &BTreeSet<u64>,
    joins: Option<u64>,
) -> Result<(), String> {
    let own = service.home.identity().id;
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    for group in service.groups.get().into_iter().flat_map(|groups| groups.others.values()) {
        let id = group.id();
        let is_there = |voter: &&u64| !leaving.contains(voter) && (**voter == own || service.peers.is_heard(**voter));
        let (there, count) = (voters.iter().filter(is_there).count(), voters.len());
        if there <= count / 2 {
            return Err(format!(
                "only {there} of the {count} voters of group {} would be left until it follows: make more of them \
                 reachable first, or force the change",
                id.0
            ));
        }
        let last = group.store.applied().index();
        let lags = |joins: &u64| {
            let applied = service.peers.applied_index(*joins, id).unwrap_or(0);
            applied == 0 || applied.saturating_add(CAUGHT_UP) < last
        };
        if joins.is_some_and(|joins| lags(&joins)) {
            return Err(format!("it catches up in group {}", id.0));
        }
    }
    Ok(())
}

/// Returns the ids of the members with a name: that of the present directory, and those of former ones that are not
/// removed yet.
pub(crate) fn ids_named(membership: &RaftMembership, name: &str) -> BTreeSet<u64> {
    membership.nodes().filter(|(_, node)| node.name == name).map(|(id, _)| *id).collect()
}

fn voters_without(membership: &RaftMembership, ids: &BTreeSet<u64>) -> BTreeSet<u64> {
    membership.voter_ids().filter(|id| !ids.contains(id)).collect()
}

pub(crate) fn no_such(membership: &RaftMembership, name: &str) -> MembershipError {
    let names: BTreeSet<&str> = membership.nodes().map(|(_, node)| node.name.as_str()).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    MembershipError::Refused(format!("there is no member '{name}': the members are {names}"))
}
