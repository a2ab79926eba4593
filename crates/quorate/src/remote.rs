//! The connection to a cluster that runs elsewhere.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quorate_env::Env;
use quorate_wire::{Role, Secret};
use tokio::sync::oneshot;

use crate::admin::Admin;
use crate::config::{ConfigError, DEADLINE_DEFAULT, SecretSource};
use crate::error::Error;
use crate::level::Level;
use crate::runtime::Runtime;
use crate::sql::Sql;
use crate::status::Status;
use crate::submitter::Submitter;

mod backup;
mod network;
pub(crate) mod nodes;
mod snapshot;
pub(crate) mod transaction;
mod verify;

pub use backup::{backup, backup_in};
use network::Network;
use nodes::Nodes;
pub use verify::{verify, verify_in};

/// How to reach a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientConfig {
    /// `host:port` of nodes: one that answers is enough to find all others.
    pub addrs: Vec<String>,
    /// What all nodes and clients of the cluster know.
    pub secret: SecretSource,
    /// Keeps to the first of `addrs`, for reads of what that very node has. Writes go through it to the leader.
    pub pinned: bool,
    /// Only reads: the nodes refuse writes.
    pub read_only: bool,
    /// How long a call tries before it fails, where it is not told otherwise.
    pub deadline: Duration,
}

impl ClientConfig {
    /// A client of the nodes at these addresses.
    pub fn new(addrs: impl IntoIterator<Item = impl Into<String>>, secret: SecretSource) -> Self {
        let addrs = addrs.into_iter().map(Into::into).collect();
        Self { addrs, secret, pinned: false, read_only: false, deadline: DEADLINE_DEFAULT }
    }

    /// A client of this one node.
    pub fn pinned(addr: impl Into<String>, secret: SecretSource) -> Self {
        Self { pinned: true, ..Self::new([addr], secret) }
    }

    /// Sets [`ClientConfig::pinned`](#structfield.pinned).
    #[must_use]
    pub fn with_pinned(self, pinned: bool) -> Self {
        Self { pinned, ..self }
    }

    /// Sets [`ClientConfig::read_only`].
    #[must_use]
    pub fn with_read_only(self, read_only: bool) -> Self {
        Self { read_only, ..self }
    }

    /// Sets [`ClientConfig::deadline`].
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The secret, if the rest can be used too. Blocks.
    pub(crate) fn resolve(&self, env: &Env) -> Result<Secret, ConfigError> {
        if self.addrs.is_empty() {
            return Err(ConfigError::Missing("addrs"));
        }
        if self.secret == SecretSource::Kept {
            return Err(ConfigError::Secret("a client has none of its own: name a file, or a variable".to_owned()));
        }
        self.secret.resolve(env, Path::new(""))
    }
}

/// A connection to a cluster that runs elsewhere, which finds the leader and follows it. It hands out the same handles
/// as a [`Node`](crate::Node). Cheap to clone; all clones and handles share the connections, which close with the last.
///
/// ```no_run
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// use quorate::{Client, ClientConfig, SecretSource};
///
/// let secret = SecretSource::File("secret".into());
/// let client = Client::connect(ClientConfig::new(["10.0.0.1:7001", "10.0.0.2:7001"], secret)).await?;
/// let count: i64 = client.sql().query_one("SELECT count(*) FROM users", ()).await?;
/// for member in client.admin().members().await?.members {
///     println!("{} at {}", member.name, member.addr);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    sql: Sql,
    admin: Admin,
    runtime: Runtime,
    nodes: Arc<Nodes>,
}

/// Why a client did not connect.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The configuration can't be used.
    #[error("the configuration: {0}")]
    Config(#[from] ConfigError),
    /// No node could be reached, or none lets this client in.
    #[error(transparent)]
    Cluster(#[from] Error),
    /// The system refused a thread.
    #[error("can't start a thread: {0}")]
    Thread(String),
}

impl ConnectError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config(error) => error.is_retryable(),
            Self::Cluster(error) => error.is_retryable(),
            Self::Thread(_) => true,
        }
    }
}

impl Client {
    /// Connects, once a node answers; tries until the configuration's deadline. May be called from any executor: the
    /// client has a thread of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Forbidden`] at once where the secret is wrong.
    pub async fn connect(config: ClientConfig) -> Result<Self, ConnectError> {
        Self::connect_in(Env::real(), config).await
    }

    /// [`Client::connect`] in another environment: for simulations.
    #[doc(hidden)]
    pub async fn connect_in(env: Env, config: ClientConfig) -> Result<Self, ConnectError> {
        let secret = config.resolve(&env)?;
        let (runtime, alive) = start_runtime(&env).await?;
        let role = if config.read_only { Role::ReadOnly } else { Role::ReadWrite };
        let nodes = Arc::new(Nodes::new(&env, &config, role, secret.clone()));
        let alive = Arc::new(alive);
        let network = Network::new(Arc::clone(&nodes), Arc::clone(&alive));
        let submitter = Submitter::new(runtime.clone(), Box::new(network));
        let sql = Sql::new(Arc::new(submitter), Level::Linearizable, config.deadline);
        let operators = Arc::new(Nodes::new(&env, &config, Role::Admin, secret));
        let admin = Admin::new(runtime.clone(), operators, config.deadline, Some(alive));
        let client = Self { sql, admin, runtime, nodes };
        client.status().await?;
        Ok(client)
    }

    /// The handle to the database. It reads [`Level::Linearizable`] unless told otherwise.
    pub fn sql(&self) -> Sql {
        self.sql.clone()
    }

    /// The handle of an operator. It connects when it is first used.
    pub fn admin(&self) -> Admin {
        self.admin.clone()
    }

    /// How the cluster stands, as the node sees it that this client talks to.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] where none answers until the deadline.
    pub async fn status(&self) -> Result<Status, Error> {
        let status = self.runtime.run(self.nodes.status(self.sql.deadline()));
        status.await.unwrap_or(Err(Error::Closed))
    }

    /// Ends the session and closes the connections, for all clones.
    pub async fn close(self) {
        self.sql.end_session().await;
        self.admin.close().await;
        // The message is lost if the runtime has ended, and with it the connections.
        let _ = self.runtime.run(self.nodes.close()).await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.nodes).finish()
    }
}

/// Starts a runtime that lives until the sender is dropped.
pub(crate) async fn start_runtime(env: &Env) -> Result<(Runtime, oneshot::Sender<()>), ConnectError> {
    let (started, starting) = oneshot::channel();
    let (alive, mut dropped) = oneshot::channel::<()>();
    let inside = env.clone();
    let root = async move {
        let (runtime, doors) = Runtime::here(&inside);
        // Nobody waits for it any more if this fails; then `dropped` says so at once.
        let _ = started.send(runtime);
        let _ = (&mut dropped).await;
        doors.close().await;
    };
    env.start_runtime("quorate-client", root).map_err(|error| ConnectError::Thread(error.to_string()))?;
    let runtime = starting.await.map_err(|_| ConnectError::Cluster(Error::Closed))?;
    Ok((runtime, alive))
}
