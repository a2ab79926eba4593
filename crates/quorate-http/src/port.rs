//! A port that serves the doors, on a thread of its own.
//!
//! Invariants:
//! - A new connection always gets a place. If all are taken, the address with the most loses its oldest (`places`).
//! - The number of connections, the size and number of headers, and the time for each step of a request are limited.
//! - Without `insecure`, the port listens only where other machines can't reach it.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use quorate::Sql;
use quorate_env::net::Listener;
use quorate_env::serving::{Order, Orders};
use quorate_env::{Env, timeout};
use tokio::sync::oneshot;

use crate::{Doors, Options};
use connection::Limits;
use places::Places;

pub mod connection;
pub mod places;
pub mod stream;

/// The most connections of a port. One more closes the oldest connection of the address that has the most.
pub const CONNECTIONS_MAX: usize = 1_024;

/// The most bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// The most headers of a request.
pub const HEADERS_MAX: usize = 64;

/// The time within which the head of a request must arrive, and within which an idle connection must send the next one.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(60);

/// The time within which a write must make progress.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(10);

/// The maximum age of a connection. It is then closed after the answer to the current request.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(3_600);

/// The time in which a stopping server completes current requests.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(2);

/// The pause after a listener failed to accept a connection, for example because no file descriptor was left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const LIMITS: Limits = Limits {
    head_bytes: HEAD_BYTES_MAX,
    headers: HEADERS_MAX,
    head_time: HEAD_TIME_MAX,
    write_stall: WRITE_STALL_MAX,
    age: CONNECTION_TIME_MAX,
    stop: STOP_TIME_MAX,
    half_close: false,
};

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address can't be used.
    #[error("can't listen for HTTP on {addr}: {error}")]
    Listen {
        /// The address.
        addr: String,
        /// The error of the operating system.
        #[source]
        error: std::io::Error,
    },
    /// Other machines could reach the port, and it has neither encryption nor users.
    #[error(
        "{0} can be reached from other machines, and the port has neither encryption nor users: listen on 127.0.0.1, \
         or set `insecure`"
    )]
    Open(String),
    /// The operating system could not start a thread.
    #[error("can't start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl ServeError {
    /// Returns whether the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Open(_))
    }
}

/// An open port. Dropping it closes it at once, with all its connections.
#[derive(Debug)]
pub struct HttpServer {
    addr: String,
    orders: Orders,
    /// Its sender sends nothing. It is dropped when the port's thread has ended.
    ended: oneshot::Receiver<()>,
}

/// Opens a port on `host:port` for a database; port 0 means any free one. May be called from any executor.
///
/// # Errors
///
/// If the address is in use, or does not belong to this machine, or can be reached from others.
pub async fn serve(listen: &str, sql: Sql, options: Options) -> Result<HttpServer, ServeError> {
    serve_in(&Env::real(), listen, sql, options).await
}

/// [`serve`] with another [`Env`], for simulations.
///
/// # Errors
///
/// Those of [`serve`].
pub async fn serve_in(env: &Env, listen: &str, sql: Sql, options: Options) -> Result<HttpServer, ServeError> {
    let (orders, order) = Orders::new();
    let (started, starting) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let is_insecure = options.insecure;
    let (addr, env_of_port) = (listen.to_owned(), env.clone());
    let root = async move {
        match open(&env_of_port, addr, is_insecure).await {
            Err(error) => drop(started.send(Err(error))),
            Ok(listener) => {
                let doors = Doors::new_in(&env_of_port, sql, options);
                // If the caller has stopped waiting, the orders are gone, too, which ends the port.
                let _ = started.send(Ok(listener.local_addr()));
                run(&env_of_port, doors, listener, order).await;
            }
        }
        end
    };
    env.start_runtime("quorate-doors", root).map_err(ServeError::Thread)?;
    let gone = || ServeError::Thread(std::io::Error::other("the thread ended at once"));
    let addr = starting.await.map_err(|_| gone())??;
    Ok(HttpServer { addr, orders, ended })
}

async fn open(env: &Env, addr: String, is_insecure: bool) -> Result<Arc<dyn Listener>, ServeError> {
    let listener = match env.net().listen(&addr).await {
        Ok(listener) => listener,
        Err(error) => return Err(ServeError::Listen { addr, error }),
    };
    let bound = listener.local_addr();
    if is_insecure || is_loopback(&bound) { Ok(listener) } else { Err(ServeError::Open(bound)) }
}

/// Returns whether only this machine can reach an address.
pub fn is_loopback(addr: &str) -> bool {
    addr.parse::<SocketAddr>().is_ok_and(|addr| addr.ip().is_loopback())
}

impl HttpServer {
    /// Returns the address that the port listens on.
    pub fn local_addr(&self) -> &str {
        &self.addr
    }

    /// Closes the port cleanly: current requests are answered within [`STOP_TIME_MAX`].
    pub async fn stop(self) {
        self.orders.drain();
        // Nothing is ever sent: this waits until the sender is dropped.
        let _ = self.ended.await;
    }
}

/// Accepts connections until the port is stopped, then waits until they have ended.
async fn run(env: &Env, doors: Doors, listener: Arc<dyn Listener>, mut order: Order) {
    let (of_connections, places) = (order.clone(), Arc::new(Places::new(CONNECTIONS_MAX)));
    let start = |stream, from: String| {
        let (doors, order, mut place) = (doors.clone(), of_connections.clone(), places.take(&from));
        env.spawn(async move {
            let answer = |request| doors.serve(request);
            let serving = pin!(connection::serve(stream, order, &LIMITS, answer));
            select(serving, pin!(place.lost())).await;
        });
    };
    let failed = |error| tracing::warn!(%error, "could not accept an HTTP connection");
    // The sweep never ends by itself; it is dropped when the port stops to accept.
    let accepting = order.accept(&*listener, ACCEPT_PAUSE, start, failed);
    select(pin!(accepting), pin!(doors.sweep())).await;
    if order.is_to_drain() {
        let _ = order.until_dropped(timeout(STOP_TIME_MAX, places.all_free())).await;
    }
}
