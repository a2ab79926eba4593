//! The items on the stream of an interactive transaction.

use bytes::Bytes;
use prost::{Message, Oneof};
use quorate_apply::DryRunResult;
use quorate_model::{CommandResult, Outcome, Position, Reply, SqlReply, Stamp, Statement, codec};
use quorate_wire::CallFailure;

use super::convert::newer;
use super::{Empty, Executed, Query, Refusal, WirePosition, WireStamp, malformed};
use crate::error::Error;
use crate::snapshot;
use crate::submitter::{Attempt, Limits};

/// An item from the client: first [`AskKind::Begin`], then statements and rewinds, then possibly [`AskKind::Commit`].
/// Ending the stream rolls back.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ask {
    #[prost(oneof = "AskKind", tags = "1, 2, 3, 4")]
    pub kind: Option<AskKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum AskKind {
    #[prost(message, tag = "1")]
    Begin(Begin),
    /// A statement, as a query of a snapshot whose limits and stamp are ignored.
    #[prost(message, tag = "2")]
    Run(Query),
    /// A proposal, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "3")]
    Commit(Bytes),
    /// Undoes the recorded statements but this many.
    #[prost(uint64, tag = "4")]
    Rewind(u64),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Begin {
    /// How long the client waits for the beginning, in milliseconds.
    #[prost(uint64, tag = "1")]
    pub wait_millis: u64,
    /// How long the transaction may then last, in milliseconds.
    #[prost(uint64, tag = "2")]
    pub last_millis: u64,
}

/// The node's answer to an item.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Told {
    #[prost(oneof = "ToldKind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<ToldKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ToldKind {
    /// The position of the state on which the statements run.
    #[prost(message, tag = "1")]
    Begun(WirePosition),
    #[prost(message, tag = "2")]
    Ran(Ran),
    /// Answers a commit, and ends the stream.
    #[prost(message, tag = "3")]
    Committed(Executed),
    /// Answers a begin, a statement or a rewind with an error.
    #[prost(message, tag = "4")]
    Refused(Refusal),
    #[prost(message, tag = "5")]
    Rewound(Empty),
}

/// The result of a statement.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ran {
    /// An outcome of one result, as `quorate_model::codec` encodes it.
    #[prost(bytes = "bytes", tag = "1")]
    pub result: Bytes,
    /// The stamp under which it ran, if the statement must be part of the proposal.
    #[prost(message, optional, tag = "2")]
    pub recorded: Option<WireStamp>,
}

impl Ask {
    pub(crate) fn begin(wait_millis: u64, last_millis: u64) -> Self {
        Self { kind: Some(AskKind::Begin(Begin { wait_millis, last_millis })) }
    }

    pub(crate) fn run(statement: Statement) -> Self {
        let query = snapshot::Query { statement, limits: Limits { rows: 0, bytes: 0, ..Limits::NONE }, stamp: None };
        Self { kind: Some(AskKind::Run(Query::of_state(query, 0))) }
    }

    pub(crate) fn commit(proposal: Bytes) -> Self {
        Self { kind: Some(AskKind::Commit(proposal)) }
    }

    pub(crate) fn rewind(count: usize) -> Self {
        Self { kind: Some(AskKind::Rewind(count as u64)) }
    }

    /// Returns the request, if this version knows it.
    pub(crate) fn request(self) -> Result<AskKind, CallFailure> {
        self.kind.ok_or_else(|| malformed("the request to the transaction is of an unknown kind"))
    }
}

impl Told {
    fn of(kind: ToldKind) -> Self {
        Self { kind: Some(kind) }
    }

    pub(crate) fn committed(executed: Executed) -> Self {
        Self::of(ToldKind::Committed(executed))
    }

    /// Returns the answer to a begin.
    pub(crate) fn begun(self) -> Result<Position, Error> {
        match self.kind {
            Some(ToldKind::Begun(position)) => Ok(position.into()),
            Some(ToldKind::Refused(refusal)) => Err(refusal.into()),
            _ => Err(newer()),
        }
    }

    /// Returns the answer to a statement.
    pub(crate) fn ran(self) -> Result<DryRunResult, Error> {
        match self.kind {
            Some(ToldKind::Ran(ran)) => ran.result().ok_or_else(newer),
            Some(ToldKind::Refused(refusal)) => Err(refusal.into()),
            _ => Err(newer()),
        }
    }

    /// Returns the answer to a rewind.
    pub(crate) fn rewound(self) -> Result<(), Error> {
        match self.kind {
            Some(ToldKind::Rewound(Empty {})) => Ok(()),
            Some(ToldKind::Refused(refusal)) => Err(refusal.into()),
            _ => Err(newer()),
        }
    }

    /// Returns the answer to a commit.
    pub(crate) fn result(self) -> Result<(Position, Outcome), Attempt> {
        match self.kind {
            Some(ToldKind::Committed(executed)) => executed.result(),
            _ => Err(Attempt::InDoubt(newer().into())),
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

impl From<Result<(), Error>> for Told {
    fn from(rewound: Result<(), Error>) -> Self {
        Self::of(match rewound {
            Ok(()) => ToldKind::Rewound(Empty {}),
            Err(error) => ToldKind::Refused((&error).into()),
        })
    }
}

impl From<DryRunResult> for Ran {
    fn from(DryRunResult { result, recorded }: DryRunResult) -> Self {
        let outcome = Ok(Reply::of([result]));
        let recorded = recorded.map(|Stamp { now, seed }| WireStamp { now, seed });
        Self { result: codec::encode_outcome(&outcome), recorded }
    }
}

impl Ran {
    fn result(self) -> Option<DryRunResult> {
        let reply = codec::decode_outcome(&self.result).ok()?.ok()?;
        let mut results = reply.results.into_iter();
        let (Some(result @ CommandResult::Sql(SqlReply::Statement(_))), None) = (results.next(), results.next()) else {
            return None;
        };
        let recorded = self.recorded.map(|WireStamp { now, seed }| Stamp { now, seed });
        Some(DryRunResult { result, recorded })
    }
}
