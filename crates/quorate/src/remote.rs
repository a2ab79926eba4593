//! The client of a cluster that runs elsewhere.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_env::{Cause, Env, lock};
use quorate_model::{GroupId, Topic, UserRole};
use quorate_wire::{Role, Secret};
use tokio::sync::{oneshot, watch};

use crate::admin::Admin;
use crate::config::{ClientTls, ConfigError, DEADLINE_DEFAULT, SecretSource};
use crate::error::{ConnectError, Error};
use crate::events::Events;
use crate::keys::Keys;
use crate::level::Level;
use crate::locks::Locks;
use crate::protocol::{self, users::Shown};
use crate::runtime::Runtime;
use crate::sql::Sql;
use crate::status::Status;
use crate::submitter::Submitter;
use crate::users::{Credentials, Users};

mod backup;
mod network;
pub(crate) mod nodes;
mod snapshot;
pub(crate) mod transaction;
mod verify;
mod waits;

pub(crate) use backup::fetch;
pub use backup::{backup, backup_in};
use network::Network;
use nodes::Nodes;
pub use verify::{verify, verify_in};
pub use waits::Waiter;
use waits::Waits;

/// The configuration of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The addresses (`host:port`) of nodes: one that answers is enough to find all others.
    pub addrs: Vec<String>,
    /// The secret that all nodes and clients of the cluster share. It is not used if `login` is set.
    pub secret: SecretSource,
    /// The user that the client logs in as, over TLS or on the machine of the node; `None` for a client that knows the
    /// secret of the cluster, and may do everything.
    pub login: Option<Credentials>,
    /// TLS for all connections; `None` for connections in the clear.
    pub tls: Option<ClientTls>,
    /// Whether the client uses only the first of `addrs`, for example to read what that node has applied. That node
    /// forwards writes to the leader.
    pub pinned: bool,
    /// Whether the client may only read; the nodes refuse its writes.
    pub read_only: bool,
    /// The time for which a call is retried before it fails, unless its handle sets another deadline.
    pub deadline: Duration,
}

impl ClientConfig {
    /// Returns a configuration for the nodes at these addresses.
    pub fn new(addrs: impl IntoIterator<Item = impl Into<String>>, secret: SecretSource) -> Self {
        let addrs = addrs.into_iter().map(Into::into).collect();
        Self { addrs, secret, login: None, tls: None, pinned: false, read_only: false, deadline: DEADLINE_DEFAULT }
    }

    /// Returns a configuration that uses only this node; see [`ClientConfig::pinned`](#structfield.pinned).
    pub fn pinned(addr: impl Into<String>, secret: SecretSource) -> Self {
        Self { pinned: true, ..Self::new([addr], secret) }
    }

    /// Sets [`ClientConfig::login`].
    #[must_use]
    pub fn with_login(self, login: Credentials) -> Self {
        Self { login: Some(login), ..self }
    }

    /// Sets [`ClientConfig::tls`].
    #[must_use]
    pub fn with_tls(self, tls: ClientTls) -> Self {
        Self { tls: Some(tls), ..self }
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

    /// Returns the role of connections that need a role: that of users if the client logs in as one.
    pub(crate) fn role(&self, needed: Role) -> Role {
        if self.login.is_some() { Role::User } else { needed }
    }

    /// Returns what the client proves itself by, and `env` with the network of the client, if the rest of the
    /// configuration is valid. Blocks.
    pub(crate) fn resolve(&self, env: &Env) -> Result<(Secret, Env), ConfigError> {
        if self.addrs.is_empty() {
            return Err(ConfigError::Missing("addrs"));
        }
        let secret = match &self.login {
            Some(login) => Secret::credentials(protocol::encode(&Shown::new(Some(login), ""))),
            None if self.secret == SecretSource::Kept => {
                let text = "a client has no secret of its own: name a file, or a variable, or log in as a user";
                return Err(ConfigError::Secret(text.into()));
            }
            None => self.secret.resolve(env, Path::new(""))?,
        };
        Ok((secret, self.tls.as_ref().map_or_else(|| Ok(env.clone()), |tls| tls.env(env))?))
    }
}

/// A client of a remote cluster. It finds the leader, follows changes of the leader, and provides the same handles as a
/// [`Node`](crate::Node). Cheap to clone. All clones, [`Sql`] and [`Admin`] handles share the connections, which close
/// when the last of them is dropped.
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
    waits: Arc<Waits>,
    alive: Arc<Alive>,
}

/// Keeps a client's runtime alive. The runtime ends when [`Alive::end`] is called or when this value is dropped.
pub(crate) struct Alive {
    end: Mutex<Option<oneshot::Sender<()>>>,
    /// No message is ever sent. The sender is dropped when no more calls can run.
    ended: watch::Receiver<()>,
}

impl Client {
    /// Connects to the cluster. Returns when a node has answered, and retries until the configuration's deadline. May
    /// be called from any executor, because the client has its own thread.
    ///
    /// # Errors
    ///
    /// Returns [`ConnectError::Config`] if the configuration is invalid. Returns [`ConnectError::Cluster`] with
    /// [`Error::Unavailable`] if no node answers before the deadline, and with [`Error::Forbidden`] at once if the
    /// secret is wrong.
    pub async fn connect(config: ClientConfig) -> Result<Self, ConnectError> {
        Self::connect_in(Env::real(), config).await
    }

    /// Runs [`Client::connect`] in another environment, for simulations.
    #[doc(hidden)]
    pub async fn connect_in(env: Env, config: ClientConfig) -> Result<Self, ConnectError> {
        let (secret, env) = config.resolve(&env)?;
        let (runtime, alive) = start_runtime(&env).await?;
        let (role, admin_role) =
            if config.read_only { (Role::ReadOnly, Role::ReadOnly) } else { (Role::ReadWrite, Role::Admin) };
        let (role, admin_role) = (config.role(role), config.role(admin_role));
        let nodes = Arc::new(Nodes::new(&env, &config, role, secret.clone()));
        let alive = Arc::new(alive);
        let waits = Arc::new(Waits::new(runtime.clone(), Arc::clone(&nodes)));
        let network = Network::new(Arc::clone(&nodes), Arc::clone(&alive), Arc::clone(&waits));
        let submitter = Submitter::new(runtime.clone(), Box::new(network));
        let sql = Sql::new(Arc::new(submitter), Level::Linearizable, config.deadline);
        // A user may be allowed to do more than this client wants to. Without one, the nodes know what it wants.
        let sql = if config.read_only && config.login.is_some() { sql.with_role(UserRole::Read) } else { sql };
        let operators = Arc::new(Nodes::new(&env, &config, admin_role, secret));
        let operator = Network::new(Arc::clone(&operators), Arc::clone(&alive), Arc::clone(&waits));
        let changes = Arc::new(Submitter::new(runtime.clone(), Box::new(operator)));
        let admin = Admin::new(changes, operators, config.deadline, Some(Arc::clone(&alive)));
        let client = Self { sql, admin, runtime, nodes, waits, alive };
        client.status().await?;
        Ok(client)
    }

    /// Returns the handle to the database. It reads at [`Level::Linearizable`] unless a call sets another level.
    pub fn sql(&self) -> Sql {
        self.sql.clone()
    }

    /// Returns the handle to the keys. It reads at [`Level::Linearizable`] unless a call sets another level.
    pub fn keys(&self) -> Keys {
        self.sql.keys()
    }

    /// Returns the handle to the locks. It reads at [`Level::Linearizable`] unless a call sets another level.
    pub fn locks(&self) -> Locks {
        self.sql.locks()
    }

    /// Returns the handle to the events. It reads at [`Level::Linearizable`] unless a call sets another level.
    pub fn events(&self) -> Events {
        self.sql.events()
    }

    /// Returns the handle for operators. It connects when it is first used.
    pub fn admin(&self) -> Admin {
        self.admin.clone()
    }

    /// Returns the check of users' credentials, for doors that this program opens. The client must be an administrator.
    pub fn users(&self) -> Users {
        Users::new(self.admin.clone())
    }

    /// Returns the state of the cluster, as seen by the node that answers.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unavailable`] if no node answers before the deadline.
    pub async fn status(&self) -> Result<Status, Error> {
        let status = self.runtime.run(self.nodes.status(self.sql.deadline()));
        status.await.unwrap_or(Err(Error::Closed))
    }

    /// Ends the session and closes the connections, for all clones. Later calls of their handles fail at once with
    /// [`Error::Closed`].
    pub async fn close(self) {
        self.sql.end_session().await;
        self.admin.close().await;
        // If the runtime has ended, the connections have ended too.
        let _ = self.runtime.run(self.nodes.close()).await;
        self.alive.end().await;
    }
}

/// Registers a waiter for a topic of a group on the node that the client calls; see `Waits::register`.
pub async fn register_waiter(client: &Client, group: GroupId, topic: Topic) -> Result<Waiter, Error> {
    client.waits.register(group, topic).await
}

impl Alive {
    /// Ends the runtime. When this returns, no more calls can run in it.
    async fn end(&self) {
        lock(&self.end).take();
        let mut ended = self.ended.clone();
        // Nothing is ever sent: this waits until the sender is dropped.
        while ended.changed().await.is_ok() {}
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.nodes).finish()
    }
}

/// Starts a thread with a runtime for the calls of a client.
pub(crate) async fn start_runtime(env: &Env) -> Result<(Runtime, Alive), ConnectError> {
    let (started, starting) = oneshot::channel();
    let (end, mut dropped) = oneshot::channel::<()>();
    let (running, ended) = watch::channel(());
    let inside = env.clone();
    let root = async move {
        let (runtime, owner) = Runtime::here(&inside);
        // This fails if the caller no longer waits; the sender of `dropped` is then gone too.
        let _ = started.send(runtime);
        let _ = (&mut dropped).await;
        owner.close().await;
        drop(running);
    };
    env.start_runtime("quorate-client", root).map_err(|error| ConnectError::Thread(Cause::from(error)))?;
    let runtime = starting.await.map_err(|_| ConnectError::Cluster(Error::Closed))?;
    Ok((runtime, Alive { end: Mutex::new(Some(end)), ended }))
}
