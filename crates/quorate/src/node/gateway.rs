//! What a running node does for its own handle and for callers from elsewhere: proposes, here or at the leader, and
//! reads what it has applied.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quorate_consensus::{Consensus, ProposeError, ReadPositionError};
use quorate_env::mutant::Mutant;
use quorate_env::{Env, Instant, timeout_at};
use quorate_model::{
    ALONE, Command, Failure, FailureKind, GroupId, Outcome, Position, Read, SqlCommand, StateMachine, StoreFault,
};
use quorate_sql::connection::sqlite_version;
use quorate_sql::readers::Snapshot;
use quorate_sql::store::{SqlStore, Verification};
use quorate_sql::validate::StatementKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::coop;

use crate::error::Error;
use crate::level::Level;
use crate::metrics::{Metrics, NodeMetrics};
use crate::readiness::{NotReady, not_ready};
use crate::status::Status;
use crate::submitter::{Attempt, NotDone, ReadAnswer, ReadRequest};

/// How long a snapshot may last. One that is older than reads commonly become ends sooner where the database's files
/// grow too much, or another node needs an image of them.
pub(crate) const SNAPSHOT_MAX: Duration = Duration::from_secs(600);

/// Snapshots at once: for each so many readers, so that other reads find some.
const READERS_PER_SNAPSHOT: usize = 2;

/// What is said where the node's queue is full.
pub(super) const WRITES_WAIT: &str = "too many writes wait on the leader";

const SNAPSHOTS_OPEN: &str = "too many snapshots are open on this node (one for each two of its 'sql.readers')";
const NOT_JOINED: &str = "this node is no member of the cluster yet, or has not received the cluster's database yet";
const NO_MAJORITY: &str = "no majority answered in time; see that a majority of the nodes is up and reachable, wait \
                           longer (with_deadline), or read at the level Local";

/// A running node.
pub(crate) struct Gateway {
    pub(crate) env: Env,
    pub(crate) consensus: Consensus,
    pub(crate) store: SqlStore,
    /// Places for backups that are sent at the same time.
    pub(super) backups: Semaphore,
    /// Places of clients' proposals that are looked at beside the core's thread.
    pub(super) checks: Semaphore,
    snapshots: Arc<Semaphore>,
    /// As it was at the start: a look at whether that has changed takes no lock.
    fault: watch::Receiver<Option<StoreFault>>,
    pub(crate) metrics: NodeMetrics,
    /// Set when it is told to stop.
    pub(crate) is_stopping: AtomicBool,
    pub(super) data_dir: PathBuf,
    since: Instant,
}

/// A state that is kept for many reads.
pub(crate) struct Kept {
    pub(crate) snapshot: Snapshot,
    pub(crate) position: Position,
    _place: OwnedSemaphorePermit,
}

impl Gateway {
    pub(crate) fn new(env: Env, data_dir: PathBuf, consensus: Consensus, store: SqlStore) -> Self {
        let (metrics, is_stopping, since) = (NodeMetrics::default(), AtomicBool::new(false), Instant::now());
        let backups = Semaphore::new(super::backup::BACKUPS_MAX);
        let checks = Semaphore::new(super::service::CHECKS_MAX);
        let snapshots = store.options().readers.readers.div_ceil(READERS_PER_SNAPSHOT);
        let snapshots = Arc::new(Semaphore::new(snapshots.min(Semaphore::MAX_PERMITS)));
        let mut fault = store.watch_fault();
        if fault.borrow_and_update().is_some() {
            fault.mark_changed();
        }
        Self { env, consensus, store, backups, checks, snapshots, fault, metrics, is_stopping, data_dir, since }
    }

    /// Proposes, wherever the leader is.
    pub(crate) async fn propose(&self, proposal: Bytes) -> Result<(Position, Outcome), Attempt> {
        self.serves().map_err(Attempt::Refused)?;
        self.consensus.propose(proposal).await.map_err(Attempt::from)
    }

    /// Fails if a command can never be applied, or only reads.
    pub(crate) fn check(&self, command: &Command) -> Result<(), Failure> {
        self.metrics.validated(|| self.validate(command))
    }

    /// Whether a command can be checked at once.
    pub(super) fn knows(&self, command: &Command) -> bool {
        command.sql_text().is_none_or(|sql| self.store.validator().knows(sql))
    }

    fn validate(&self, command: &Command) -> Result<(), Failure> {
        let kind = match command {
            Command::Sql(SqlCommand::Statement(statement)) => self.store.validator().check(statement)?,
            Command::Sql(SqlCommand::Bulk(bulk)) => self.store.validator().check_bulk(bulk)?,
            Command::Control(_) | Command::Sql(SqlCommand::Vacuum | SqlCommand::Extend(_)) => return Ok(()),
        };
        match kind {
            StatementKind::Read => {
                let text = "this statement only reads, so there is nothing to replicate; use `query` for it";
                Err(Failure::new(FailureKind::Refused, text))
            }
            StatementKind::Vacuum => Err(Failure::new(FailureKind::Refused, ALONE)),
            StatementKind::Write | StatementKind::Ddl | StatementKind::Unknown => Ok(()),
        }
    }

    /// Answers a read on the calling thread if it is short, else beside it.
    pub(crate) async fn read(&self, request: &ReadRequest, deadline: Instant) -> Result<ReadAnswer, Error> {
        let result = self.read_here(request, deadline).await;
        self.metrics.reads.count(request.level, &result);
        result
    }

    async fn read_here(&self, request: &ReadRequest, deadline: Instant) -> Result<ReadAnswer, Error> {
        // A local read waits for nothing: without this a loop of them would never let another task run.
        coop::consume_budget().await;
        self.reach(request.level, deadline).await?;
        let Read::Sql(query) = &request.read;
        Ok(ReadAnswer::Sql(self.store.readers().query(&self.env, query, &request.limits.for_read()).await?))
    }

    /// Answers a read beside the calling thread, which has other things to do. Dropping the future ends the read.
    pub(crate) async fn read_aside(&self, request: ReadRequest, deadline: Instant) -> Result<ReadAnswer, Error> {
        let level = request.level;
        let result = self.read_blocking(request, deadline).await;
        self.metrics.reads.count(level, &result);
        result
    }

    async fn read_blocking(&self, request: ReadRequest, deadline: Instant) -> Result<ReadAnswer, Error> {
        self.reach(request.level, deadline).await?;
        let Read::Sql(query) = &request.read;
        Ok(ReadAnswer::Sql(self.store.readers().query_aside(&self.env, query, &request.limits.for_read()).await?))
    }

    /// Keeps the state that a level asks for, once there is a place for one more.
    pub(crate) async fn snapshot(&self, level: Level, deadline: Instant) -> Result<Kept, Error> {
        // Who waits for a level must keep no place from others, whose level may be there.
        self.reach(level, deadline).await?;
        let free = Arc::clone(&self.snapshots).try_acquire_owned();
        let place = match free {
            Ok(place) => place,
            Err(_) => self.wait_for_place(level, deadline).await?,
        };
        let snapshot = self.store.readers().snapshot(&self.env, SNAPSHOT_MAX).await?;
        let epoch = self.store.options().identity.epoch;
        let position = Position { epoch, group: GroupId::MAIN, index: snapshot.applied_index() };
        Ok(Kept { snapshot, position, _place: place })
    }

    /// Waits for a place among the snapshots. A state that was young enough may be too old by then.
    async fn wait_for_place(&self, level: Level, deadline: Instant) -> Result<OwnedSemaphorePermit, Error> {
        let place = timeout_at(deadline, Arc::clone(&self.snapshots).acquire_owned()).await;
        let full = |_| Error::Overloaded(SNAPSHOTS_OPEN.to_owned());
        // Nobody closes the semaphore.
        let place = place.map_err(full)?.map_err(|_| Error::Closed)?;
        if let Level::Bounded(_) = level {
            self.reach(level, deadline).await?;
        }
        Ok(place)
    }

    /// How long a query may run, and a piece of one take, whatever its caller asks for.
    pub(crate) fn query_timeout(&self) -> Duration {
        self.store.options().readers.transaction
    }

    /// Fails if this node was removed from its cluster: what it holds is of the past.
    pub(super) fn serves(&self) -> Result<(), Error> {
        self.consensus.removed().map_or(Ok(()), |why| Err(Error::Removed(why.to_owned())))
    }

    /// Fails until this node has applied its own admission: before that its database may be empty, or of a former life.
    fn has_state(&self) -> Result<(), Error> {
        if self.consensus.has_joined() || Mutant::LearnerServes.is_on() {
            return Ok(());
        }
        Err(Error::Unavailable(NOT_JOINED.to_owned()))
    }

    /// Waits until this node has applied what a level asks for.
    pub(super) async fn reach(&self, level: Level, deadline: Instant) -> Result<(), Error> {
        self.serves()?;
        if self.fault.has_changed().unwrap_or(true)
            && let Some(fault @ (StoreFault::Diverged(_) | StoreFault::Damaged(_))) = self.store.fault()
        {
            return Err(Error::Unavailable(fault.to_string()));
        }
        let in_time = |_| Error::TimedOut(NO_MAJORITY.to_owned());
        let position = match level {
            Level::Local => return self.has_state(),
            Level::AtLeast(position) => self.comparable(position)?,
            Level::Linearizable => timeout_at(deadline, self.consensus.read_position()).await.map_err(in_time)??,
            Level::Bounded(age) => {
                timeout_at(deadline, self.consensus.read_position_within(age)).await.map_err(in_time)??
            }
        };
        let reached = self.store.wait_applied(position.index, deadline).await;
        reached.map_err(|timeout| Error::TimedOut(timeout.to_string()))
    }

    /// The result of the verification at a position; waits for it until `deadline`.
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
        let text = format!(
            "the position {position} is of another history: this database is in epoch {}; take positions from what it \
             answers now",
            epoch.0
        );
        Err(Failure::new(FailureKind::Refused, text).into())
    }

    /// How this node and its cluster stand.
    pub(crate) fn status(&self) -> Status {
        let sizes = self.store.sizes();
        let bytes = sizes.database.saturating_add(sizes.wal_file);
        Status::new(self.consensus.status(), self.store.durable().index(), bytes, self.store.fault().as_ref())
    }

    /// What this node measures.
    pub(crate) fn metrics(&self) -> Metrics {
        let (log_stats, log) = self.consensus.log_metrics();
        let status = self.status();
        Metrics {
            version: env!("CARGO_PKG_VERSION"),
            sqlite_version: sqlite_version(),
            not_ready: self.reasons(&status),
            status,
            fault: self.store.fault(),
            silence_max: self.consensus.silence_max(),
            clock_offsets: self.consensus.clock_offsets(),
            node: self.metrics.clone(),
            consensus: self.consensus.metrics(),
            log,
            log_stats,
            store: self.store.metrics(),
            sizes: self.store.sizes(),
            connections: self.consensus.connections(),
            space: self.env.disk().space(&self.data_dir).ok(),
            usage: self.env.usage(),
            uptime: self.since.elapsed(),
        }
    }

    /// Why this node can't serve.
    pub(crate) fn not_ready(&self) -> Vec<NotReady> {
        self.reasons(&self.status())
    }

    fn reasons(&self, status: &Status) -> Vec<NotReady> {
        let mut reasons = not_ready(status, self.consensus.silence_max());
        reasons.extend(self.store.fault().map(NotReady::Store));
        if self.consensus.is_log_full() {
            reasons.push(NotReady::LogFull);
        }
        if self.is_stopping.load(Ordering::Relaxed) {
            reasons.insert(0, NotReady::Stopping);
        }
        reasons
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
            ProposeError::Overloaded => Self::NotDone(NotDone::Overloaded(WRITES_WAIT.to_owned())),
            ProposeError::NotLeader { .. } | ProposeError::Unreachable(_) | ProposeError::Stopped(_) => {
                Self::NotDone(NotDone::NoLeader(text))
            }
            // Kinds that later versions add say no more.
            _ => Self::InDoubt(text),
        }
    }
}

impl From<ReadPositionError> for Error {
    fn from(error: ReadPositionError) -> Self {
        match error {
            ReadPositionError::Stopped => Self::Closed,
            ReadPositionError::Unavailable(why) => {
                Self::Unavailable(format!("no leader with a majority answered: {why} (the level Local asks for none)"))
            }
            _ => Self::Unavailable(error.to_string()),
        }
    }
}
