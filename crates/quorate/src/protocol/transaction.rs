//! The items of an interactive transaction's stream.

use bytes::Bytes;
use prost::{Message, Oneof};
use quorate_model::{CommandResult, Outcome, Position, Reply, SqlReply, Stamp, Statement, codec};
use quorate_sql::apply::DryRunResult;
use quorate_wire::CallFailure;

use super::convert::newer;
use super::{Executed, Query, Refusal, WirePosition, WireStamp, malformed};
use crate::error::Error;
use crate::snapshot;
use crate::submitter::{Attempt, Limits};

/// What a client sends: first [`Asked::Begin`], then statements, then perhaps [`Asked::Commit`]. Ending the stream
/// rolls back.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ask {
    #[prost(oneof = "Asked", tags = "1, 2, 3")]
    pub kind: Option<Asked>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Asked {
    #[prost(message, tag = "1")]
    Begin(Begin),
    /// A statement: as a query of a snapshot, whose limits and stamp say nothing.
    #[prost(message, tag = "2")]
    Run(Query),
    /// A proposal, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "3")]
    Commit(Bytes),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Begin {
    /// How long the client waits for it to begin.
    #[prost(uint64, tag = "1")]
    pub wait_millis: u64,
    /// How long it may last then.
    #[prost(uint64, tag = "2")]
    pub last_millis: u64,
}

/// What a node answers to each of them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Told {
    #[prost(oneof = "ToldKind", tags = "1, 2, 3, 4")]
    pub kind: Option<ToldKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ToldKind {
    /// Where the state stands on which the statements run.
    #[prost(message, tag = "1")]
    Begun(WirePosition),
    #[prost(message, tag = "2")]
    Ran(Ran),
    /// Answers a commit, and ends the stream.
    #[prost(message, tag = "3")]
    Committed(Executed),
    /// Instead of either of the first two.
    #[prost(message, tag = "4")]
    Refused(Refusal),
}

/// What a statement did.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ran {
    /// An outcome of one result, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "1")]
    pub result: Bytes,
    /// What it ran under, if it belongs into the proposal.
    #[prost(message, optional, tag = "2")]
    pub recorded: Option<WireStamp>,
}

impl Ask {
    pub(crate) fn begin(wait_millis: u64, last_millis: u64) -> Self {
        Self { kind: Some(Asked::Begin(Begin { wait_millis, last_millis })) }
    }

    pub(crate) fn run(statement: Statement) -> Self {
        let query = snapshot::Query { statement, limits: Limits { rows: 0, bytes: 0, ..Limits::NONE }, stamp: None };
        Self { kind: Some(Asked::Run(Query::of_state(query, 0))) }
    }

    pub(crate) fn commit(proposal: Bytes) -> Self {
        Self { kind: Some(Asked::Commit(proposal)) }
    }

    /// What is asked, if this version knows it.
    pub(crate) fn asked(self) -> Result<Asked, CallFailure> {
        self.kind.ok_or_else(|| malformed("what is asked of the transaction is not known"))
    }
}

impl Told {
    fn of(kind: ToldKind) -> Self {
        Self { kind: Some(kind) }
    }

    pub(crate) fn committed(executed: Executed) -> Self {
        Self::of(ToldKind::Committed(executed))
    }

    /// What it says in answer to a begin.
    pub(crate) fn begun(self) -> Result<Position, Error> {
        match self.kind {
            Some(ToldKind::Begun(position)) => Ok(position.into()),
            Some(ToldKind::Refused(refusal)) => Err(refusal.into()),
            _ => Err(newer()),
        }
    }

    /// What it says in answer to a statement.
    pub(crate) fn ran(self) -> Result<DryRunResult, Error> {
        match self.kind {
            Some(ToldKind::Ran(ran)) => ran.result().ok_or_else(newer),
            Some(ToldKind::Refused(refusal)) => Err(refusal.into()),
            _ => Err(newer()),
        }
    }

    /// What it says in answer to a commit.
    pub(crate) fn result(self) -> Result<(Position, Outcome), Attempt> {
        match self.kind {
            Some(ToldKind::Committed(executed)) => executed.result(),
            _ => Err(Attempt::InDoubt(newer().to_string())),
        }
    }
}

impl From<Result<Position, Error>> for Told {
    fn from(begun: Result<Position, Error>) -> Self {
        Self::of(match begun {
            Ok(position) => ToldKind::Begun(position.into()),
            Err(error) => ToldKind::Refused((&error).into()),
        })
    }
}

impl From<Result<DryRunResult, Error>> for Told {
    fn from(ran: Result<DryRunResult, Error>) -> Self {
        Self::of(match ran {
            Ok(ran) => ToldKind::Ran(ran.into()),
            Err(error) => ToldKind::Refused((&error).into()),
        })
    }
}

impl From<DryRunResult> for Ran {
    fn from(DryRunResult { result, recorded }: DryRunResult) -> Self {
        let outcome = Ok(Reply { results: [CommandResult::Sql(SqlReply::Statement(result))].into() });
        let recorded = recorded.map(|Stamp { now, seed }| WireStamp { now, seed });
        Self { result: codec::encode_outcome(&outcome), recorded }
    }
}

impl Ran {
    fn result(self) -> Option<DryRunResult> {
        let reply = codec::decode_outcome(&self.result).ok()?.ok()?;
        let mut results = reply.results.into_iter();
        let (Some(CommandResult::Sql(SqlReply::Statement(result))), None) = (results.next(), results.next()) else {
            return None;
        };
        let recorded = self.recorded.map(|WireStamp { now, seed }| Stamp { now, seed });
        Some(DryRunResult { result, recorded })
    }
}
