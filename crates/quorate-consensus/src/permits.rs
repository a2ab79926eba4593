//! What an operator allows for a while: that a node which no list names becomes a member, perhaps in the place of
//! another.
//!
//! A permit is kept in the leader's memory alone and is short-lived: the operator's command asks again, of whoever
//! leads, as long as it waits. So nothing has to be replicated or cleaned up, and a command that is given up leaves
//! nothing behind but, at most, a learner.
//!
//! Invariant: a permit is for one data directory, whose node answered under the name at the address that the operator
//! gave.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Instant, lock, timeout};
use quorate_wire::Purpose;

use crate::error::MembershipError;
use crate::link::CONNECT_MAX;
use crate::membership::{self, Progress};
use crate::peer::messages::{StatusReply, decode, method};
use crate::peer_service::PeerService;
use crate::peers::STATUS_MAX;
use crate::raft::Raft;

/// How long a permit lasts. The command that waits renews it about once a second.
const PERMIT_LASTS: Duration = Duration::from_secs(15);

/// Permits at the same time.
const PERMITS_MAX: usize = 64;

/// Bytes of a name or an address.
const NAME_MAX: usize = 256;

/// What an operator asks: that the node at an address becomes a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// The name of the node.
    pub name: String,
    /// Where it answers.
    pub addr: String,
    /// The member that goes out in the same change, if one does.
    pub replaces: Option<String>,
    /// Whether it goes out also where too few voters would be left that can be reached.
    pub force: bool,
}

/// How far an admission is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admitted {
    /// It is no member yet. The text says what is waited for.
    Waiting(String),
    /// It is a learner.
    Learner {
        /// The last entry that it is known to have.
        matched: u64,
        /// The last entry of the leader.
        last: u64,
        /// What is waited for.
        why: String,
    },
    /// It is a voter, and the member that it was to replace is gone.
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
    /// The last answer to the node's question.
    last_reply: String,
}

impl Permits {
    /// The permit of an id, if it has one under this name.
    pub(crate) fn of(&self, id: u64, name: &str) -> Option<Permit> {
        let permits = lock(&self.0);
        permits.get(&id).filter(|permit| permit.name == name && permit.until > Instant::now()).cloned()
    }

    /// Notes what an id was answered.
    pub(crate) fn note_reply(&self, id: u64, why: &str) {
        if let Some(permit) = lock(&self.0).get_mut(&id) {
            why.clone_into(&mut permit.last_reply);
        }
    }

    /// Gives or renews a permit, and returns what its id was answered last.
    fn grant(&self, id: u64, admission: &Admission) -> Result<String, MembershipError> {
        let mut permits = lock(&self.0);
        permits.retain(|_, permit| permit.until > Instant::now());
        let last_reply = permits.get(&id).map(|permit| permit.last_reply.clone()).unwrap_or_default();
        if permits.len() >= PERMITS_MAX && !permits.contains_key(&id) {
            return refused(format!("{PERMITS_MAX} nodes are being added already"));
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

/// Permits an admission, or renews the permit, and tells how far it is. Only the leader can.
pub(crate) async fn permit(
    service: &PeerService,
    raft: &Raft,
    admission: &Admission,
) -> Result<Admitted, MembershipError> {
    membership::leading(service, raft)?;
    let Admission { name, addr, replaces, .. } = admission;
    if [name, addr].into_iter().chain(replaces).any(|text| text.is_empty() || text.len() > NAME_MAX) {
        return refused(format!("names and addresses have from 1 to {NAME_MAX} bytes"));
    }
    let id = identify(service, name, addr).await?;

    let now = membership::leading(service, raft)?;
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
            return refused(format!("'{name}' is a voter already; remove '{old}' instead"));
        }
        Some(old) if leaving.is_empty() => return Err(membership::no_such(members, old)),
        _ => {}
    }
    let namesakes = membership::ids_named(members, name);
    if replaces.is_none() && members.voter_ids().any(|voter| voter != id && namesakes.contains(&voter)) {
        let silence = service.config.timing.silence;
        return refused(format!(
            "the name '{name}' belongs to another data directory; this one takes its place by itself when the other \
             was silent for {silence:?}, or at once if '{name}' is told to replace '{name}'"
        ));
    }
    if leaving.contains(raft.node_id()) {
        return Err(membership::give_way(service, raft, |voter| !leaving.contains(&voter)).await);
    }
    let last_reply = service.permits.grant(id, admission)?;
    Ok(if members.get_node(&id).is_some() {
        let Progress { matched, last } = membership::progress(raft, id);
        Admitted::Learner { matched: matched.unwrap_or(0), last, why: last_reply }
    } else {
        Admitted::Waiting(if last_reply.is_empty() { format!("'{name}' has not asked yet") } else { last_reply })
    })
}

/// The id of the node at an address, if it is the one of this name.
pub(crate) async fn identify(service: &PeerService, name: &str, addr: &str) -> Result<u64, MembershipError> {
    let nobody = |why: &dyn std::fmt::Display| MembershipError::Refused(format!("no node answers at {addr}: {why}"));
    let link = service.peers.dial(addr, 0, Purpose::Heartbeat);
    // What a call says of a connection that was not made is less than what the handshake says.
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
