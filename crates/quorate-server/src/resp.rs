//! The port of a node for the clients of Redis (`docs/keys.md`).
//!
//! `quorate-resp` speaks the protocol; what it asks of a server is answered here, by the handle of a node: `store` does
//! the jobs of a connection, `channels` has the events for those that subscribe, `facts` has what INFO and its like
//! tell, `notices` has the notifications of the key space, `clients` knows the connections.
//!
//! # Invariants
//!
//! - The node runs each command, so a reply reports a write as done only if a majority has it.
//! - A read sees every write that this node has acknowledged to any client of its handles before.
//! - Each job is checked against the users of the cluster as they are then.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use quorate::users::{Credentials, Denied, Identity, UserRole, Users};
use quorate::{Node, Observer, Sql, TlsConfig};
use quorate_env::net::BoxStream;
use quorate_env::serving::{OpenError, Order, Place, Port, PortOptions, Service};
use quorate_env::{Env, lock, sleep};
use quorate_http::port::is_loopback;
use quorate_resp::{Common, Connection, Cursors, Door, Host, Notifications, Role, Summary};
use quorate_tls::{Keychain, TlsError, TlsNet};
use tokio::io::AsyncWriteExt as _;

use crate::ask::Asks;
use channels::{Channels, Pump};
use clients::{Client, Clients};
use facts::Facts;
pub(crate) use metrics::Counts;
use notices::Notices;
use store::{ClientStore, denied_text};

mod channels;
mod clients;
mod facts;
mod metrics;
mod notices;
mod store;

pub use channels::EVENTS_WAITING_MAX;
pub use store::STATES_MAX;

/// The most connections of a port. One more closes a connection of the address that has the most: the one that has been
/// idle longest. The port sends its client the reason first.
pub const CONNECTIONS_MAX: usize = 4_096;

/// The time in which a stopping server completes current requests.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(2);

/// How often the facts are renewed that INFO tells.
const FACTS_EVERY: Duration = Duration::from_secs(1);

/// What a client gets that does not speak TLS on a port that does.
const TLS_ONLY: &[u8] = b"-ERR this port speaks TLS only: connect with TLS (redis-cli --tls, or rediss://)\r\n";

/// What a client gets that loses its connection to another one.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

const OPTIONS: PortOptions = PortOptions {
    thread: "quorate-resp",
    connections_max: CONNECTIONS_MAX,
    stop_time_max: STOP_TIME_MAX,
    failed: |error| tracing::warn!(%error, "could not accept a connection of a Redis client"),
};

/// Why the port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RespError {
    /// The address can't be used.
    #[error("can't listen for the clients of Redis on {addr}: {error}")]
    Listen {
        /// The address.
        addr: String,
        /// The error of the operating system.
        #[source]
        error: std::io::Error,
    },
    /// The certificate can't be used.
    #[error("can't serve the clients of Redis over TLS: {0}")]
    Tls(#[source] TlsError),
    /// The operating system could not start a thread.
    #[error("can't start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl RespError {
    /// Returns whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }
}

/// An open port. Dropping it closes it at once, with all its connections.
#[derive(Debug)]
pub struct RespServer {
    port: Port,
    counts: Arc<Counts>,
}

/// Opens a port on `host:port` for the clients of Redis, over TLS if there is a certificate. It serves the keys of the
/// node, and lets in the users of the cluster. While there are none, it lets in everyone on an address that only this
/// machine can reach, or if `insecure` is set, and else nobody. Until a client sets others, it
/// publishes these notifications of the key space. The port does not keep the node alive.
///
/// # Errors
///
/// If the address is in use, or does not belong to this machine, or if the certificate can't be used.
pub async fn serve(
    listen: &str,
    tls: Option<&TlsConfig>,
    insecure: bool,
    notifications: Notifications,
    node: &Node,
) -> Result<RespServer, RespError> {
    let env = Env::real();
    let counts = Arc::new(Counts::default());
    let common = Arc::<Common>::default();
    let notices = Arc::new(Notices::new(node.watch_keys(), notifications));
    let (channels, pump) = Channels::new(node.events(), &notices, &common, &counts);
    let shared = Shared {
        env: env.clone(),
        observer: node.observer(),
        sql: node.sql().with_own_writes(),
        channels,
        notices,
        pump: Mutex::new(Some(pump)),
        users: node.users(),
        is_open: insecure,
        cursors: Arc::new(Cursors::new(env.rng().next_u64())),
        facts: Facts::new(node.observer()),
        clients: Clients::default(),
        common,
        counts: Arc::clone(&counts),
    };
    let service = move |addr: &str| {
        let is_open = shared.is_open || is_loopback(addr);
        Ok::<_, Infallible>(Clientele(Arc::new(Shared { is_open, ..shared })))
    };
    let opened = Port::open(&secured(&env, tls)?, listen, OPTIONS, service).await;
    let port = opened.map_err(|error| match error {
        OpenError::Listen(error) => RespError::Listen { addr: listen.to_owned(), error },
        OpenError::Thread(error) => RespError::Thread(error),
        OpenError::Refused(never) => match never {},
    })?;
    Ok(RespServer { port, counts })
}

impl RespServer {
    /// Returns the address that the port listens on.
    pub fn local_addr(&self) -> &str {
        self.port.local_addr()
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Closes the port cleanly: current requests are answered within [`STOP_TIME_MAX`].
    pub async fn stop(self) {
        self.port.stop().await;
    }
}

/// Returns `env` with TLS for its listeners, if there is a certificate.
fn secured(env: &Env, tls: Option<&TlsConfig>) -> Result<Env, RespError> {
    let Some(tls) = tls else { return Ok(env.clone()) };
    let keychain = Keychain::open(env, tls.files()).map_err(RespError::Tls)?;
    Ok(TlsNet::new(env, keychain).without_client_certificates().with_answer_to_plain(TLS_ONLY).env(env))
}

/// What all connections of a port share.
#[derive(Debug)]
struct Shared {
    env: Env,
    observer: Observer,
    sql: Sql,
    channels: Channels,
    notices: Arc<Notices>,
    /// Taken once the port runs it.
    pump: Mutex<Option<Pump>>,
    users: Users,
    /// Whether everyone is let in while the cluster has no users.
    is_open: bool,
    cursors: Arc<Cursors>,
    facts: Facts,
    clients: Clients,
    common: Arc<Common>,
    counts: Arc<Counts>,
}

impl Shared {
    /// Returns the time of the cluster in nanoseconds since 1970, by which keys expire; once the node has ended, that
    /// of its clock.
    fn now(&self) -> u64 {
        let since_1970 = self.observer.cluster_time().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        since_1970.and_then(|time| u64::try_from(time.as_nanos()).ok()).unwrap_or_else(|| self.env.unix_nanos())
    }

    /// Returns who shows this, or nothing, at an address.
    async fn identify(&self, shown: Option<&Credentials>, from: &str) -> Result<Identity, Denied> {
        let identity = self.users.check(shown, from).await?;
        if identity.name().is_some() || self.is_open { Ok(identity) } else { Err(Denied::NoUsers) }
    }
}

#[derive(Clone, Debug)]
struct Clientele(Arc<Shared>);

impl Service for Clientele {
    async fn serve(&self, mut stream: BoxStream, mut order: Order, mut place: Place, from: &str) {
        let Self(shared) = self;
        let client = shared.clients.add();
        shared.counts.connections.inc();
        let _open = shared.counts.count_open();
        let connection = Connection::new(client.number(), from.to_owned(), shared.now(), Arc::clone(&shared.common));
        client.note(connection.summary());
        let mut door = Door::new(connection);
        let usage = place.usage();
        let store = ClientStore::new(Arc::clone(shared), from.to_owned(), usage.clone());
        let host = ClientHost { shared, from, client: &client, store: &store };
        // Its sender is dropped at once if the port is dropped, which drops this future too.
        let stopped = async move {
            order.until_stopped(pending::<()>()).await;
        };
        let is_turned_away = {
            let serving = pin!(quorate_resp::serve(&mut stream, &mut door, &store, &host, stopped));
            // The error is that of the client's connection; there is nobody to tell.
            let is_lost = matches!(select(serving, pin!(place.lost())).await, Either::Right(_));
            is_lost && !usage.is_at_work()
        };
        if is_turned_away {
            turn_away(stream);
        }
    }

    async fn beside(self) {
        let Self(shared) = self;
        let asks = Asks::new(&shared.env, 1);
        let facts = async {
            loop {
                shared.facts.renew(&asks).await;
                sleep(FACTS_EVERY).await;
            }
        };
        let pump = lock(&shared.pump).take();
        tokio::join!(facts, pump.map_or_else(|| pending().boxed(), |pump| pump.run().boxed()));
    }
}

/// Closes an idle connection whose place another one needs. Sends the reason first, if the socket takes it at once. A
/// connection that works does not come here: its client would take the reason for the reply to a request that may have
/// been done.
fn turn_away(mut stream: BoxStream) {
    let telling = async {
        stream.write_all(TOO_MANY).await?;
        stream.shutdown().await
    };
    let _ = telling.now_or_never();
}

/// What a connection asks of its server.
#[derive(Debug)]
struct ClientHost<'a> {
    shared: &'a Shared,
    from: &'a str,
    client: &'a Client<'a>,
    store: &'a ClientStore,
}

impl Host for ClientHost<'_> {
    fn anonymous(&self) -> Result<Role, String> {
        // A node answers this at once.
        let identity = self.shared.identify(None, self.from).now_or_never().unwrap_or(Err(Denied::Closed));
        identity.map(|identity| role(identity.role())).map_err(|denied| denied_text(&denied))
    }

    fn renewed(&self, _: Role) -> Result<Role, String> {
        let identity = self.store.renewed().unwrap_or(Err(Denied::Missing));
        identity.map(|identity| role(identity.role())).map_err(|denied| denied_text(&denied))
    }

    fn info(&self, sections: &[String]) -> String {
        let Shared { facts, counts, env, .. } = self.shared;
        facts.info(sections, counts, env)
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        facts::parameters(self.shared.notices.get())
    }

    fn notify(&self, notifications: Notifications) {
        self.shared.notices.set(notifications);
    }

    fn clients(&self, but: u64) -> Vec<Summary> {
        self.shared.clients.others(but)
    }

    fn note(&self, connection: Summary) {
        self.client.note(connection);
    }

    fn may_write(&self, sql: &str) -> bool {
        quorate_http::may_write(sql)
    }

    fn is_level(&self, level: &str) -> bool {
        quorate_http::level(level).is_some()
    }

    fn replicas(&self) -> u64 {
        self.shared.facts.replicas()
    }
}

/// Returns what a user with this role may do with keys.
fn role(role: UserRole) -> Role {
    if role >= UserRole::Write { Role::Write } else { Role::Read }
}
