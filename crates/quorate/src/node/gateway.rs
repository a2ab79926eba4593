//! The operations of a running node, for its own handle and for remote callers: it proposes, at this node or at the
//! leader, and reads what it has applied.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quorate_apply::waits::Waits;
use quorate_consensus::{Consensus, ProposeError, ReadPositionError};
use quorate_env::mutant::Mutant;
use quorate_env::{Cause, Env, Instant, timeout_at};
use quorate_model::events::EventsQuery;
use quorate_model::keys::{KEYS_LEVEL, KeysReply, SpaceCommand};
use quorate_model::locks::LocksCommand;
use quorate_model::{
    ALONE, Command, ControlCommand, Failure, FailureKind, GroupId, Outcome, Position, Read, SqlCommand, StateMachine,
    StoreFault,
};
use quorate_sql::connection::sqlite_version;
use quorate_sql::readers::Snapshot;
use quorate_sql::store::{SqlStore, Verification};
use quorate_sql::validate::StatementKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::coop;

use super::archiving::ArchiveState;
use crate::config::Config;
use crate::error::Error;
use crate::level::Level;
use crate::metrics::{Metrics, NodeMetrics};
use crate::readiness::{NotReady, Patience, not_ready};
use crate::rights::Right;
use crate::status::Status;
use crate::submitter::{Archived, Attempt, Limits, NotDone, ReadAnswer, ReadRequest};
use crate::users::Logins;

/// How long a snapshot may last. A snapshot that is older than a usual read ends sooner if it makes the database's
/// files grow too much, or if another node needs an image.
pub(crate) const SNAPSHOT_MAX: Duration = Duration::from_secs(600);

/// There is one snapshot for this many readers, so that other reads find free ones.
const READERS_PER_SNAPSHOT: usize = 2;

/// The error when the node's queue is full.
pub(super) const WRITES_WAIT: &str = "too many writes wait on the leader";

const SNAPSHOTS_OPEN: &str = "too many snapshots are open on this node (one for each two of its 'sql.readers')";
const NOT_JOINED: &str = "this node is not a member of the cluster yet, or has not received the cluster's database yet";
const NO_MAJORITY: &str = "no majority answered in time; check that a majority of the nodes is up and reachable, wait \
                           longer (with_deadline), or read at the level Local";

/// A running node.
pub(crate) struct Gateway {
    pub(crate) env: Env,
    pub(crate) consensus: Consensus,
    pub(crate) store: SqlStore,
    /// The waiters of groups.
    pub(super) waits: BTreeMap<GroupId, Waits>,
    /// Permits for backups that are sent at the same time.
    pub(super) backups: Semaphore,
    /// Permits for proposals of clients that are checked outside the core's thread.
    pub(super) checks: Semaphore,
    snapshots: Arc<Semaphore>,
    /// The store's fault. The receiver is marked as changed unless there was no fault at the start, so that checking it
    /// takes no lock.
    fault: watch::Receiver<Option<StoreFault>>,
    pub(crate) metrics: NodeMetrics,
    pub(crate) logins: Logins,
    /// Whether the configuration has the token of the first administrator: the cluster is closed from the beginning.
    pub(super) expects_admin: bool,
    /// Set when the node is asked to stop.
    pub(crate) is_stopping: AtomicBool,
    pub(super) data_dir: PathBuf,
    /// How far the archiver of this node has come.
    pub(crate) archive: Arc<ArchiveState>,
    /// How late the archive may be while this node is ready.
    archive_lag_max: Option<Duration>,
    /// What this node knows of the archive, and those who wait for it here.
    pub(super) archived: Archived,
    since: Instant,
}

/// A snapshot that is kept for many reads.
pub(crate) struct KeptSnapshot {
    pub(crate) snapshot: Snapshot,
    pub(crate) position: Position,
    _permit: OwnedSemaphorePermit,
}

impl Gateway {
    pub(crate) fn new(
        env: Env,
        config: &Config,
        consensus: Consensus,
        store: SqlStore,
        mut waits: BTreeMap<GroupId, Waits>,
    ) -> Self {
        waits.insert(GroupId::MAIN, store.waits().clone());
        let (metrics, is_stopping, since) = (NodeMetrics::default(), AtomicBool::new(false), Instant::now());
        let backups = Semaphore::new(super::backup::BACKUPS_MAX);
        let checks = Semaphore::new(super::service::CHECKS_MAX);
        let snapshots = store.options().readers.readers.div_ceil(READERS_PER_SNAPSHOT);
        let snapshots = Arc::new(Semaphore::new(snapshots.min(Semaphore::MAX_PERMITS)));
        let mut fault = store.watch_fault();
        if fault.borrow_and_update().is_some() {
            fault.mark_changed();
        }
        waits.insert(GroupId::MAIN, store.waits().clone());
        let logins = Logins::new(&env);
        Self {
            env,
            consensus,
            store,
            waits,
            backups,
            checks,
            snapshots,
            fault,
            metrics,
            logins,
            expects_admin: config.admin_token.is_some(),
            is_stopping,
            data_dir: config.data_dir.clone(),
            archive: Arc::default(),
            archive_lag_max: config.archive.as_ref().and_then(|archive| archive.ready_lag),
            archived: Archived::default(),
            since,
        }
    }

    /// Proposes, at this node or at the leader.
    pub(crate) async fn propose(&self, proposal: Bytes) -> Result<(Position, Outcome), Attempt> {
        self.serves().map_err(Attempt::Refused)?;
        self.consensus.main().propose(proposal).await.map_err(Attempt::from)
    }

    /// Fails if a command can never be applied, or only reads.
    pub(crate) fn check(&self, command: &Command) -> Result<(), Failure> {
        self.metrics.validated(|| self.validate(command))
    }

    /// Fails if the cluster does not use a format level yet.
    pub(crate) fn check_level(&self, needed: u32) -> Result<(), Failure> {
        let checked = self.consensus.main().check_level(needed);
        checked.map_err(|low| Failure::new(FailureKind::Unsupported, low.to_string()))
    }

    /// Returns whether a command can be checked without planning its statement.
    pub(super) fn knows(&self, command: &Command) -> bool {
        command.sql_text().is_none_or(|sql| self.store.validator().knows(sql))
    }

    fn validate(&self, command: &Command) -> Result<(), Failure> {
        self.check_level(command.level())?;
        let kind = match command {
            Command::Sql(SqlCommand::Statement(statement)) => self.store.validator().check(statement)?,
            Command::Sql(SqlCommand::Bulk(bulk)) => self.store.validator().check_bulk(bulk)?,
            Command::Control(ControlCommand::User(command)) => return super::users::check(command),
            Command::Control(_) | Command::Sql(SqlCommand::Vacuum | SqlCommand::Extend(_)) => return Ok(()),
            // What these commands name was checked with the limits.
            Command::Keys(_) | Command::Locks(_) | Command::Events(_) => return Ok(()),
            Command::Items(_) => {
                return Err(Failure::new(FailureKind::Refused, "this cluster has no store for the command"));
            }
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

    /// Answers a read on the calling thread if it is short, otherwise on another thread.
    pub(crate) async fn read(&self, request: &ReadRequest, deadline: Instant) -> Result<ReadAnswer, Error> {
        let result = self.read_here(request, deadline).await;
        self.metrics.reads.count(request.level, &result);
        result
    }

    async fn read_here(&self, request: &ReadRequest, deadline: Instant) -> Result<ReadAnswer, Error> {
        // A local read waits for nothing, so a loop of local reads would otherwise starve the other tasks.
        coop::consume_budget().await;
        self.reach(request.level, deadline).await?;
        match &request.read {
            Read::Sql(query) => {
                let rows = self.store.readers().query(&self.env, query, &request.limits.for_read()).await?;
                Ok(ReadAnswer::Sql(rows))
            }
            Read::Keys(command) => self.read_keys(request, command).await,
            Read::Locks(command) => self.read_locks(request, command).await,
            Read::Events(query) => self.read_events(request, query).await,
        }
    }

    /// Answers a read on another thread, because the calling thread has other work. Dropping the future ends the read.
    pub(crate) async fn read_aside(&self, request: ReadRequest, deadline: Instant) -> Result<ReadAnswer, Error> {
        let level = request.level;
        let result = self.read_blocking(request, deadline).await;
        self.metrics.reads.count(level, &result);
        result
    }

    async fn read_blocking(&self, request: ReadRequest, deadline: Instant) -> Result<ReadAnswer, Error> {
        self.reach(request.level, deadline).await?;
        match &request.read {
            Read::Sql(query) => {
                let rows = self.store.readers().query_aside(&self.env, query, &request.limits.for_read()).await?;
                Ok(ReadAnswer::Sql(rows))
            }
            Read::Keys(command) => self.read_keys(&request, command).await,
            Read::Locks(command) => self.read_locks(&request, command).await,
            Read::Events(query) => self.read_events(&request, query).await,
        }
    }

    /// Answers a read of keys.
    async fn read_keys(&self, request: &ReadRequest, command: &SpaceCommand) -> Result<ReadAnswer, Error> {
        request.read.check_limits()?;
        let answers = self.keys(std::slice::from_ref(command), usize::MAX, request.limits).await?;
        let answer = answers.into_iter().next().ok_or_else(|| Error::Unavailable("a read had no answer".into()))?;
        Ok(ReadAnswer::Keys(answer?))
    }

    /// Answers reads of keys on one state that meets a level, up to `bytes_max`.
    pub(crate) async fn read_all_keys(
        &self,
        commands: &[SpaceCommand],
        level: Level,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Vec<Result<KeysReply, Failure>>, Error> {
        // As for other reads: a loop of local ones would starve the other tasks.
        coop::consume_budget().await;
        self.reach(level, deadline).await?;
        self.keys(commands, bytes_max, Limits::NONE).await
    }

    async fn keys(
        &self,
        commands: &[SpaceCommand],
        bytes_max: usize,
        limits: Limits,
    ) -> Result<Vec<Result<KeysReply, Failure>>, Error> {
        // Soon after the founding of a cluster, or the upgrade of its last node, another attempt succeeds.
        let level = commands.iter().map(SpaceCommand::level).fold(KEYS_LEVEL, u32::max);
        self.check_level(level).map_err(|failure| Error::Unavailable(failure.message.into()))?;
        Ok(self.store.readers().keys(&self.env, commands, bytes_max, &limits.for_read()).await?)
    }

    /// Answers a read of locks.
    async fn read_locks(&self, request: &ReadRequest, command: &LocksCommand) -> Result<ReadAnswer, Error> {
        self.check_store_read(&request.read)?;
        let limits = request.limits.for_read();
        Ok(ReadAnswer::Locks(self.store.readers().locks(&self.env, command, &limits).await?))
    }

    /// Answers a query for events.
    async fn read_events(&self, request: &ReadRequest, query: &EventsQuery) -> Result<ReadAnswer, Error> {
        self.check_store_read(&request.read)?;
        let limits = request.limits.for_read();
        Ok(ReadAnswer::Events(self.store.readers().events(&self.env, query, &limits).await?))
    }

    /// Checks a read of another store than that of SQL.
    fn check_store_read(&self, read: &Read) -> Result<(), Error> {
        read.check_limits()?;
        // Soon after the founding of a cluster, or the upgrade of its last node, another attempt succeeds.
        self.check_level(read.level()).map_err(|failure| Error::Unavailable(failure.message.into()))
    }

    /// Takes a snapshot that meets a level, waiting for a free permit.
    pub(crate) async fn snapshot(&self, level: Level, deadline: Instant) -> Result<KeptSnapshot, Error> {
        // The level is awaited before a permit is taken, so that a caller that waits for its level does not block
        // others.
        self.reach(level, deadline).await?;
        let free = Arc::clone(&self.snapshots).try_acquire_owned();
        let permit = match free {
            Ok(permit) => permit,
            Err(_) => self.wait_for_permit(level, deadline).await?,
        };
        let snapshot = self.store.readers().snapshot(&self.env, SNAPSHOT_MAX).await?;
        let epoch = self.store.options().identity.epoch;
        let position = Position { epoch, group: GroupId::MAIN, index: snapshot.applied_index() };
        Ok(KeptSnapshot { snapshot, position, _permit: permit })
    }

    /// Waits for a permit. A state that was young enough may be too old when it is granted.
    async fn wait_for_permit(&self, level: Level, deadline: Instant) -> Result<OwnedSemaphorePermit, Error> {
        let permit = timeout_at(deadline, Arc::clone(&self.snapshots).acquire_owned()).await;
        let full = |_| Error::Overloaded(SNAPSHOTS_OPEN.into());
        // The semaphore is never closed.
        let permit = permit.map_err(full)?.map_err(|_| Error::Closed)?;
        if let Level::Bounded(_) = level {
            self.reach(level, deadline).await?;
        }
        Ok(permit)
    }

    /// Returns how long a query, or one piece of a stream, may run at most, whatever the caller asks for.
    pub(crate) fn query_timeout(&self) -> Duration {
        self.store.options().readers.transaction
    }

    /// Fails if this node was removed from its cluster: its data are outdated.
    pub(super) fn serves(&self) -> Result<(), Error> {
        self.consensus.removed().map_or(Ok(()), |why| Err(Error::Removed(why.into())))
    }

    /// Fails until this node has applied its own admission: before that its database may be empty, or that of a former
    /// id.
    pub(super) fn has_state(&self) -> Result<(), Error> {
        if self.consensus.has_joined() || Mutant::LearnerServes.is_on() {
            return Ok(());
        }
        Err(Error::Unavailable(NOT_JOINED.into()))
    }

    /// Waits until this node has applied what a level requires.
    pub(super) async fn reach(&self, level: Level, deadline: Instant) -> Result<(), Error> {
        self.serves()?;
        if self.fault.has_changed().unwrap_or(true)
            && let Some(fault @ (StoreFault::Diverged(_) | StoreFault::Damaged(_))) = self.store.fault()
        {
            return Err(Error::Unavailable(fault.into()));
        }
        let in_time = |_| Error::TimedOut(NO_MAJORITY.into());
        let position = match level {
            Level::Local => return self.has_state(),
            Level::AtLeast(position) => self.comparable(position)?,
            Level::Linearizable => {
                timeout_at(deadline, self.consensus.main().read_position()).await.map_err(in_time)??
            }
            Level::Bounded(age) => {
                timeout_at(deadline, self.consensus.main().read_position_within(age)).await.map_err(in_time)??
            }
        };
        let reached = self.store.wait_applied(position.index, deadline).await;
        reached.map_err(|timeout| Error::TimedOut(timeout.into()))
    }

    /// Returns the result of the verification at a position; waits for it until `deadline`.
    pub(crate) async fn verification(
        &self,
        position: Position,
        held: Right,
        deadline: Instant,
    ) -> Result<Option<Verification>, Error> {
        self.serves()?;
        let index = self.comparable(position)?.index;
        match self.store.latest_verification() {
            // The node tells a client what differs even if it serves nothing else because of that difference.
            Some((latest, done @ Verification::Done(_))) if latest == index && held != Right::Node => Ok(Some(done)),
            _ => {
                self.reach(Level::AtLeast(position), deadline).await?;
                Ok(self.store.verification(index, deadline).await)
            }
        }
    }

    /// Returns the position if it belongs to this history, so that it can be waited for.
    pub(super) fn comparable(&self, position: Position) -> Result<Position, Error> {
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

    /// Returns the state of this node and its cluster.
    pub(crate) fn status(&self) -> Status {
        let sizes = self.store.sizes();
        let bytes = sizes.database.saturating_add(sizes.wal_file);
        let (durable, fault) = (self.store.durable().index(), self.store.fault());
        let archive = self.archive.status();
        Status {
            archive,
            ..Status::new(self.consensus.status(), durable, bytes, fault.as_ref(), self.store.archiver())
        }
    }

    /// Returns the metrics of this node.
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
            main: self.consensus.main().metrics(),
            groups: self.consensus.others().map(|group| (group.id(), group.metrics())).collect(),
            archive: self.archive.metrics(),
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

    /// Returns the reasons why this node can't serve.
    pub(crate) fn not_ready(&self) -> Vec<NotReady> {
        self.reasons(&self.status())
    }

    fn reasons(&self, status: &Status) -> Vec<NotReady> {
        let patience = Patience { silence: self.consensus.silence_max(), archive_lag: self.archive_lag_max };
        let mut reasons = not_ready(status, patience);
        reasons.extend(self.store.fault().map(NotReady::Store));
        if self.consensus.is_log_full() {
            reasons.push(NotReady::LogFull);
        }
        if self.is_stopping.load(Ordering::Relaxed) {
            reasons.insert(0, NotReady::Stopping);
        }
        reasons
    }

    /// Returns the leader's address, if the leader is known and is another node.
    pub(crate) fn leader_elsewhere(&self) -> Option<String> {
        if self.consensus.main().is_leader() {
            None
        } else {
            self.consensus.main().leader().map(|(_, member)| member.addr)
        }
    }
}

/// Returns the deadline for a remote caller that would wait for `limit`.
pub(crate) fn served_until(limit: Duration) -> Instant {
    const SERVED_MAX: Duration = Duration::from_secs(600);
    Instant::now() + limit.min(SERVED_MAX)
}

impl From<ProposeError> for Attempt {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::Overloaded => Self::NotDone(NotDone::Overloaded(WRITES_WAIT.into())),
            ProposeError::NotLeader { .. } | ProposeError::Unreachable(_) | ProposeError::Stopped(_) => {
                Self::NotDone(NotDone::NoLeader(error.into()))
            }
            // Error kinds that later versions add leave the outcome in doubt too.
            _ => Self::InDoubt(error.into()),
        }
    }
}

impl From<ReadPositionError> for Error {
    fn from(error: ReadPositionError) -> Self {
        match error {
            ReadPositionError::Stopped => Self::Closed,
            ReadPositionError::Unavailable(ref why) => {
                let text = format!("no leader with a majority answered: {why} (reads at the level Local need none)");
                Self::Unavailable(Cause::context(text, error))
            }
            _ => Self::Unavailable(error.into()),
        }
    }
}
