//! The HTTP port.
//!
//! It has a thread of its own, so that it answers whatever the node and the application do. What has to be asked of the
//! disk is asked beside that thread: `/health` answers while a disk hangs.
//!
//! Invariants:
//! - A new connection always finds a place: where all are taken, whoever has most of them loses its oldest (`places`).
//! - Connections, the bytes and the number of headers, and the time for each step of a request are bounded. A request
//!   that breaks a bound loses its connection and nothing else.
//! - There is no TLS and no authentication: whoever can connect may read what is answered here.

use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate::{Node, Observer};
use quorate_env::net::Listener;
use quorate_env::{Env, sleep, timeout};
use tokio::sync::{oneshot, watch};

pub use crate::ask::ANSWER_TIME_MAX;
use crate::ask::Asks;
use places::Places;

mod answers;
mod connection;
mod places;
pub(crate) mod stream;

#[cfg(test)]
mod tests;

/// Connections at once. For one more the oldest of the address that has most of them is closed.
pub const CONNECTIONS_MAX: usize = 64;

/// Bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Headers of a request.
pub const HEADERS_MAX: usize = 64;

/// Time for the head of a request to arrive whole, and for an idle connection to send the next one.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// Time in which a write must make progress.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(10);

/// Time for a connection from its beginning; then it is closed after the answer to the request under way.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(600);

/// Questions to the node at once, of all connections: where its disk hangs, so many threads wait for it and no more.
pub const ASKS_MAX: usize = 4;

/// Time for requests under way when the server stops.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(2);

/// Pause after a connection could not be accepted: no file descriptor may be left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why the port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is not to be had.
    #[error("can't listen for HTTP on {addr}: {error}; it is what 'http.listen' says in the configuration")]
    Listen {
        /// The address.
        addr: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// The system refused a thread.
    #[error("can't start a thread: {0}")]
    Thread(std::io::Error),
}

impl ServeError {
    /// Whether the same call may succeed later without help.
    pub fn is_retryable(&self) -> bool {
        true
    }
}

/// What connections are told to do. They end at once when nobody can tell them any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Serve,
    Drain,
}

/// The node that is shown, once there is one.
#[derive(Debug, Default)]
struct Shown(RwLock<Option<Observer>>);

impl Shown {
    fn get(&self) -> Option<Observer> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An open HTTP port. Dropped, it closes at once, with all its connections.
#[derive(Debug)]
pub struct HttpServer {
    addr: String,
    shown: Arc<Shown>,
    orders: watch::Sender<Order>,
    /// The other end is only ever dropped, when the port's thread has ended.
    ended: oneshot::Receiver<()>,
}

/// Opens an HTTP port on `host:port`; port 0 means any free one. Until a node is [shown](HttpServer::show), it says
/// that the node is starting.
///
/// May be called from any executor.
///
/// # Errors
///
/// When the address is taken, or is none of this machine's.
pub async fn serve(listen: &str) -> Result<HttpServer, ServeError> {
    serve_in(&Env::real(), listen).await
}

/// [`serve`] in another world: for simulations.
///
/// # Errors
///
/// Those of [`serve`].
pub async fn serve_in(env: &Env, listen: &str) -> Result<HttpServer, ServeError> {
    let shown = Arc::new(Shown::default());
    let (orders, order) = watch::channel(Order::Serve);
    let (started, starting) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let (places, asks) = (Arc::new(Places::default()), Asks::new(env, ASKS_MAX));
    let door = Door { env: env.clone(), shown: Arc::clone(&shown), places, asks };
    let addr = listen.to_owned();
    let root = async move {
        match door.env.net().listen(&addr).await {
            Err(error) => drop(started.send(Err(ServeError::Listen { addr, error }))),
            Ok(listener) => {
                // If nobody waits for it any more, the order's sender is gone too.
                let _ = started.send(Ok(listener.local_addr()));
                door.run(listener, order).await;
            }
        }
        end
    };
    env.start_runtime("quorate-http", root).map_err(ServeError::Thread)?;
    let gone = || ServeError::Thread(std::io::Error::other("it went down at once"));
    let addr = starting.await.map_err(|_| gone())??;
    Ok(HttpServer { addr, shown, orders, ended })
}

impl HttpServer {
    /// The address that it listens on.
    pub fn local_addr(&self) -> &str {
        &self.addr
    }

    /// Shows a node from now on. The port does not keep it alive; once the node has ended, it says so.
    pub fn show(&self, node: &Node) {
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = Some(node.observer());
    }

    /// Closes the port in good order: requests that were begun are answered, within [`STOP_TIME_MAX`].
    pub async fn stop(self) {
        self.orders.send_replace(Order::Drain);
        // The sender is only ever dropped.
        let _ = self.ended.await;
    }
}

/// What every connection comes through.
#[derive(Clone)]
struct Door {
    env: Env,
    shown: Arc<Shown>,
    places: Arc<Places>,
    asks: Asks,
}

impl Door {
    /// Accepts until the order changes, then waits for the connections.
    async fn run(self, listener: Arc<dyn Listener>, order: watch::Receiver<Order>) {
        let mut changes = order.clone();
        let changed = pin!(changes.changed());
        let accepting = pin!(self.accept(&*listener, &order));
        let Either::Left((Ok(()), _)) = select(changed, accepting).await else { return };
        let _ = timeout(STOP_TIME_MAX, self.places.all_free()).await;
    }

    async fn accept(&self, listener: &dyn Listener, order: &watch::Receiver<Order>) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let (door, order, mut place) = (self.clone(), order.clone(), self.places.take(&from));
                    self.env.spawn(async move {
                        let serving = pin!(connection::serve(&door, stream, order));
                        select(serving, pin!(place.lost())).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "an HTTP connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}
