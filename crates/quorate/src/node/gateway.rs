//! What a running node does for its own handle and for callers from elsewhere: proposes, here or at the leader, and
//! reads what it has applied.

use std::time::Duration;

use bytes::Bytes;
use quorate_consensus::{Consensus, Member, ProposeError, ReadPositionError};
use quorate_env::{Env, Instant, timeout_at};
use quorate_model::{Failure, FailureKind, GroupId, NodeId, Outcome, Position, Statement, Store};
use quorate_sql::query::Rows;
use quorate_sql::readers::ReadLimits;
use quorate_sql::store::{SqlStore, Verification};
use quorate_sql::validate::StatementKind;
use tokio::sync::Semaphore;

use crate::client::{Attempt, NotDone, Read};
use crate::error::Error;
use crate::level::Level;
use crate::protocol::{self, Execute, method};
use crate::status::Status;

/// A running node.
pub(crate) struct Gateway {
    pub(crate) env: Env,
    pub(crate) consensus: Consensus,
    pub(crate) store: SqlStore,
    /// Places for backups that are sent at the same time.
    pub(super) backups: Semaphore,
}

impl Gateway {
    /// Proposes here if this node leads, else at the leader.
    pub(crate) async fn propose(&self, proposal: Bytes, deadline: Instant) -> Result<(Position, Outcome), Attempt> {
        match self.consensus.propose(proposal.clone()).await {
            Err(ProposeError::NotLeader { leader: Some((leader, member)) }) => {
                self.forward(leader, &member, proposal, deadline).await
            }
            result => result.map_err(Attempt::from),
        }
    }

    /// Proposes here. For callers that found out themselves who leads.
    pub(crate) async fn propose_here(&self, proposal: Bytes) -> Result<(Position, Outcome), Attempt> {
        self.consensus.propose(proposal).await.map_err(Attempt::from)
    }

    async fn forward(
        &self,
        leader: NodeId,
        member: &Member,
        proposal: Bytes,
        deadline: Instant,
    ) -> Result<(Position, Outcome), Attempt> {
        let body = protocol::encode(&Execute { proposal });
        let limit = deadline.saturating_duration_since(Instant::now());
        let reply = self.consensus.call_member(leader, method::EXECUTE, body, limit).await;
        let reply = reply.map_err(|error| Attempt::of_call(error, &format!("{} at {}", member.name, member.addr)))?;
        let executed: protocol::Executed =
            protocol::decode(reply).map_err(|error| Attempt::InDoubt(error.to_string()))?;
        executed.result()
    }

    /// Fails if a statement can never be applied, or only reads.
    pub(crate) fn check(&self, statement: &Statement) -> Result<(), Failure> {
        match self.store.validator().check(statement)? {
            StatementKind::Read => {
                let text = "this statement only reads, so there is nothing to replicate; use `query` for it";
                Err(Failure::new(FailureKind::Refused, text))
            }
            StatementKind::Vacuum => {
                Err(Failure::new(FailureKind::Refused, "VACUUM can't be combined with other statements"))
            }
            StatementKind::Write | StatementKind::Ddl | StatementKind::Unknown => Ok(()),
        }
    }

    /// Runs a query on the calling thread if it is short, else beside it.
    pub(crate) async fn read(&self, read: &Read, deadline: Instant) -> Result<Rows, Error> {
        self.reach(read.level, deadline).await?;
        let limits = ReadLimits { rows: read.limits.rows, bytes: read.limits.bytes, ..ReadLimits::default() };
        Ok(self.store.readers().query(&self.env, &read.statement, &limits).await?)
    }

    /// Runs a query beside the calling thread, which has other things to do.
    pub(crate) async fn read_aside(&self, read: Read, deadline: Instant) -> Result<Rows, Error> {
        self.reach(read.level, deadline).await?;
        let readers = self.store.readers().clone();
        let limits = ReadLimits { rows: read.limits.rows, bytes: read.limits.bytes, ..ReadLimits::default() };
        let query = move || readers.query_blocking(&read.statement, &limits);
        Ok(self.env.blocking(query).await.ok_or(Error::Closed)??)
    }

    /// Waits until this node has applied what a level asks for.
    pub(super) async fn reach(&self, level: Level, deadline: Instant) -> Result<(), Error> {
        let position = match level {
            Level::Local => return Ok(()),
            Level::AtLeast(position) => self.comparable(position)?,
            Level::Linearizable => match timeout_at(deadline, self.consensus.read_position()).await {
                Ok(position) => position?,
                Err(_) => return Err(Error::TimedOut("no majority answered in time".to_owned())),
            },
        };
        let reached = self.store.wait_applied(position.index, deadline).await;
        reached.map_err(|timeout| Error::TimedOut(timeout.to_string()))
    }

    /// What came of the verification at a position; waits for it until `deadline`.
    pub(crate) async fn verification(
        &self,
        position: Position,
        deadline: Instant,
    ) -> Result<Option<Verification>, Error> {
        self.reach(Level::AtLeast(position), deadline).await?;
        Ok(self.store.verification(position.index, deadline).await)
    }

    /// A position that can be waited for: one of this history.
    fn comparable(&self, position: Position) -> Result<Position, Error> {
        let epoch = self.store.options().identity.epoch;
        if (position.epoch, position.group) == (epoch, GroupId::MAIN) {
            return Ok(position);
        }
        let text = format!("the position {position} is of another history: this database is in epoch {}", epoch.0);
        Err(Failure::new(FailureKind::Refused, text).into())
    }

    /// How this node and its cluster stand.
    pub(crate) fn status(&self) -> Status {
        let sizes = self.store.sizes();
        let bytes = sizes.database.saturating_add(sizes.wal_file);
        Status::new(self.consensus.status(), self.store.durable().index(), bytes)
    }

    /// Where the leader listens, if it is another node and known.
    pub(crate) fn leader_elsewhere(&self) -> Option<String> {
        if self.consensus.is_leader() { None } else { self.consensus.leader().map(|(_, member)| member.addr) }
    }
}

/// Until when a caller from elsewhere is served that would wait for so long.
pub(crate) fn served_until(limit: Duration) -> Instant {
    const SERVED_MAX: Duration = Duration::from_secs(600);
    Instant::now() + limit.min(SERVED_MAX)
}

impl From<ProposeError> for Attempt {
    fn from(error: ProposeError) -> Self {
        let text = error.to_string();
        match error {
            ProposeError::Overloaded => Self::NotDone(NotDone::Overloaded(text)),
            ProposeError::NotLeader { .. } | ProposeError::Stopped(_) => Self::NotDone(NotDone::NoLeader(text)),
            // Kinds that later versions add say no more.
            _ => Self::InDoubt(text),
        }
    }
}

impl From<ReadPositionError> for Error {
    fn from(error: ReadPositionError) -> Self {
        match error {
            ReadPositionError::Stopped => Self::Closed,
            _ => Self::Unavailable(error.to_string()),
        }
    }
}
