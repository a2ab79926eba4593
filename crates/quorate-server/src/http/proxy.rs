//! The port of a proxy: SQL over HTTP for programs that can't reach the members of a cluster.
//!
//! It keeps nothing but the streams of its clients. The client library finds the leader, follows it, and reconnects.
//!
//! Invariant: `/health` says that the proxy runs, `/ready` that the cluster has answered it just now and has a leader.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, pending};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use quorate::{Client, TlsConfig};
use quorate_env::{Env, timeout};
use quorate_http::port::{Handler, Port};
use quorate_http::{Answer, Cluster, Doors, Options, ServeError, View};
use serde_json::json;
use tokio::sync::watch;

use super::answers;
use super::view::members_of;

/// The time within which the cluster must answer how it is.
pub const CLUSTER_TIME_MAX: Duration = Duration::from_secs(2);

/// The longest silence of a member that counts as reachable; it is only shown.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The port of a proxy. Dropping it closes it at once, with all its connections.
#[derive(Debug)]
pub struct Proxy {
    env: Env,
    port: Port,
    connected: watch::Sender<Option<Connected>>,
}

impl Proxy {
    /// Opens the port on `host:port`, over TLS if there is a certificate; see [`Port::open`]. Until it is
    /// [connected](Proxy::connect), it reports that it is not ready.
    ///
    /// # Errors
    ///
    /// Those of [`Port::open`], and [`ServeError::Open`] if other machines can reach the port and it has no TLS, unless
    /// `insecure` is set.
    pub async fn open(listen: &str, tls: Option<&TlsConfig>, insecure: bool) -> Result<Self, ServeError> {
        let env = Env::real();
        let (connected, seen) = watch::channel(None);
        let is_secure = tls.is_some() || insecure;
        let handler = move |addr: &str| {
            if is_secure || quorate_http::port::is_loopback(addr) {
                Ok(Pages(seen))
            } else {
                Err(ServeError::Open(addr.to_owned()))
            }
        };
        let port = Port::open(&env, listen, tls, handler).await?;
        Ok(Self { env, port, connected })
    }

    /// Returns the address that the port listens on.
    pub fn local_addr(&self) -> &str {
        self.port.local_addr()
    }

    /// Serves the cluster of a client, which must be an administrator there: it asks about the users of the doors.
    pub fn connect(&self, client: &Client, options: Options) {
        let cluster = Arc::new(ClusterView(client.clone()));
        let options = options.with_cluster(Arc::clone(&cluster) as Arc<dyn Cluster>).with_users(client.users());
        let options = options.with_backups(client.admin());
        let doors = Doors::at(&self.env, &self.port.url(), client.sql(), options);
        self.connected.send_replace(Some(Connected { doors, cluster }));
    }

    /// Closes the port cleanly; see [`Port::stop`].
    pub async fn stop(self) {
        self.port.stop().await;
    }
}

/// What a proxy serves once it is connected.
#[derive(Clone, Debug)]
struct Connected {
    doors: Doors,
    cluster: Arc<ClusterView>,
}

#[derive(Clone)]
struct Pages(watch::Receiver<Option<Connected>>);

impl Pages {
    async fn ready(&self) -> Answer {
        let connected = self.0.borrow().clone();
        let reasons = match connected {
            Some(connected) => connected.cluster.look().await.not_ready,
            None => vec![CONNECTING.to_owned()],
        };
        answers::ready(&reasons)
    }
}

/// Why a proxy can't serve yet.
const CONNECTING: &str = "the cluster has not answered the proxy yet";

impl Handler for Pages {
    const HALF_CLOSE: bool = false;

    async fn answer(&self, request: Request<Incoming>, from: &str) -> Answer {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/health" | "/ready" if !is_read => answers::only_reads(),
            "/health" => answers::healthy(),
            "/ready" => self.ready().await,
            _ => {
                let doors = self.0.borrow().as_ref().map(|connected| connected.doors.clone());
                match doors {
                    Some(doors) => doors.serve(request, from).await,
                    None => answers::json(
                        StatusCode::SERVICE_UNAVAILABLE,
                        &json!({ "message": CONNECTING, "code": "UNAVAILABLE", "error": CONNECTING }),
                    ),
                }
            }
        }
    }

    async fn beside(mut self) {
        let connected = self.0.wait_for(Option::is_some).await.ok().and_then(|connected| connected.clone());
        match connected {
            Some(connected) => connected.doors.sweep().await,
            None => pending().await,
        }
    }
}

/// The view of a client.
#[derive(Debug)]
struct ClusterView(Client);

impl ClusterView {
    async fn look(&self) -> View {
        let late = || format!("the cluster did not answer within {} s", CLUSTER_TIME_MAX.as_secs());
        let name = "proxy".to_owned();
        match timeout(CLUSTER_TIME_MAX, self.0.status()).await {
            Ok(Ok(status)) => {
                let leaderless = status.leader.is_none().then(|| "the cluster has no leader".to_owned());
                let members = members_of(&status, SILENCE_MAX);
                View { name, not_ready: leaderless.into_iter().collect(), members }
            }
            Ok(Err(error)) => View { name, not_ready: vec![error.to_string()], members: Vec::new() },
            Err(_) => View { name, not_ready: vec![late()], members: Vec::new() },
        }
    }
}

impl Cluster for ClusterView {
    fn view(&self) -> BoxFuture<'_, View> {
        self.look().boxed()
    }
}
