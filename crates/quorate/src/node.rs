//! A running node.
//!
//! Everything of it lives in one task, the root of the node's own runtime: it claims the data directory, brings
//! consensus and the store up, waits to be told to end, and takes them down again. What applications hold are ways to
//! talk to it.

use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use quorate_consensus::{Consensus, ConsensusConfig, Ended, OpenStore};
use quorate_env::{Env, Instant, lock, sleep, timeout};
use quorate_sql::readers::ReaderOptions;
use quorate_sql::slow::SlowLog;
use quorate_sql::store::SqlStore;
use quorate_sql::usage::TempOptions;
use quorate_sql::{StoreIdentity, StoreOptions};
use quorate_wire::Role;
use tokio::sync::oneshot;

use crate::admin::Admin;
use crate::backup::{BackupError, BackupInfo, BackupOptions};
use crate::config::{Config, SecretSource};
use crate::error::{Error, StartError};
use crate::level::Level;
use crate::metrics::Metrics;
use crate::remote::ClientConfig;
use crate::remote::nodes::Nodes;
use crate::restore;
use crate::runtime::{Doors, Runtime};
use crate::sim::SimHooks;
use crate::sql::Sql;
use crate::status::Status;
use crate::submitter::Submitter;

mod agreement;
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
mod voters;

pub(crate) use claim::Claim;
use embedded::Embedded;
use gateway::Gateway;
pub use observer::{Observer, WriteTraces};
use service::Desk;

/// Where the log is in a data directory. The database is beside it, as its store lays it out.
pub(crate) const LOG_DIR: &str = "log";

/// A running node. Dropped, it ends at once, as if its process were killed: nothing acknowledged is lost, but the
/// others have to find a new leader by themselves. [`Node::stop`] is kinder.
pub struct Node {
    gateway: Arc<Gateway>,
    observer: Observer,
    runtime: Runtime,
    sql: Sql,
    admin: Admin,
    root: Root,
}

/// The way to the task that is the node.
struct Root {
    /// Asks it to stop in good order. Dropped, it tells the task to end at once.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    ended: oneshot::Receiver<()>,
}

/// What of a node is dropped last, when its tasks are gone: they may still hold its log and its store.
struct Last {
    _claim: Option<Claim>,
    // After the claim: whoever waits for it may then start the node again.
    _end: oneshot::Sender<()>,
}

/// What the task gives to who started it.
struct Started {
    gateway: Arc<Gateway>,
    runtime: Runtime,
    /// This node as an operator reaches it.
    operators: Nodes,
}

impl Node {
    /// Starts a node on this machine and returns once it serves. With several members in the configuration the first
    /// start waits until all of them are there.
    ///
    /// May be called from any executor: the node has a thread of its own. Dropping the future gives the start up.
    ///
    /// # Errors
    ///
    /// [`StartError`] says what to change.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_in(Env::real(), config).await
    }

    /// [`Node::start`] in another world: for simulations.
    ///
    /// # Errors
    ///
    /// Those of [`Node::start`].
    pub async fn start_in(env: Env, config: Config) -> Result<Self, StartError> {
        Self::start_with(env, config, SimHooks::default()).await
    }

    /// [`Node::start_in`] with parts that a simulation has changed.
    ///
    /// # Errors
    ///
    /// Those of [`Node::start`].
    pub async fn start_with(env: Env, config: Config, hooks: SimHooks) -> Result<Self, StartError> {
        config.check()?;
        let (started, starting) = oneshot::channel();
        let (stop, stopping) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let deadline = config.deadline;
        launch(&env, config, hooks, (started, stopping), end)?;
        let Started { gateway, runtime, operators } = starting.await.unwrap_or(Err(StartError::Died))?;
        let admin = Admin::new(runtime.clone(), Arc::new(operators), deadline, None);
        let observer = Observer::new(&gateway, runtime.clone());
        let client = Submitter::new(runtime.clone(), Box::new(Embedded(Arc::downgrade(&gateway))));
        let sql = Sql::new(Arc::new(client), Level::Local, deadline);
        Ok(Self { gateway, observer, runtime, sql, admin, root: Root { stop: Mutex::new(Some(stop)), ended } })
    }

    /// The handle to the database. It reads [`Level::Local`] unless told otherwise.
    pub fn sql(&self) -> Sql {
        self.sql.clone()
    }

    /// The handle of an operator, through this node.
    pub fn admin(&self) -> Admin {
        self.admin.clone()
    }

    /// How the node and its cluster stand, as the node sees it.
    pub fn status(&self) -> Status {
        self.gateway.status()
    }

    /// Keeps a copy of this node's database as the plain SQLite file `file`, while work goes on; see
    /// [`backup`](crate::backup()).
    ///
    /// # Errors
    ///
    /// After [`BackupError`] there is no file of that name, or the one that was there before.
    pub async fn backup(&self, file: impl AsRef<Path>, options: &BackupOptions) -> Result<BackupInfo, BackupError> {
        let deadline = self.sql.deadline();
        let backup = backup::keep(&self.gateway, file.as_ref(), options, deadline);
        self.runtime.run(backup).await.unwrap_or(Err(BackupError::Cluster(Error::Closed)))
    }

    /// What the node measures.
    pub fn metrics(&self) -> Metrics {
        self.gateway.metrics()
    }

    /// Looks at the node without keeping it alive.
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// The address that the node listens on.
    pub fn local_addr(&self) -> &str {
        self.gateway.consensus.local_addr()
    }

    /// Whether this node leads the cluster.
    pub fn is_leader(&self) -> bool {
        self.gateway.consensus.is_leader()
    }

    /// Waits until the node has ended by itself, and says why: its log or its database failed, and the process should
    /// say so too and start anew; or the node was removed from its cluster.
    pub async fn ended(&self) -> Ended {
        self.gateway.consensus.ended().await
    }

    /// Stops in good order: hands leadership over first, answers what is under way, closes the log and the database.
    /// The data directory can be opened again when this returns.
    ///
    /// Statements are interrupted. One whose present step does not end keeps this from returning: a program that must
    /// end by then waits with a limit of its own and ends its process, which loses nothing that was acknowledged.
    /// `quorate serve` does so after eight seconds.
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
        // The sender is only ever dropped.
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
/// No future reaches from here to callers: what they await they compile, and this is all of consensus.
fn launch(
    env: &Env,
    config: Config,
    hooks: SimHooks,
    (started, stopping): (oneshot::Sender<Result<Started, StartError>>, oneshot::Receiver<()>),
    end: oneshot::Sender<()>,
) -> Result<(), StartError> {
    let root = root(env.clone(), config, hooks, started, stopping);
    let thread = env.start_runtime("quorate", async move { Last { _claim: root.await, _end: end } });
    Ok(thread.map_err(quorate_consensus::StartError::Thread)?)
}

/// The node: from the claim on its directory to the end of all that uses it. Returns the claim.
async fn root(
    env: Env,
    config: Config,
    hooks: SimHooks,
    mut started: oneshot::Sender<Result<Started, StartError>>,
    stopping: oneshot::Receiver<()>,
) -> Option<Claim> {
    let opening = open_or_heal(&env, &config, hooks);
    let opened = match select(opening.boxed(), started.closed().boxed()).await {
        Either::Left((opened, _)) => opened,
        // Nobody waits for the node any more.
        Either::Right(_) => return None,
    };
    let (claim, started_node, doors) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // An error means that nobody waits for it.
            let _ = started.send(Err(error));
            return None;
        }
    };
    let gateway = Arc::clone(&started_node.gateway);
    let begun = Instant::now();
    let ready = env.spawn(tell_ready(Arc::downgrade(&gateway)));
    let orderly = started.send(Ok(started_node)).is_ok() && stopping.await.is_ok();
    ready.abort();
    if orderly {
        tracing::info!(event = "stopping", node = config.name, "{} was told to stop", config.name);
        gateway.consensus.stop().await;
    }
    // What reads must not keep the node from ending. A snapshot may outlive the node; what it reads must not.
    gateway.store.readers().close();
    doors.close().await;
    if orderly {
        gateway.store.close().await;
        tracing::info!(event = "stopped", node = config.name, served = ?begun.elapsed(), "{} has stopped", config.name);
    }
    Some(claim)
}

/// Says, once, that the node can serve.
async fn tell_ready(gateway: Weak<Gateway>) {
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

/// A running node's parts.
type Opened = (Claim, Started, Doors);

/// Opens the node. Where its data are damaged it comes back as a new member, if there are others to take it back.
async fn open_or_heal(env: &Env, config: &Config, hooks: SimHooks) -> Result<Opened, StartError> {
    let error = match open(env, config, hooks.clone()).await {
        Err(StartError::Consensus(error)) if config.members.len() > 1 => error,
        opened => return opened,
    };
    let is_log_cut = matches!(error, quorate_consensus::StartError::LogCut { .. });
    let is_database_damaged = is_damage(&error);
    if !is_log_cut && !is_database_damaged {
        return Err(error.into());
    }
    tracing::error!(%error, "this node comes back as a new member");
    // Waits for the end of those who used the directory.
    let (claim, inside) = Claim::take(env, &config.data_dir).await?;
    // The database first: the log may be the only one to know that it is damaged.
    if is_database_damaged {
        let aside = quorate_sql::generation::put_aside(&**inside.disk(), &config.data_dir, inside.unix_nanos());
        aside.map_err(|error| quorate_consensus::StartError::Store(Box::new(error)))?;
    }
    quorate_consensus::put_log_aside(&inside, &config.data_dir.join(LOG_DIR))?;
    drop((claim, inside));
    open(env, config, hooks).await
}

/// Whether a start failed because the database is damaged.
fn is_damage(error: &quorate_consensus::StartError) -> bool {
    match error {
        quorate_consensus::StartError::StoreCut { .. } => true,
        quorate_consensus::StartError::Store(error) => {
            error.downcast_ref::<quorate_sql::OpenError>().is_some_and(quorate_sql::OpenError::is_damage)
        }
        _ => false,
    }
}

async fn open(env: &Env, config: &Config, hooks: SimHooks) -> Result<Opened, StartError> {
    let (claim, env) = Claim::take(env, &config.data_dir).await?;
    restore::check_finished(env.disk().as_ref(), &config.data_dir)?;
    let secret = config.secret.resolve(&env, &config.data_dir)?;
    let desk = Desk::default();
    let (open_store, opened) = store_opener(&env, config, hooks.clone());
    let (log, service) = (config.data_dir.join(LOG_DIR), Arc::new(desk.clone()));
    let failed = |error| StartError::Disk { path: config.data_dir.display().to_string(), error };
    let had_store = quorate_sql::generation::was_here(env.disk().as_ref(), &config.data_dir).map_err(failed)?;
    let consensus = ConsensusConfig { had_store, ..hooks.consensus(config.consensus(secret.clone())) };
    let consensus = Consensus::start(&env, consensus, &log, open_store, service).await?;
    tracing::info!(
        event = "started", version = env!("CARGO_PKG_VERSION"), node = config.name, dir = %config.data_dir.display(),
        addr = consensus.local_addr(), "{} has started", config.name
    );
    let store = opened.get().cloned().ok_or(StartError::Died)?;
    let gateway = Arc::new(Gateway::new(env.clone(), config.data_dir.clone(), consensus, store));
    desk.open(&gateway);
    drop(env.spawn(agreement::watch(Arc::downgrade(&gateway))));
    if timeout(extensions::ENABLE_MAX, extensions::enable(Arc::downgrade(&gateway))).await.is_err() {
        tracing::warn!("not every voter has the functions and collations of this node: writes can't use them yet");
        drop(env.spawn(extensions::enable(Arc::downgrade(&gateway))));
    }
    let own = ClientConfig::pinned(gateway.consensus.local_addr(), SecretSource::Kept);
    let operators = Nodes::new(&env, &own, Role::Admin, secret);
    let (runtime, doors) = Runtime::here(&env);
    Ok((claim, Started { gateway, runtime, operators }, doors))
}

/// What opens the store once the cluster is known, and where it is then.
fn store_opener(env: &Env, config: &Config, hooks: SimHooks) -> (OpenStore, Arc<OnceLock<SqlStore>>) {
    let (env, dir, sql) = (env.clone(), config.data_dir.clone(), config.sql);
    let extensions = config.extensions.clone();
    let opened = Arc::new(OnceLock::new());
    let here = Arc::clone(&opened);
    let open = move |identity: quorate_consensus::StoreIdentity| {
        let identity = StoreIdentity { cluster: identity.cluster.0, epoch: identity.epoch, group: identity.group };
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
        // Opened once.
        let _ = here.set(store.clone());
        Ok(hooks.store(store))
    };
    (Box::new(open), opened)
}
