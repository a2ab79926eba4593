//! The archiver: which node writes the archive of the cluster in object storage. The leader decides, by an entry.
//!
//! Nodes that have an archive in their configuration announce that in their status, beside their format level. About
//! once a second, the leader looks at what the members have announced, and at the archiver that its database names; it
//! proposes another one only if it must. A cluster in which no node announces an archive never has an archiver.
//!
//! # Invariants
//!
//! - The role stays with its holder as long as that is a member, can archive, and answers: a change costs a new
//!   generation of the archive, or a comparison of all pages.
//! - An appointment names the one that it replaces, so of several leaders that believe to lead only one decides.
//! - A holder that does not know yet that it was replaced may still write. So this is no lock; who writes to the store
//!   has to show the token there.

use std::sync::Weak;

use quorate_env::sleep;
use quorate_model::{ARCHIVER_LEVEL, Appointment, Archiver, ControlCommand, ControlReply, NodeId, Proposal, codec};

use super::gateway::Gateway;
use crate::error::Error;

/// An archiver that is silent for this part of the time after which its name could be taken over is replaced: by
/// default, after 10 s. Much longer than a restart takes, because writes do not wait for the archive, and a change of
/// the archiver is dear.
const SILENCE_PART: u32 = 3;

/// A member, as the leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    id: NodeId,
    is_voter: bool,
    is_leader: bool,
    /// Whether it can archive, by what it has said lately; `None` if it does not answer.
    can_archive: Option<bool>,
    /// Whether its last answer is so long ago that it may be replaced.
    is_silent: bool,
}

/// What to do about the archiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// Leave things as they are.
    Keep,
    /// Appoint this node, or nobody.
    Appoint(Option<NodeId>),
}

/// Decides what to do, given the members and who the archiver is.
fn decide(members: &[Seen], present: Option<NodeId>) -> Decision {
    let best = best(members);
    let Some(present) = present else {
        return best.map_or(Decision::Keep, |best| Decision::Appoint(Some(best)));
    };
    match members.iter().find(|member| member.id == present) {
        // A former member, or one whose configuration no longer has an archive, does not come back to the role.
        None | Some(Seen { can_archive: Some(false), .. }) => Decision::Appoint(best),
        Some(Seen { can_archive: Some(true), .. }) => Decision::Keep,
        Some(Seen { is_silent: false, .. }) => Decision::Keep,
        // It may come back, and nobody else can do it.
        Some(_) => best.map_or(Decision::Keep, |best| Decision::Appoint(Some(best))),
    }
}

/// Returns the member that is the best to become the archiver, if one can. Voters come first, because learners may lag
/// far behind or be there for a short time only; of them followers, because the leader has more to do.
fn best(members: &[Seen]) -> Option<NodeId> {
    let able = members.iter().filter(|member| member.can_archive == Some(true));
    able.min_by_key(|member| (!member.is_voter, member.is_leader, member.id)).map(|member| member.id)
}

/// Appoints archivers as long as the node runs, while it leads.
pub(super) async fn appoint(gateway: Weak<Gateway>) {
    loop {
        let Some(every) = gateway.upgrade().map(|gateway| gateway.consensus.timing().status) else { return };
        sleep(every).await;
        let Some(gateway) = gateway.upgrade() else { return };
        if !gateway.consensus.main().is_leader() || gateway.consensus.main().check_level(ARCHIVER_LEVEL).is_err() {
            continue;
        }
        let present = gateway.store.archiver();
        if let Decision::Appoint(node) = decide(&seen(&gateway), present.map(|archiver| archiver.node)) {
            let appointment = Appointment { node, expected: Archiver::token_of(present) };
            if let Err(error) = propose(&gateway, appointment).await {
                tracing::debug!(%error, "no archiver could be appointed; the leader tries again");
            }
        }
    }
}

/// Returns what the leader, which is this node, knows about the members.
fn seen(gateway: &Gateway) -> Vec<Seen> {
    let status = gateway.consensus.status();
    let (own, silence) = (status.node, gateway.consensus.timing().silence / SILENCE_PART);
    let member = |member: quorate_consensus::MemberStatus| Seen {
        id: member.id,
        is_voter: member.voter,
        is_leader: member.id == own,
        can_archive: gateway.consensus.can_archive(member.id),
        is_silent: member.silent_for >= silence,
    };
    status.members.into_iter().map(member).collect()
}

/// Proposes an appointment, and returns what came of it.
pub(super) async fn propose(gateway: &Gateway, appointment: Appointment) -> Result<ControlReply, Error> {
    let command = ControlCommand::Appoint(appointment).into();
    gateway.check(&command)?;
    let proposal = codec::encode_proposal(&Proposal::new(None, vec![command]))?;
    let proposed = gateway.consensus.main().propose(proposal).await;
    let (position, outcome) = proposed.map_err(|error| Error::Unavailable(error.into()))?;
    let reply = outcome?.results.into_iter().find_map(|result| match result {
        quorate_model::CommandResult::Control(reply) => Some(reply),
        _ => None,
    });
    let reply = reply.unwrap_or(ControlReply::Done);
    let node = appointment.node.map_or_else(|| "nobody".to_owned(), |node| node.to_string());
    match reply {
        ControlReply::Archiver(present) => {
            tracing::debug!(?present, "another leader has appointed an archiver in the meantime");
        }
        _ => tracing::info!(event = "archiver", node, token = position.index, "an archiver was appointed"),
    }
    Ok(reply)
}

#[cfg(test)]
mod tests;
