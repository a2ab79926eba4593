//! The requests of operators on the wire (`docs/wire-format.md`, "Admin methods").

use prost::{Message, Oneof};
use quorate_consensus::{Admission, Admitted, MembershipError};
use quorate_model::NodeId;

/// Requests permission for a node to become a member, and its progress.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Admit {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub addr: String,
    /// Empty if it replaces no member.
    #[prost(string, tag = "3")]
    pub replaces: String,
    #[prost(bool, tag = "4")]
    pub force: bool,
}

/// Requests the removal of a member.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Remove {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bool, tag = "2")]
    pub force: bool,
}

/// Requests that leadership is handed over.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Transfer {
    /// Empty for the most suitable voter.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Requests that the entry is rejected at which the leader of a group waits for voters that can't be reached.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct RejectEntry {
    #[prost(uint64, tag = "1")]
    pub index: u64,
    #[prost(uint32, tag = "2", default = "1")]
    pub group: u32,
}

/// Answers [`Admit`], [`Remove`], [`Transfer`] and [`RejectEntry`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Changed {
    #[prost(oneof = "ChangedKind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<ChangedKind>,
    /// The address to ask next time, if it is not that of the answering node.
    #[prost(string, tag = "6")]
    pub leader: String,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ChangedKind {
    /// The desired state holds.
    #[prost(message, tag = "1")]
    Done(Done),
    /// Only for [`Admit`]: the node is not a voter yet.
    #[prost(message, tag = "2")]
    Waiting(Waiting),
    /// Nothing was done, and other nodes would refuse it too.
    #[prost(string, tag = "3")]
    Refused(String),
    /// Nothing was done: no leader is known, or it can't be reached.
    #[prost(string, tag = "4")]
    NoLeader(String),
    /// It may have been done.
    #[prost(string, tag = "5")]
    Unconfirmed(String),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Done {
    /// After a [`Transfer`]: the new leader.
    #[prost(fixed64, tag = "1")]
    pub leads: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Waiting {
    #[prost(bool, tag = "1")]
    pub learner: bool,
    #[prost(uint64, tag = "2")]
    pub matched: u64,
    #[prost(uint64, tag = "3")]
    pub last: u64,
    #[prost(string, tag = "4")]
    pub why: String,
}

/// The answer of a node to a probe.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Probe {
    /// Nanoseconds since 1970-01-01 UTC by its clock.
    #[prost(fixed64, tag = "1")]
    pub now: u64,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(uint64, tag = "3")]
    pub heartbeat_millis: u64,
    #[prost(uint64, tag = "4")]
    pub election_min_millis: u64,
    #[prost(uint64, tag = "5")]
    pub election_max_millis: u64,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The desired state holds; after a transfer, the new leader.
    Done(Option<NodeId>),
    /// A node is becoming a member.
    Waiting(Admitted),
}

/// Why a change was not made, or may not have been made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NoChange {
    Refused(String),
    NoLeader(String),
    Unconfirmed(String),
}

impl Changed {
    /// Creates the answer; `leader` is the address to ask next time.
    pub(crate) fn new(result: Result<Change, NoChange>, leader: Option<String>) -> Self {
        let kind = match result {
            Ok(Change::Done(leads)) => ChangedKind::Done(Done { leads: leads.map_or(0, |id| id.0) }),
            Ok(Change::Waiting(admitted)) => admitted.into(),
            Err(NoChange::Refused(why)) => ChangedKind::Refused(why),
            Err(NoChange::NoLeader(why)) => ChangedKind::NoLeader(why),
            Err(NoChange::Unconfirmed(why)) => ChangedKind::Unconfirmed(why),
        };
        Self { kind: Some(kind), leader: leader.unwrap_or_default() }
    }

    /// Returns the result that the answer contains.
    pub(crate) fn result(self) -> Result<Change, NoChange> {
        match self.kind {
            Some(ChangedKind::Done(done)) => Ok(Change::Done((done.leads != 0).then_some(NodeId(done.leads)))),
            Some(ChangedKind::Waiting(Waiting { learner: true, matched, last, why })) => {
                Ok(Change::Waiting(Admitted::Learner { matched, last, why }))
            }
            Some(ChangedKind::Waiting(waiting)) => Ok(Change::Waiting(Admitted::Waiting(waiting.why))),
            Some(ChangedKind::Refused(why)) => Err(NoChange::Refused(why)),
            Some(ChangedKind::NoLeader(why)) => Err(NoChange::NoLeader(why)),
            Some(ChangedKind::Unconfirmed(why)) => Err(NoChange::Unconfirmed(why)),
            None => {
                Err(NoChange::Unconfirmed("a newer version sent an answer that this version can't read".to_owned()))
            }
        }
    }
}

impl From<Admitted> for ChangedKind {
    fn from(admitted: Admitted) -> Self {
        match admitted {
            Admitted::Voter => Self::Done(Done { leads: 0 }),
            Admitted::Waiting(why) => Self::Waiting(Waiting { why, ..Waiting::default() }),
            Admitted::Learner { matched, last, why } => Self::Waiting(Waiting { learner: true, matched, last, why }),
            // A stage that a later version adds is described only by its text.
            other => Self::Waiting(Waiting { why: format!("{other:?}"), ..Waiting::default() }),
        }
    }
}

impl From<MembershipError> for NoChange {
    fn from(error: MembershipError) -> Self {
        let why = error.to_string();
        match error {
            MembershipError::Refused(why) => Self::Refused(why),
            MembershipError::NotLeader { .. } => Self::NoLeader(why),
            _ => Self::Unconfirmed(why),
        }
    }
}

impl From<Admission> for Admit {
    fn from(admission: Admission) -> Self {
        let Admission { name, addr, replaces, force } = admission;
        Self { name, addr, replaces: replaces.unwrap_or_default(), force }
    }
}

impl From<Admit> for Admission {
    fn from(message: Admit) -> Self {
        let Admit { name, addr, replaces, force } = message;
        Self { name, addr, replaces: Some(replaces).filter(|name| !name.is_empty()), force }
    }
}

#[cfg(test)]
mod tests;
