//! A port that serves HTTP.
//!
//! Invariants:
//! - A new connection always gets a place; see [`serving::Port`].
//! - The number of connections, the size and number of headers, and the time for each step of a request are limited. A
//!   request that exceeds a limit loses its connection; other connections are not affected.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;
use hyper::Request;
use hyper::body::Incoming;
use quorate::{Sql, TlsConfig};
use quorate_env::Env;
use quorate_env::net::BoxStream;
use quorate_env::serving::{self, OpenError, Order, Place, PortOptions, Service};
use quorate_tls::{Keychain, TlsError, TlsNet};

use crate::message::Answer;
use crate::{Doors, Options};

mod address;
mod connection;
pub mod stream;
mod takeover;

pub use address::is_loopback;
pub(crate) use takeover::Takeover;

/// The most connections of a port. One more closes a connection of the address that has the most: the one that has been
/// idle longest.
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

const OPTIONS: PortOptions = PortOptions {
    thread: "quorate-http",
    connections_max: CONNECTIONS_MAX,
    stop_time_max: STOP_TIME_MAX,
    failed: |error| tracing::warn!(%error, "could not accept an HTTP connection"),
};

/// The answer to a client that does not speak TLS on a port that does.
const TLS_ONLY: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 38\r\n\
    connection: close\r\n\r\nThis port speaks TLS only: use https.\n";

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
    /// Other machines could reach the port, and it has no encryption.
    #[error(
        "{0} can be reached from other machines, and the port has no TLS: listen on 127.0.0.1, give it TLS, or set \
         `insecure`"
    )]
    Open(String),
    /// The certificate can't be used.
    #[error("can't serve HTTP over TLS: {0}")]
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

/// Answers the requests of a port. All connections share clones of it.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Whether a client that has closed its sending side still gets an answer. Otherwise its request is dropped.
    const HALF_CLOSE: bool;

    /// Answers a request from an address (`host:port`).
    fn answer(&self, request: Request<Incoming>, from: &str) -> impl Future<Output = Answer> + Send;

    /// Runs beside the connections, until the port is closed. It never returns.
    fn beside(self) -> impl Future<Output = ()> + Send {
        pending()
    }
}

/// An open port. Dropping it closes it at once, with all its connections.
#[derive(Debug)]
pub struct Port {
    port: serving::Port,
    is_secure: bool,
}

impl Port {
    /// Opens a port on `host:port`; port 0 means any free one. `handler` makes the handler from the address that was
    /// bound, or refuses to serve there. May be called from any executor. Clients are not asked for a certificate, and
    /// those that don't speak TLS on a port with TLS get an answer that says so.
    ///
    /// # Errors
    ///
    /// If the address is in use, or does not belong to this machine, or if the certificate can't be used.
    pub async fn open<H: Handler>(
        env: &Env,
        listen: &str,
        tls: Option<&TlsConfig>,
        handler: impl FnOnce(&str) -> Result<H, ServeError> + Send + 'static,
    ) -> Result<Self, ServeError> {
        let service = |addr: &str| handler(addr).map(Http);
        let opened = serving::Port::open(&secured(env, tls)?, listen, OPTIONS, service).await;
        let port = opened.map_err(|error| match error {
            OpenError::Listen(error) => ServeError::Listen { addr: listen.to_owned(), error },
            OpenError::Thread(error) => ServeError::Thread(error),
            OpenError::Refused(error) => error,
        })?;
        Ok(Self { port, is_secure: tls.is_some() })
    }

    /// Returns the address that the port listens on.
    pub fn local_addr(&self) -> &str {
        self.port.local_addr()
    }

    /// Returns its URL, such as `https://127.0.0.1:8001`.
    pub fn url(&self) -> String {
        url(self.is_secure, self.local_addr())
    }

    /// Closes the port cleanly: current requests are answered within [`STOP_TIME_MAX`].
    pub async fn stop(self) {
        self.port.stop().await;
    }
}

fn url(is_secure: bool, addr: &str) -> String {
    format!("{}://{addr}", if is_secure { "https" } else { "http" })
}

/// Opens a port for a database.
///
/// # Errors
///
/// Those of [`Port::open`], and [`ServeError::Open`] if other machines can reach the port and it has no TLS, unless the
/// options are insecure.
pub async fn serve(listen: &str, sql: Sql, options: Options) -> Result<Port, ServeError> {
    serve_in(&Env::real(), listen, sql, options).await
}

/// [`serve`] with another [`Env`], for simulations.
///
/// # Errors
///
/// Those of [`serve`].
pub async fn serve_in(env: &Env, listen: &str, sql: Sql, options: Options) -> Result<Port, ServeError> {
    let (env_of_doors, tls) = (env.clone(), options.tls.clone());
    let handler = move |addr: &str| {
        let is_secure = is_loopback(addr) || options.tls.is_some() || options.insecure;
        if !is_secure {
            return Err(ServeError::Open(addr.to_owned()));
        }
        Ok(Doors::at(&env_of_doors, &url(options.tls.is_some(), addr), sql, options))
    };
    Port::open(env, listen, tls.as_ref(), handler).await
}

impl Handler for Doors {
    const HALF_CLOSE: bool = false;

    fn answer(&self, request: Request<Incoming>, from: &str) -> impl Future<Output = Answer> + Send {
        self.serve(request, from)
    }

    async fn beside(self) {
        self.sweep().await;
    }
}

/// HTTP on the connections of a port.
#[derive(Clone)]
struct Http<H>(H);

impl<H: Handler> Service for Http<H> {
    async fn serve(&self, stream: BoxStream, order: Order, mut place: Place, from: &str) {
        let usage = place.usage();
        let serving = pin!(connection::serve(stream, order, &usage, &self.0, from));
        select(serving, pin!(place.lost())).await;
    }

    async fn beside(self) {
        self.0.beside().await;
    }
}

/// Returns `env` with TLS for its listeners, if there is a certificate.
fn secured(env: &Env, tls: Option<&TlsConfig>) -> Result<Env, ServeError> {
    let Some(tls) = tls else { return Ok(env.clone()) };
    let keychain = Keychain::open(env, tls.files()).map_err(ServeError::Tls)?;
    Ok(TlsNet::new(env, keychain).without_client_certificates().with_answer_to_plain(TLS_ONLY).env(env))
}
