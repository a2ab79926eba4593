//! What the members of a cluster say of themselves and of each other, each of them asked itself.
//!
//! Invariants:
//! - A member counts as reachable only if it answered as the member that it is.
//! - Who the members are is taken from a node that knows some: one that is new, or lost its data, knows none.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use quorate::{Status, admin::MemberStatus};
use quorate_server::status::ClusterStatus;

use crate::access::Access;
use crate::client;
use crate::error::{Error, Result, Told as _};

/// What each address answered.
pub type Answers = BTreeMap<String, Result<Status>>;

/// What was found.
#[derive(Debug)]
pub struct Survey {
    /// The members, as the one knows them that heard of the latest term.
    pub known: Status,
    answers: Answers,
}

impl Survey {
    /// Asks the nodes that `access` names, and then all members of which they know. Fails where nobody answers, or none
    /// of those that do knows a member.
    pub async fn take(access: &Access) -> Result<Self> {
        let mut answers = ask(access, access.addrs.clone()).await;
        let known = best(&answers).cloned();
        let others = known.iter().flat_map(|known| &known.members).map(|member| member.addr.clone());
        let others = others.filter(|addr| !answers.contains_key(addr)).collect();
        answers.extend(ask(access, others).await);
        Self::of(answers)
    }

    /// What the answers say together.
    pub fn of(answers: Answers) -> Result<Self> {
        let Some(known) = best(&answers).cloned() else {
            let failed = answers.into_iter().find_map(|(addr, answer)| answer.err().map(|error| (addr, error)));
            let (addr, error) = failed.unwrap_or_else(|| (String::new(), Error::new("no address to ask")));
            return Err(error).told(|| format!("no node answers; {addr}"));
        };
        if known.members.is_empty() {
            let addrs = answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(addr, _)| addr.as_str());
            let addrs = addrs.collect::<Vec<_>>().join(", ");
            return Err(Error::new(format!(
                "what answers at {addrs} belongs to no cluster yet, or has lost its data, and knows no members: name \
                 another node with --node, or start the others"
            )));
        }
        Ok(Self { known, answers })
    }

    /// All members side by side.
    pub fn cluster(&self) -> ClusterStatus {
        ClusterStatus::assemble(&self.known, &self.answers)
    }

    /// What a member answered.
    pub fn answer(&self, member: &MemberStatus) -> Option<&Status> {
        let answer = self.answers.get(&member.addr)?.as_ref().ok()?;
        (answer.node == member.id).then_some(answer)
    }

    /// How many voters can be reached, and how many there are.
    pub fn voters(&self) -> (usize, usize) {
        let voters = || self.known.members.iter().filter(|member| member.voter);
        (voters().filter(|voter| self.answer(voter).is_some()).count(), voters().count())
    }
}

/// What it means that no member leads.
pub fn no_leader((reachable, voters): (usize, usize)) -> String {
    let found = format!("no leader: {reachable} of {voters} voters can be reached");
    if reachable > voters / 2 {
        return format!("{found}, so they should elect one soon: ask again, and look into their logs if they don't");
    }
    format!("{found}; a majority is needed: start those that can't be reached, or see why they can't")
}

/// The answer that knows best who the members are.
fn best(answers: &Answers) -> Option<&Status> {
    let told = answers.values().filter_map(|answer| answer.as_ref().ok());
    told.max_by_key(|status| (!status.members.is_empty(), status.term, status.leader == Some(status.node)))
}

async fn ask(access: &Access, addrs: Vec<String>) -> Answers {
    let answers = addrs.into_iter().map(async |addr| {
        let answer = client::status(&addr, &access.secret).await;
        (addr, answer)
    });
    join_all(answers).await.into_iter().collect()
}
