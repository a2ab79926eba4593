//! A running node.
//!
//! The whole node lives in one task, the root of the node's own runtime. The task claims the data directory, starts
//! consensus and the store, waits for the request to stop, and closes them. Applications use handles that communicate
//! with this task.

use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use quorate_consensus::{Consensus, ConsensusConfig, Ended, Group, OpenStore};
use quorate_env::{Env, Instant, lock, sleep, timeout};
use quorate_model::{Appointment, Command, ControlCommand, ControlReply, GroupId, Proposal, StoreIdentity, codec};
use quorate_sql::StoreOptions;
use quorate_sql::readers::ReaderOptions;
use quorate_sql::slow::SlowLog;
use quorate_sql::store::SqlStore;
use quorate_sql::usage::TempOptions;
use quorate_wire::Role;
use tokio::sync::oneshot;

use crate::admin::Admin;
use crate::backup::{BackupError, BackupInfo, BackupOptions};
use crate::config::{Config, SecretSource, over};
use crate::error::{Error, StartError};
use crate::events::Events;
use crate::hooks::SimHooks;
use crate::keys::{KeyWatch, Keys};
use crate::level::Level;
use crate::locks::Locks;
use crate::metrics::Metrics;
use crate::remote::ClientConfig;
use crate::remote::nodes::Nodes;
use crate::restore;
use crate::runtime::{Runtime, RuntimeOwner};
use crate::sql::Sql;
use crate::status::Status;
use crate::submitter::Submitter;
use crate::users::Users;

mod agreement;
mod archived;
mod archiver;
mod archiving;
mod backup;
mod claim;
mod embedded;
mod extensions;
mod gateway;
mod observer;
mod operate;
mod service;
mod snapshots;
mod transaction;
mod users;
mod voters;
mod waits;

use archiving::Archiving;
pub(crate) use claim::Claim;
use embedded::Embedded;
pub(crate) use gateway::Gateway;
pub use observer::{Observer, WriteTraces};
use service::ClientService;

/// The directory of the log in a data directory. The database is next to it, in the layout of the store.
pub(crate) const LOG_DIR: &str = "log";

/// A running node. Dropping it ends the node at once, as if its process were killed: no acknowledged write is lost, but
/// the other nodes have to detect the loss and elect a new leader. Prefer [`Node::stop`].
pub struct Node {
    gateway: Arc<Gateway>,
    observer: Observer,
    runtime: Runtime,
    sql: Sql,
    admin: Admin,
    root: Root,
}

/// The connection to the node's task.
struct Root {
    /// Sending a message makes the task stop cleanly; dropping the sender ends the task at once.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    ended: oneshot::Receiver<()>,
}

/// The parts that are dropped last, after the node's tasks, which may still hold its log and its store.
struct EndGuard {
    _claim: Option<Claim>,
    // Declared after the claim, so dropped after it: a caller that waits for the end may then start the node again.
    _end: oneshot::Sender<()>,
}

/// What the task returns to the caller that started it.
struct Started {
    gateway: Arc<Gateway>,
    runtime: Runtime,
    /// The connection to this node for operators.
    operators: Nodes,
}

impl Node {
    /// Starts a node in this process. Returns when the node accepts requests. If the configuration has several members,
    /// the first start waits until all of them are running.
    ///
    /// May be called from any executor, because the node has its own thread. Dropping the future cancels the start.
    ///
    /// # Errors
    ///
    /// Returns a [`StartError`] if the configuration is invalid, if the data directory is in use or can't be used, or
    /// if the node can't join its cluster. Its text says what to change.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_in(Env::real(), config).await
    }

    /// Runs [`Node::start`] in another environment, for simulations.
    #[doc(hidden)]
    pub async fn start_in(env: Env, config: Config) -> Result<Self, StartError> {
        Self::start_with(env, config, SimHooks::default()).await
    }

    /// Runs [`Node::start_in`] with parts that a simulation has replaced.
    #[doc(hidden)]
    pub async fn start_with(env: Env, config: Config, hooks: SimHooks) -> Result<Self, StartError> {
        config.check()?;
        let (started, starting) = oneshot::channel();
        let (stop, stopping) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let deadline = config.deadline;
        launch(&env, config, hooks, (started, stopping), end)?;
        let Started { gateway, runtime, operators } = starting.await.unwrap_or(Err(StartError::Died))?;
        let observer = Observer::new(&gateway, runtime.clone());
        let client = Arc::new(Submitter::new(runtime.clone(), Box::new(Embedded(Arc::downgrade(&gateway)))));
        let admin = Admin::new(Arc::clone(&client), Arc::new(operators), deadline, None);
        let sql = Sql::new(client, Level::Local, deadline);
        Ok(Self { gateway, observer, runtime, sql, admin, root: Root { stop: Mutex::new(Some(stop)), ended } })
    }

    /// Returns the handle to the database. It reads at [`Level::Local`] unless a call sets another level.
    pub fn sql(&self) -> Sql {
        self.sql.clone()
    }

    /// Returns the handle to the keys. It reads at [`Level::Local`] unless a call sets another level.
    pub fn keys(&self) -> Keys {
        self.sql.keys()
    }

    /// Returns a watch, which gets the changes of keys that this node applies, once it [wants](KeyWatch::want) some: by
    /// whatever node, client or door they were made. It is for what may be missed, such as notifications: no change
    /// before an image that the node has installed comes, and none that finds no room.
    pub fn watch_keys(&self) -> KeyWatch {
        self.gateway.store.changes().watch()
    }

    /// Returns the handle to the locks. It reads at [`Level::Local`] unless a call sets another level.
    pub fn locks(&self) -> Locks {
        self.sql.locks()
    }

    /// Returns the handle to the events. It reads at [`Level::Local`] unless a call sets another level.
    pub fn events(&self) -> Events {
        self.sql.events()
    }

    /// Returns the handle for operators, through this node.
    pub fn admin(&self) -> Admin {
        self.admin.clone()
    }

    /// Returns the check of users' credentials against what this node has applied.
    pub fn users(&self) -> Users {
        Users::new(users::OfNode(Arc::downgrade(&self.gateway), self.runtime.clone()))
    }

    /// Returns the state of the node and its cluster, as the node sees it.
    pub fn status(&self) -> Status {
        self.gateway.status()
    }

    /// Returns the time of the cluster, as this node knows it: that of the last entry that it has applied, plus what
    /// has passed since. Reads judge by it what has expired, so it says how long a key has left. It does not depend on
    /// the clock of the node.
    pub fn cluster_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.gateway.store.cluster_time())
    }

    /// Writes a copy of this node's database to `file`, as a plain SQLite file, while the node continues to work; see
    /// [`backup`](crate::backup()).
    ///
    /// # Errors
    ///
    /// Returns a [`BackupError`] if the backup can't be made or written. After an error, a file of that name does not
    /// exist or is unchanged.
    pub async fn backup(&self, file: impl AsRef<Path>, options: &BackupOptions) -> Result<BackupInfo, BackupError> {
        let deadline = self.sql.deadline();
        let backup = backup::keep(&self.gateway, file.as_ref(), options, deadline);
        self.runtime.run(backup).await.unwrap_or(Err(BackupError::Cluster(Error::Closed)))
    }

    /// Returns the node's metrics.
    pub fn metrics(&self) -> Metrics {
        self.gateway.metrics()
    }

    /// Returns an observer, which does not keep the node alive.
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// Returns the address on which the node listens.
    pub fn local_addr(&self) -> &str {
        self.gateway.consensus.local_addr()
    }

    /// Returns whether this node leads the cluster.
    pub fn is_leader(&self) -> bool {
        self.gateway.consensus.main().is_leader()
    }

    /// Waits until the node ends by itself, and returns the reason: its log or its database failed, or the node was
    /// removed from its cluster. After a failure, the process should report it and start again.
    pub async fn ended(&self) -> Ended {
        self.gateway.consensus.ended().await
    }

    /// Stops the node cleanly: hands over leadership, answers pending calls, and closes the log and the database. When
    /// this returns, the data directory can be opened again.
    ///
    /// Running statements are interrupted. If the current step of a statement does not end, this method does not
    /// return. A program that must not wait should use a timeout and then end its process, which loses no acknowledged
    /// write. `quorate serve` does this after eight seconds.
    pub async fn stop(self) {
        let Self { gateway, observer: _, runtime, sql, admin, root } = self;
        gateway.is_stopping.store(true, Ordering::Relaxed);
        sql.end_session().await;
        admin.close().await;
        drop((gateway, runtime, sql, admin));
        let stop = lock(&root.stop).take();
        if let Some(stop) = stop {
            let _ = stop.send(());
        }
        // The channel carries no message: the sender is only dropped.
        let _ = root.ended.await;
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("addr", &self.local_addr()).finish_non_exhaustive()
    }
}

/// Starts the thread of a node.
///
/// The node's future is not returned to callers, because a crate compiles every future that it awaits, and this future
/// contains all of consensus.
fn launch(
    env: &Env,
    config: Config,
    hooks: SimHooks,
    (started, stopping): (oneshot::Sender<Result<Started, StartError>>, oneshot::Receiver<()>),
    end: oneshot::Sender<()>,
) -> Result<(), StartError> {
    let root = root(env.clone(), config, hooks, started, stopping);
    let thread = env.start_runtime("quorate", async move { EndGuard { _claim: root.await, _end: end } });
    Ok(thread.map_err(quorate_consensus::StartError::Thread)?)
}

/// Runs the node, from the claim on its directory until all its users have ended. Returns the claim.
async fn root(
    env: Env,
    config: Config,
    hooks: SimHooks,
    mut started: oneshot::Sender<Result<Started, StartError>>,
    stopping: oneshot::Receiver<()>,
) -> Option<Claim> {
    let archive = config.archive.clone();
    let opening = open_or_heal(&env, &config, hooks);
    let opened = match select(opening.boxed(), started.closed().boxed()).await {
        Either::Left((opened, _)) => opened,
        // The caller no longer waits for the node.
        Either::Right(_) => return None,
    };
    let (claim, started_node, owner) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // Sending fails only if the caller no longer waits.
            let _ = started.send(Err(error));
            return None;
        }
    };
    let gateway = Arc::clone(&started_node.gateway);
    let begun = Instant::now();
    let ready = env.spawn(log_ready(Arc::downgrade(&gateway)));
    let archiving = archive.map(|archive| Archiving::start(&gateway.env, &gateway, archive)).transpose();
    let archiving = archiving.unwrap_or_else(|error| {
        tracing::error!(%error, "the archiver can't be started: this node does not archive");
        None
    });
    let orderly = started.send(Ok(started_node)).is_ok() && stopping.await.is_ok();
    ready.abort();
    if let Some(archiving) = archiving {
        archiving.stop().await;
    }
    if orderly {
        tracing::info!(event = "stopping", node = config.name, "{} is stopping", config.name);
        gateway.consensus.stop().await;
    }
    // Readers must not keep the node from ending. A snapshot may outlive the node, but what it reads must not.
    gateway.store.readers().close();
    owner.close().await;
    if orderly {
        gateway.store.close().await;
        tracing::info!(event = "stopped", node = config.name, served = ?begun.elapsed(), "{} has stopped", config.name);
    }
    Some(claim)
}

/// Proposes a tick, which needs format level 2, as the leader does when something is due.
pub async fn tick(node: &Node) -> Result<(), Error> {
    let tick = Command::from(ControlCommand::Tick);
    node.gateway.check(&tick)?;
    let proposal = codec::encode_proposal(&Proposal::new(None, vec![tick]))?;
    let proposed = node.gateway.consensus.main().propose(proposal).await;
    let (_, outcome) = proposed.map_err(|error| Error::Unavailable(error.into()))?;
    outcome?;
    Ok(())
}

/// Proposes an appointment of the archiver, which needs format level 4, as the leader does. Returns what came of it.
pub async fn appoint(node: &Node, appointment: Appointment) -> Result<ControlReply, Error> {
    archiver::propose(&node.gateway, appointment).await
}

/// Returns a group of the node beside `main`, which [`SimHooks::groups`](crate::sim::SimHooks) has added.
pub fn group(node: &Node, id: GroupId) -> Option<Group> {
    node.gateway.consensus.group(id).cloned()
}

/// Logs, once, that the node can serve.
async fn log_ready(gateway: Weak<Gateway>) {
    loop {
        let Some(gateway) = gateway.upgrade() else { return };
        if gateway.not_ready().is_empty() {
            let name = gateway.status().name;
            return tracing::info!(event = "ready", node = name, "{name} is ready");
        }
        let pause = gateway.consensus.timing().election_min;
        drop(gateway);
        sleep(pause).await;
    }
}

/// The parts of a running node.
type Opened = (Claim, Started, RuntimeOwner);

/// Opens the node. If the cluster is new, it restores the first state before, if there is one.
async fn open_restored(env: &Env, config: &Config, hooks: SimHooks) -> Result<Opened, StartError> {
    match (open(env, config, hooks.clone()).await, &config.first_state) {
        (Err(StartError::Consensus(quorate_consensus::StartError::Unborn)), Some(first)) => {
            restore::at_birth(env, config, first).await?;
            open(env, config, hooks).await
        }
        (opened, _) => opened,
    }
}

/// Opens the node. If its data are damaged and there are other members, it rejoins as a new member.
async fn open_or_heal(env: &Env, config: &Config, hooks: SimHooks) -> Result<Opened, StartError> {
    let error = match open_restored(env, config, hooks.clone()).await {
        Err(StartError::Consensus(error)) if config.members.len() > 1 => error,
        opened => return opened,
    };
    let is_log_cut = matches!(error, quorate_consensus::StartError::LogCut { .. });
    let is_database_damaged = is_damage(&error);
    if !is_log_cut && !is_database_damaged {
        return Err(error.into());
    }
    tracing::error!(%error, "this node comes back as a new member");
    // Waits until the previous users of the directory have ended.
    let (claim, inside) = Claim::take(env, &config.data_dir).await?;
    // The database is put aside first: possibly only the log shows that it is damaged.
    if is_database_damaged {
        let aside = quorate_sql::generation::put_aside(&**inside.disk(), &config.data_dir, inside.unix_nanos());
        aside
            .map_err(|error| quorate_consensus::StartError::Store { group: GroupId::MAIN, source: Box::new(error) })?;
    }
    quorate_consensus::put_log_aside(&inside, &config.data_dir.join(LOG_DIR))?;
    drop((claim, inside));
    open_restored(env, config, hooks).await
}

/// Returns whether a start failed because the database of `main` is damaged.
fn is_damage(error: &quorate_consensus::StartError) -> bool {
    match error {
        quorate_consensus::StartError::StoreCut { group: GroupId::MAIN, .. } => true,
        quorate_consensus::StartError::Store { group: GroupId::MAIN, source } => {
            source.downcast_ref::<quorate_sql::OpenError>().is_some_and(quorate_sql::OpenError::is_damage)
        }
        _ => false,
    }
}

async fn open(env: &Env, config: &Config, hooks: SimHooks) -> Result<Opened, StartError> {
    let (claim, env) = Claim::take(env, &config.data_dir).await?;
    restore::prepare_start(env.disk().as_ref(), &config.data_dir, config.first_state.is_some())?;
    let secret = config.secret.resolve(&env, &config.data_dir)?;
    let tls = config.tls_net(&env)?;
    let env = over(tls.clone(), &env);
    let service = ClientService::default();
    let (open_store, opened) = store_opener(&env, config, hooks.clone());
    let (log, handler) = (config.data_dir.join(LOG_DIR), Arc::new(service.clone()));
    let failed = |error| StartError::Disk { path: config.data_dir.display().to_string(), error };
    let had_store = quorate_sql::generation::was_here(env.disk().as_ref(), &config.data_dir).map_err(failed)?;
    let consensus = ConsensusConfig { had_store, ..hooks.consensus(config.consensus(secret.clone())) };
    let waits = hooks.waits();
    let stores = hooks.stores(&waits).into_iter().chain([(GroupId::MAIN, open_store)]).collect();
    let consensus = Consensus::start(&env, consensus, &log, stores, handler).await?;
    tracing::info!(
        event = "started", version = env!("CARGO_PKG_VERSION"), node = config.name, dir = %config.data_dir.display(),
        addr = consensus.local_addr(), "{} has started", config.name
    );
    let store = opened.get().cloned().ok_or(StartError::Died)?;
    let gateway = Arc::new(Gateway::new(env.clone(), config, consensus, store, waits));
    service.open(&gateway);
    drop(env.spawn(agreement::watch(Arc::downgrade(&gateway))));
    drop(env.spawn(archiver::appoint(Arc::downgrade(&gateway))));
    if let Some(token) = config.admin_token {
        drop(env.spawn(users::add_first(Arc::downgrade(&gateway), token)));
    }
    if timeout(extensions::ENABLE_MAX, extensions::enable(Arc::downgrade(&gateway))).await.is_err() {
        tracing::warn!("not every voter has the functions and collations of this node: writes can't use them yet");
        drop(env.spawn(extensions::enable(Arc::downgrade(&gateway))));
    }
    let own = gateway.consensus.local_addr();
    let outside = over(tls.map(|net| net.with_own_addr(own)), &env);
    let operators = Nodes::new(&outside, &ClientConfig::new([own], SecretSource::Kept), Role::Admin, secret);
    let (runtime, owner) = Runtime::here(&env);
    Ok((claim, Started { gateway, runtime, operators }, owner))
}

/// Returns the function that opens the store once the cluster is known, and the place where the opened store is put.
fn store_opener(env: &Env, config: &Config, hooks: SimHooks) -> (OpenStore, Arc<OnceLock<SqlStore>>) {
    let (env, dir, sql) = (env.clone(), config.data_dir.clone(), config.sql);
    let extensions = config.extensions.clone();
    let opened = Arc::new(OnceLock::new());
    let here = Arc::clone(&opened);
    let open = move |identity: StoreIdentity| {
        let readers = ReaderOptions {
            readers: sql.readers,
            cache_bytes: sql.reader_cache_bytes,
            transaction: sql.query_timeout,
            ..ReaderOptions::default()
        };
        let options = StoreOptions {
            page_size: sql.page_size,
            writer_cache_bytes: sql.writer_cache_bytes,
            readers,
            temp: TempOptions { per_query: sql.temp_bytes_per_query, all: sql.temp_bytes },
            extensions: extensions.clone(),
            slow: SlowLog::new(sql.slow_statement),
            ..StoreOptions::new(identity)
        };
        let store = SqlStore::open(&env, &dir, hooks.options(options))?;
        // The function is called once.
        let _ = here.set(store.clone());
        Ok(hooks.store(store))
    };
    (Box::new(open), opened)
}
