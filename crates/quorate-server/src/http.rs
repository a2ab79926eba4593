//! The HTTP port.
//!
//! It has a thread of its own, so that it answers regardless of what the node and the application do. Queries that
//! access the disk run on other threads, so `/health` answers while a disk hangs.
//!
//! Invariants:
//! - A new connection always gets a place. If all are taken, the address with the most loses its oldest (`places`).
//! - The number of connections, the size and number of headers, and the time for each step of a request are limited. A
//!   request that exceeds a limit loses its connection; other connections are not affected.
//! - There is no authentication: any client that can connect may read the answers, which TLS protects on the way. SQL
//!   over HTTP is served only where no other machine can connect.

use std::pin::pin;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures_util::future::{pending, select};
use quorate::{Node, Observer, Sql, TlsConfig};
use quorate_env::net::Listener;
use quorate_env::serving::{Order, Orders};
use quorate_env::{Env, timeout, unpoisoned};
use quorate_http::port::is_loopback;
use quorate_http::port::places::Places;
use quorate_http::{Doors, Options};
use quorate_tls::{Keychain, TlsError, TlsNet};
use tokio::sync::{oneshot, watch};

pub use crate::ask::ANSWER_TIME_MAX;
use crate::ask::Asks;
use view::NodeView;

mod answers;
mod connection;
mod view;

#[cfg(test)]
mod tests;

/// The maximum number of connections. One more closes the oldest connection of the address that has the most.
pub const CONNECTIONS_MAX: usize = 64;

/// The maximum size of a request's head, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// The maximum number of headers of a request.
pub const HEADERS_MAX: usize = 64;

/// The time within which the head of a request must arrive, and within which an idle connection must send the next one.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// The time within which a write must make progress.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(10);

/// The maximum age of a connection. It is then closed after the answer to the current request.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(600);

/// The maximum number of concurrent queries of the node, over all connections. While its disk hangs, at most this many
/// threads wait for it.
pub const ASKS_MAX: usize = 4;

/// The time in which a stopping server completes current requests.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(2);

/// The pause after a listener failed to accept a connection, for example because no file descriptor was left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The answer to a client that does not speak TLS on a port that does.
const TLS_ONLY: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 38\r\n\
    connection: close\r\n\r\nThis port speaks TLS only: use https.\n";

/// Why the port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address can't be used.
    #[error("can't listen for HTTP on {addr}: {error}; check 'http.listen' in the configuration")]
    Listen {
        /// The address.
        addr: String,
        /// The error of the operating system.
        #[source]
        error: std::io::Error,
    },
    /// SQL would be open to other machines.
    #[error(
        "SQL over HTTP has no users yet, and {0} can be reached from other machines: let \
         'http.listen' name an address of this machine only, or leave 'http.sql' off"
    )]
    Open(String),
    /// The certificate can't be used.
    #[error("can't serve HTTP over TLS: {0}; check 'tls' in the configuration")]
    Tls(#[source] TlsError),
    /// The operating system could not start a thread.
    #[error("can't start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl ServeError {
    /// Returns whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Open(_) | Self::Tls(_))
    }
}

/// The node that the port shows, once it is set.
#[derive(Debug, Default)]
struct Shown(RwLock<Option<Observer>>);

impl Shown {
    fn get(&self) -> Option<Observer> {
        unpoisoned(self.0.read()).clone()
    }
}

/// An open HTTP port. Dropping it closes it at once, with all its connections.
#[derive(Debug)]
pub struct HttpServer {
    env: Env,
    addr: String,
    shown: Arc<Shown>,
    /// SQL over HTTP, once it is open.
    doors: watch::Sender<Option<Doors>>,
    orders: Orders,
    /// Its sender sends nothing. It is dropped when the port's thread has ended.
    ended: oneshot::Receiver<()>,
}

/// Opens an HTTP port on `host:port`; port 0 means any free one. Until a node is [shown](HttpServer::show), the port
/// reports that the node is starting.
///
/// May be called from any executor.
///
/// # Errors
///
/// If the address is in use, or does not belong to this machine.
pub async fn serve(listen: &str) -> Result<HttpServer, ServeError> {
    serve_in(&Env::real(), listen).await
}

/// [`serve`] over TLS. Clients are not asked for a certificate. Those that don't speak TLS get an answer that says so.
///
/// # Errors
///
/// Those of [`serve`], and [`ServeError::Tls`] if the certificate can't be used.
pub async fn serve_tls(listen: &str, tls: &TlsConfig) -> Result<HttpServer, ServeError> {
    let env = Env::real();
    let keychain = Keychain::open(&env, tls.files()).map_err(ServeError::Tls)?;
    let net = TlsNet::new(&env, keychain).without_client_certificates().with_answer_to_plain(TLS_ONLY);
    serve_in(&net.env(&env), listen).await
}

/// [`serve`] with another [`Env`], for simulations.
///
/// # Errors
///
/// Those of [`serve`].
pub async fn serve_in(env: &Env, listen: &str) -> Result<HttpServer, ServeError> {
    let shown = Arc::new(Shown::default());
    let (orders, order) = Orders::new();
    let (started, starting) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let (places, asks) = (Arc::new(Places::new(CONNECTIONS_MAX)), Asks::new(env, ASKS_MAX));
    let (doors, opened) = watch::channel(None);
    let port = Port { env: env.clone(), shown: Arc::clone(&shown), doors: opened, places, asks };
    let addr = listen.to_owned();
    let root = async move {
        match port.env.net().listen(&addr).await {
            Err(error) => drop(started.send(Err(ServeError::Listen { addr, error }))),
            Ok(listener) => {
                // If the caller has stopped waiting, the orders are gone, too, which ends the port.
                let _ = started.send(Ok(listener.local_addr()));
                port.run(listener, order).await;
            }
        }
        end
    };
    env.start_runtime("quorate-http", root).map_err(ServeError::Thread)?;
    let gone = || ServeError::Thread(std::io::Error::other("the thread ended at once"));
    let addr = starting.await.map_err(|_| gone())??;
    Ok(HttpServer { env: env.clone(), addr, shown, doors, orders, ended })
}

impl HttpServer {
    /// Returns the address that the port listens on.
    pub fn local_addr(&self) -> &str {
        &self.addr
    }

    /// Shows a node from now on. The port does not keep the node alive; once the node has ended, it reports that.
    pub fn show(&self, node: &Node) {
        *unpoisoned(self.shown.0.write()) = Some(node.observer());
    }

    /// Serves SQL over HTTP from now on, beside the pages for operators (`docs/http.md`). Where both have a page, that
    /// for operators is shown. The doors show the cluster as `node` sees it, and run statements on `sql`.
    ///
    /// # Errors
    ///
    /// [`ServeError::Open`] if other machines can reach the port, unless `options` is insecure.
    pub fn open_doors(&self, node: &Node, sql: Sql, options: Options) -> Result<(), ServeError> {
        if !options.insecure && !is_loopback(&self.addr) {
            return Err(ServeError::Open(self.addr.clone()));
        }
        let view = NodeView::new(node.observer(), Asks::new(&self.env, ASKS_MAX));
        self.doors.send_replace(Some(Doors::new_in(&self.env, sql, options.with_cluster(Arc::new(view)))));
        Ok(())
    }

    /// Closes the port cleanly: current requests are answered within [`STOP_TIME_MAX`].
    pub async fn stop(self) {
        self.orders.drain();
        // Nothing is ever sent: this waits until the sender is dropped.
        let _ = self.ended.await;
    }
}

/// The state that all connections of a port share.
#[derive(Clone)]
struct Port {
    env: Env,
    shown: Arc<Shown>,
    doors: watch::Receiver<Option<Doors>>,
    places: Arc<Places>,
    asks: Asks,
}

impl Port {
    /// Accepts connections until the port is stopped, then waits until they have ended.
    async fn run(self, listener: Arc<dyn Listener>, mut order: Order) {
        let of_connections = order.clone();
        let start = |stream, from: String| {
            let (port, order, mut place) = (self.clone(), of_connections.clone(), self.places.take(&from));
            self.env.spawn(async move {
                let serving = pin!(connection::serve(&port, stream, order));
                select(serving, pin!(place.lost())).await;
            });
        };
        let failed = |error| tracing::warn!(%error, "could not accept an HTTP connection");
        // The sweep never ends by itself; it is dropped when the port stops to accept.
        let accepting = order.accept(&*listener, ACCEPT_PAUSE, start, failed);
        select(pin!(accepting), pin!(sweep(self.doors.clone()))).await;
        if order.is_to_drain() {
            let _ = order.until_dropped(timeout(STOP_TIME_MAX, self.places.all_free())).await;
        }
    }
}

/// Drops the streams that clients of SQL over HTTP have left, for ever.
async fn sweep(mut doors: watch::Receiver<Option<Doors>>) {
    let opened = doors.wait_for(Option::is_some).await.ok().and_then(|doors| doors.clone());
    match opened {
        Some(doors) => doors.sweep().await,
        None => pending().await,
    }
}
