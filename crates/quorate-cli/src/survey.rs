//! The status of all members of a cluster, requested from each of them.
//!
//! Invariants:
//! - A member counts as reachable only if the node at its address answers with the member's id.
//! - The list of members comes from a node that has one. A node that is new, or has lost its data, has none.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use quorate::{Status, admin::MemberStatus};
use quorate_server::status::ClusterStatus;

use crate::access::Access;
use crate::client;
use crate::error::{Context as _, Error, Result};

/// The answer from each address.
pub type Answers = BTreeMap<String, Result<Status>>;

/// The members and their answers.
#[derive(Debug)]
pub struct Survey {
    /// The status of the node that knows the members and has seen the latest term.
    pub known: Status,
    answers: Answers,
}

impl Survey {
    /// Asks the nodes that `access` names, then all members that they know. Fails if no node answers, or if none that
    /// answers knows a member.
    pub async fn take(access: &Access) -> Result<Self> {
        let mut answers = ask(access, access.addrs.clone()).await;
        let known = best(&answers).cloned();
        let others = known.iter().flat_map(|known| &known.members).map(|member| member.addr.clone());
        let others = others.filter(|addr| !answers.contains_key(addr)).collect();
        answers.extend(ask(access, others).await);
        Self::of(answers)
    }

    /// Combines the answers.
    pub fn of(answers: Answers) -> Result<Self> {
        let Some(known) = best(&answers).cloned() else {
            let failed = answers.into_iter().find_map(|(addr, answer)| answer.err().map(|error| (addr, error)));
            let (addr, error) = failed.unwrap_or_else(|| (String::new(), Error::new("no address to ask")));
            return Err(error).context(|| format!("no node answers; {addr}"));
        };
        if known.members.is_empty() {
            let addrs = answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(addr, _)| addr.as_str());
            let addrs = addrs.collect::<Vec<_>>().join(", ");
            return Err(Error::new(format!(
                "no node that answers ({addrs}) knows the members: each is new, or has lost its data; name another \
                 node with --node, or start the others"
            )));
        }
        Ok(Self { known, answers })
    }

    /// Returns the status of all members side by side.
    pub fn cluster(&self) -> ClusterStatus {
        ClusterStatus::assemble(&self.known, &self.answers)
    }

    /// Returns the answer of a member; `None` if another node answered at its address.
    pub fn answer(&self, member: &MemberStatus) -> Option<&Status> {
        let answer = self.answers.get(&member.addr)?.as_ref().ok()?;
        (answer.node == member.id).then_some(answer)
    }

    /// Returns how many voters can be reached, and how many there are.
    pub fn voters(&self) -> (usize, usize) {
        let voters = || self.known.members.iter().filter(|member| member.voter);
        (voters().filter(|voter| self.answer(voter).is_some()).count(), voters().count())
    }
}

/// Explains that no member leads.
pub fn no_leader((reachable, voters): (usize, usize)) -> String {
    let found = format!("no leader: {reachable} of {voters} voters can be reached");
    if reachable > voters / 2 {
        return format!("{found}, so they should elect one soon: try again, and check their logs if they don't");
    }
    format!("{found}; a majority is needed: start the others, or find out why they can't be reached")
}

/// Returns the answer to take the members from: one that has members, then of the latest term, then the leader's own.
fn best(answers: &Answers) -> Option<&Status> {
    let statuses = answers.values().filter_map(|answer| answer.as_ref().ok());
    statuses.max_by_key(|status| (!status.members.is_empty(), status.term, status.leader == Some(status.node)))
}

async fn ask(access: &Access, addrs: Vec<String>) -> Answers {
    let answers = addrs.into_iter().map(async |addr| {
        let answer = client::status(access.remote_at(&addr)).await;
        (addr, answer)
    });
    join_all(answers).await.into_iter().collect()
}
