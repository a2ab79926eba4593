//! Keeps this node a member of its cluster: it asks to become a voter until it is one, announces its address if the
//! members have another one, and notices when it was removed.
//!
//! The leader sends a removed member nothing more, not even the entry that removes it. So a node that its peers do not
//! list as a member asks them to admit it, like a new node. A peer that knows of the removal says so.
//!
//! Invariants:
//! - A removed id never comes back. A node's log keeps the index of the entry since which the node is a voter. Each
//!   node that has applied a later membership without that id knows that the id was removed ([`is_removed`]).
//! - A node that learns of its removal records that in its log. Neither this process nor a later one takes part in the
//!   cluster again.

use std::sync::Arc;

use quorate_env::mutant::Mutant;
use quorate_env::sleep;
use quorate_model::{Applied, NodeId};
use quorate_wire::Purpose;

use crate::Member;
use crate::group::Group;
use crate::membership::{self, CHANGE_MAX};
use crate::peer::messages::{Join, Joined, MemberInfo, decode, encode, method};
use crate::peer_service::PeerService;
use crate::raft::codec;
use crate::raft::types::RaftMembership;

/// Asks to become a voter as long as this node is not one, and again when others do not know it as a member. Returns
/// when this node was removed.
pub(crate) async fn belong(service: Arc<PeerService>, main: Group, own: Member) {
    let id = *main.raft.node_id();
    let mut said = String::new();
    loop {
        remember_voting(&service, &main, id).await;
        let is_voter = main.raft.voter_ids().any(|voter| voter == id);
        let removed = if is_removed(&main.store.applied(), id, service.home.identity().voter_since) {
            Some(refusal(&own.name, NodeId(id)))
        } else if !is_voter || service.peers.is_left_out(id) || has_moved(&main, &own) {
            ask(&service, &main, &own, &mut said).await
        } else {
            None
        };
        if let Some(why) = removed {
            return leave(&service, why).await;
        }
        sleep(service.config.timing.status).await;
    }
}

/// Whether the members have another address for this node. Always false if it is the only member: nobody calls it.
fn has_moved(main: &Group, own: &Member) -> bool {
    if Mutant::MoveNotAnnounced.is_on() {
        return false;
    }
    let now = membership::current(&main.raft);
    let members = now.membership();
    members.nodes().count() > 1 && members.get_node(main.raft.node_id()).is_some_and(|known| known.addr != own.addr)
}

/// Records in the log that this node is a voter, once that is committed: only its removal can undo it.
async fn remember_voting(service: &PeerService, main: &Group, id: u64) {
    if service.home.identity().voter_since.is_some() {
        return;
    }
    let Some((index, membership)) = applied_membership(&main.store.applied()) else { return };
    if membership.voter_ids().any(|voter| voter == id) {
        let kept = service.home.change(|identity| {
            identity.voter_since = Some(index);
            Ok::<(), ()>(())
        });
        if let Err(error) = kept.await {
            tracing::warn!(%error, "the log could not record that this node is a voter");
        }
    }
}

/// Asks all others once to admit this node, or does so itself if it leads. Returns why this node was removed, if one of
/// them knows that.
async fn ask(service: &PeerService, main: &Group, own: &Member, said: &mut String) -> Option<String> {
    let identity = service.home.identity();
    let member = MemberInfo { id: identity.id, name: own.name.clone(), addr: own.addr.clone(), voter: false };
    let join = Join { member, voter_since: identity.voter_since, level: service.config.level };
    if main.raft.is_leader() {
        let joined = membership::admit(service, main, &join).await;
        return joined.removed.then_some(joined.why);
    }
    let join = encode(&join);
    for addr in service.peers.addrs() {
        let link = service.peers.link(&addr, 0, Purpose::Heartbeat);
        let answer = link.call(method::JOIN, join.clone(), CHANGE_MAX).await;
        let Ok(Ok(joined)) = answer.map(decode::<Joined>) else { continue };
        if joined.removed {
            return Some(joined.why);
        }
        if !joined.done && !joined.why.is_empty() && joined.why != *said {
            tracing::info!(node = own.name, "waiting for the leader: {}", joined.why);
            *said = joined.why;
        }
    }
    None
}

/// Ends this node's part in the cluster, because it was removed.
async fn leave(service: &PeerService, why: String) {
    tracing::error!("{why}");
    let kept = service.home.change(|identity| {
        identity.removed = true;
        Ok::<(), ()>(())
    });
    if let Err(error) = kept.await {
        tracing::warn!(%error, "the log could not record that this node was removed; its next start learns it again");
    }
    service.home.set_removed(why);
    for group in service.groups.get().iter().flat_map(|groups| groups.all()) {
        // If this fails, the core has ended already.
        let _ = group.raft.shutdown().await;
    }
}

/// Whether the applied membership proves that an id was removed. `voter_since` is the index of the entry since which it
/// is a voter.
pub(crate) fn is_removed(applied: &Applied, id: u64, voter_since: Option<u64>) -> bool {
    let (Some(since), Some((index, membership))) = (voter_since, applied_membership(applied)) else { return false };
    index > since && membership.get_node(&id).is_none()
}

/// The text that tells a removed node of its removal, and that the node then reports itself.
pub(crate) fn refusal(name: &str, id: NodeId) -> String {
    format!(
        "the node '{name}' with the id {id} was removed from the cluster, and a removed id never comes back; move its \
         data directory away to start '{name}' as a new member"
    )
}

/// Returns the membership that was applied last, with the index of its entry.
pub(crate) fn applied_membership(applied: &Applied) -> Option<(u64, RaftMembership)> {
    let (id, bytes) = applied.membership.as_ref()?;
    Some((id.index, codec::decode_membership(bytes).ok()?))
}
