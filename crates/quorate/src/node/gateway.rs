//! What a running node does for its own handle and for callers from elsewhere: proposes, here or at the leader, and
//! reads what it has applied.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_consensus::{Consensus, Member, ProposeError, ReadPositionError};
use quorate_env::{Env, Instant, timeout_at};
use quorate_model::{Failure, FailureKind, GroupId, NodeId, Outcome, Position, Statement, Store};
use quorate_sql::query::Rows;
use quorate_sql::readers::{ReadLimits, Snapshot};
use quorate_sql::store::SqlStore;
use quorate_sql::validate::StatementKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client::{Attempt, NotDone, Read};
use crate::error::Error;
use crate::level::Level;
use crate::protocol::{self, Execute, method};
use crate::status::Status;

/// How long a snapshot may last. One that is older than reads commonly become ends sooner where the database's files
/// grow too much, or another node needs an image of them.
pub(crate) const SNAPSHOT_MAX: Duration = Duration::from_secs(600);

/// Snapshots at once: for each so many readers, so that other reads find some.
const READERS_PER_SNAPSHOT: usize = 2;

/// A running node.
pub(crate) struct Gateway {
    pub(crate) env: Env,
    pub(crate) consensus: Consensus,
    pub(crate) store: SqlStore,
    snapshots: Arc<Semaphore>,
}

/// A state that is kept for many reads.
pub(crate) struct Kept {
    pub(crate) snapshot: Snapshot,
    pub(crate) position: Position,
    _place: OwnedSemaphorePermit,
}

impl Gateway {
    pub(crate) fn new(env: Env, consensus: Consensus, store: SqlStore) -> Self {
        let snapshots = store.options().readers.readers.div_ceil(READERS_PER_SNAPSHOT);
        let snapshots = Arc::new(Semaphore::new(snapshots.min(Semaphore::MAX_PERMITS)));
        Self { env, consensus, store, snapshots }
    }

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

    /// Runs a query beside the calling thread, which has other things to do. Dropped, it ends the query.
    pub(crate) async fn read_aside(&self, read: Read, deadline: Instant) -> Result<Rows, Error> {
        self.reach(read.level, deadline).await?;
        let limits = ReadLimits { rows: read.limits.rows, bytes: read.limits.bytes, ..ReadLimits::default() };
        Ok(self.store.readers().query_aside(&self.env, &read.statement, &limits).await?)
    }

    /// Keeps the state that a level asks for.
    pub(crate) async fn snapshot(&self, level: Level, deadline: Instant) -> Result<Kept, Error> {
        let place = Arc::clone(&self.snapshots).try_acquire_owned();
        let place = place.map_err(|_| Error::Overloaded("too many snapshots are open on this node".to_owned()))?;
        self.reach(level, deadline).await?;
        let snapshot = self.store.readers().snapshot(&self.env, SNAPSHOT_MAX).await?;
        let epoch = self.store.options().identity.epoch;
        let position = Position { epoch, group: GroupId::MAIN, index: snapshot.applied_index() };
        Ok(Kept { snapshot, position, _place: place })
    }

    /// Waits until this node has applied what a level asks for.
    async fn reach(&self, level: Level, deadline: Instant) -> Result<(), Error> {
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
