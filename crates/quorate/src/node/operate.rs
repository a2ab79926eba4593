//! Answers the requests of operators: changes of the members, made by the leader, and a probe of this node.

use std::time::Duration;

use bytes::Bytes;
use quorate_consensus::{Admitted, Consensus, Member, MembershipError};
use quorate_model::{GroupId, NodeId};
use quorate_wire::{CallFailure, FailureKind as CallFailureKind};

use super::gateway::Gateway;
use crate::protocol::admin::{Admit, Change, Changed, NoChange, Probe, RejectEntry, Remove, Transfer};
use crate::protocol::{self, method};
use crate::rights::Right;
use crate::submitter::{Attempt, NotDone};

/// How long a request may take at the leader, which may have to hand over leadership and make a joint change.
const FORWARD_MAX: Duration = Duration::from_secs(20);

/// Answers an admin method that changes something.
pub(super) async fn answer(gateway: &Gateway, held: Right, method: u16, body: Bytes) -> Result<Bytes, CallFailure> {
    let request = Request::read(method, body.clone())?;
    let result = match request.run(&gateway.consensus).await {
        Err(MembershipError::NotLeader { leader: Some(leader) }) if held != Right::Node => {
            forward(&gateway.consensus, leader, method, body).await
        }
        result => result.map_err(NoChange::from),
    };
    Ok(protocol::encode(&Changed::new(result, gateway.leader_elsewhere())))
}

/// A request of an operator to change something.
enum Request {
    Admit(Admit),
    Remove(Remove),
    Transfer(Transfer),
    RejectEntry(RejectEntry),
}

impl Request {
    fn read(method: u16, body: Bytes) -> Result<Self, CallFailure> {
        match method {
            method::ADMIT => protocol::decode(body).map(Self::Admit),
            method::REMOVE => protocol::decode(body).map(Self::Remove),
            method::TRANSFER => protocol::decode(body).map(Self::Transfer),
            method::REJECT_ENTRY => protocol::decode(body).map(Self::RejectEntry),
            _ => Err(CallFailure::new(CallFailureKind::UnknownMethod, format!("method {method}"))),
        }
    }

    async fn run(self, consensus: &Consensus) -> Result<Change, MembershipError> {
        match self {
            Self::Admit(admit) => consensus.admit(admit.into()).await.map(|admitted| match admitted {
                Admitted::Voter => Change::Done(None),
                other => Change::Waiting(other),
            }),
            Self::Remove(Remove { name, force }) => consensus.remove(&name, force).await.map(|()| Change::Done(None)),
            Self::RejectEntry(RejectEntry { index, group }) => {
                let missing = || MembershipError::Refused(format!("the cluster has no group {group}"));
                let group = consensus.group(GroupId(group)).ok_or_else(missing)?;
                group.reject_entry(index).map(|()| Change::Done(None))
            }
            Self::Transfer(Transfer { name }) => {
                let name = Some(name.as_str()).filter(|name| !name.is_empty());
                consensus.transfer_leadership(name).await.map(|leads| Change::Done(Some(leads)))
            }
        }
    }
}

/// Forwards a request to the leader, which does not forward it again. If the leader gives up its leadership for the
/// request, the caller must send it again.
async fn forward(
    consensus: &Consensus,
    (leader, member): (NodeId, Member),
    method: u16,
    body: Bytes,
) -> Result<Change, NoChange> {
    let reply = consensus.call_member(leader, method, body, FORWARD_MAX).await;
    match reply.map_err(|error| Attempt::of_call(error, &format!("{} at {}", member.name, member.addr))) {
        Ok(reply) => {
            let changed: Changed = protocol::decode(reply).map_err(|failure| NoChange::Unconfirmed(failure.text))?;
            changed.result()
        }
        Err(Attempt::NotDone(NotDone::NoLeader(why) | NotDone::Overloaded(why))) => {
            Err(NoChange::NoLeader(why.to_string()))
        }
        Err(Attempt::InDoubt(why)) => Err(NoChange::Unconfirmed(why.to_string())),
        Err(Attempt::Refused(error)) => Err(NoChange::Refused(error.to_string())),
    }
}

/// Answers a probe.
pub(super) fn probe(gateway: &Gateway) -> Bytes {
    let timing = gateway.consensus.timing();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    protocol::encode(&Probe {
        now: gateway.env.unix_nanos(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        heartbeat_millis: millis(timing.heartbeat),
        election_min_millis: millis(timing.election_min),
        election_max_millis: millis(timing.election_max),
    })
}
