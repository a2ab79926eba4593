//! Permits: for a short time an operator allows a node that no list contains to become a member, perhaps in place of
//! another member.
//!
//! A permit exists only in the leader's memory, and expires soon. The operator's command asks the present leader again
//! and again as long as it waits. So nothing has to be replicated or cleaned up, and a command that is given up leaves
//! at most a learner behind.
//!
//! Invariant: a permit is for the data directory of the node that answered under the given name at the given address.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Instant, lock, timeout};
use quorate_wire::{CONNECT_MAX, Purpose};

use crate::error::MembershipError;
use crate::membership::{self, Progress};
use crate::peer::messages::{StatusReply, decode, method};
use crate::peer_service::PeerService;
use crate::peers::STATUS_MAX;
use crate::raft::Raft;

/// How long a permit lasts. The operator's command renews it about once a second.
const PERMIT_LASTS: Duration = Duration::from_secs(15);

/// The maximum number of permits at the same time.
const PERMITS_MAX: usize = 64;

/// The maximum number of bytes of a name or an address.
const NAME_MAX: usize = 256;

/// An operator's request that the node at an address becomes a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// The name of the node.
    pub name: String,
    /// The address at which the node answers.
    pub addr: String,
    /// The name of the member that the same change removes, if any.
    pub replaces: Option<String>,
    /// Whether that member is removed even if no majority of the remaining voters can be reached.
    pub force: bool,
}

/// How far an admission has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admitted {
    /// The node is not a member yet. The text says what the leader waits for.
    Waiting(String),
    /// The node is a learner.
    Learner {
        /// The last entry that the node is known to have.
        matched: u64,
        /// The last entry of the leader.
        last: u64,
        /// What the leader waits for.
        why: String,
    },
    /// The node is a voter, and the member that it replaces is removed.
    Voter,
}

/// The permits of a node.
#[derive(Debug, Default)]
pub(crate) struct Permits(Mutex<BTreeMap<u64, Permit>>);

/// A permit for an id.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    pub(crate) name: String,
    pub(crate) replaces: Option<String>,
    pub(crate) force: bool,
    until: Instant,
    /// The last answer to the node's request to join.
    last_reply: String,
}

impl Permits {
    /// Returns the permit of an id, if it has one under this name.
    pub(crate) fn of(&self, id: u64, name: &str) -> Option<Permit> {
        let permits = lock(&self.0);
        permits.get(&id).filter(|permit| permit.name == name && permit.until > Instant::now()).cloned()
    }

    /// Records the answer to a request to join.
    pub(crate) fn note_reply(&self, id: u64, why: &str) {
        if let Some(permit) = lock(&self.0).get_mut(&id) {
            why.clone_into(&mut permit.last_reply);
        }
    }

    /// Grants or renews a permit. Returns the last answer to the node's request to join.
    fn grant(&self, id: u64, admission: &Admission) -> Result<String, MembershipError> {
        let mut permits = lock(&self.0);
        permits.retain(|_, permit| permit.until > Instant::now());
        let last_reply = permits.get(&id).map(|permit| permit.last_reply.clone()).unwrap_or_default();
        if permits.len() >= PERMITS_MAX && !permits.contains_key(&id) {
            return refused(format!("{PERMITS_MAX} nodes are already being added; try again later"));
        }
        let permit = Permit {
            name: admission.name.clone(),
            replaces: admission.replaces.clone(),
            force: admission.force,
            until: Instant::now() + PERMIT_LASTS,
            last_reply: last_reply.clone(),
        };
        permits.insert(id, permit);
        Ok(last_reply)
    }
}

/// Grants or renews the permit for an admission, and returns how far the admission has come. Only the leader can do
/// this.
pub(crate) async fn permit(
    service: &PeerService,
    raft: &Raft,
    admission: &Admission,
) -> Result<Admitted, MembershipError> {
    membership::leading(&service.peers, raft)?;
    let Admission { name, addr, replaces, .. } = admission;
    if [name, addr].into_iter().chain(replaces).any(|text| text.is_empty() || text.len() > NAME_MAX) {
        return refused(format!("a name or an address must have 1 to {NAME_MAX} bytes"));
    }
    let id = identify(service, name, addr).await?;

    let now = membership::leading(&service.peers, raft)?;
    let members = now.membership();
    let leaving = replaces.as_ref().map(|old| membership::ids_named(members, old)).unwrap_or_default();
    let leaving: Vec<u64> = leaving.into_iter().filter(|old| *old != id).collect();
    let is_voter = members.voter_ids().any(|voter| voter == id);
    if let Err(under_way) = membership::settled(&now) {
        return Ok(Admitted::Waiting(under_way.to_string()));
    }
    match replaces {
        None if is_voter => return Ok(Admitted::Voter),
        Some(_) if is_voter && leaving.is_empty() => return Ok(Admitted::Voter),
        Some(old) if is_voter => {
            return refused(format!("'{name}' is already a voter; remove '{old}' instead"));
        }
        Some(old) if leaving.is_empty() => return Err(membership::no_such(members, old)),
        _ => {}
    }
    let namesakes = membership::ids_named(members, name);
    if replaces.is_none() && members.voter_ids().any(|voter| voter != id && namesakes.contains(&voter)) {
        let silence = service.config.timing.silence;
        return refused(format!(
            "the name '{name}' belongs to another data directory; this one takes its place once the other has been \
             silent for {silence:?}, or at once if you replace '{name}' by '{name}'"
        ));
    }
    if leaving.contains(raft.node_id()) {
        return Err(membership::give_way(&service.peers, raft, |voter| !leaving.contains(&voter)).await);
    }
    let last_reply = service.permits.grant(id, admission)?;
    Ok(if members.get_node(&id).is_some() {
        let Progress { matched, last } = membership::progress(raft, id);
        Admitted::Learner { matched: matched.unwrap_or(0), last, why: last_reply }
    } else {
        Admitted::Waiting(if last_reply.is_empty() { format!("'{name}' has not asked yet") } else { last_reply })
    })
}

/// Asks the node at an address for its id. Fails if no node answers, or if it has another name.
pub(crate) async fn identify(service: &PeerService, name: &str, addr: &str) -> Result<u64, MembershipError> {
    let nobody = |why: &dyn std::fmt::Display| MembershipError::Refused(format!("no node answers at {addr}: {why}"));
    let link = service.peers.dial(addr, 0, Purpose::Heartbeat);
    // Connecting first gives the handshake's error, which says more than the call's.
    let connected = timeout(CONNECT_MAX, link.0.client()).await.map_err(|error| nobody(&error))?;
    connected.map_err(|error| nobody(&error))?;
    let reply = link.call(method::STATUS, Bytes::new(), STATUS_MAX).await.map_err(|error| nobody(&error))?;
    let status: StatusReply = decode(reply).map_err(|error| nobody(&error))?;
    if status.name != name {
        return refused(format!("the node at {addr} is called '{}', not '{name}'", status.name));
    }
    Ok(status.id)
}

fn refused<T>(why: String) -> Result<T, MembershipError> {
    Err(MembershipError::Refused(why))
}
