//! The HTTP port of a node: the pages for operators, and SQL over HTTP.
//!
//! Queries that access the disk run on other threads than the port, so `/health` answers while a disk hangs.
//!
//! Invariant: `/health` and `/ready` answer anyone; all else, once the cluster has users, answers those who log in.

use std::sync::{Arc, RwLock};

use hyper::Request;
use hyper::body::Incoming;
use quorate::users::{UserRole, Users};
use quorate::{Node, Observer, Sql, TlsConfig};
use quorate_backup::schedule::{Seen, State as Backups};
use quorate_env::{Env, unpoisoned};
use quorate_http::login;
use quorate_http::port::{Handler, Port};
use quorate_http::{Answer, Doors, Options};
use tokio::sync::watch;

pub use quorate_http::ServeError;
pub use quorate_http::port::{CONNECTIONS_MAX, STOP_TIME_MAX};

pub use crate::ask::ANSWER_TIME_MAX;
use crate::ask::Asks;
use crate::resp::{Counts, RespServer};
use answers::Page;
pub use controlled::{CONTROL_BODY_BYTES_MAX, Controlled, Refusal, control};
pub use proxy::{CLUSTER_TIME_MAX, Proxy};
use view::NodeView;
pub use watched::{Watched, watch};

mod answers;
mod controlled;
mod proxy;
mod view;
mod watched;

#[cfg(test)]
mod tests;

/// The maximum number of concurrent queries of the node, over all connections. While its disk hangs, at most this many
/// threads wait for it.
pub const ASKS_MAX: usize = 4;

/// The node that the port shows.
#[derive(Clone)]
struct Shown {
    observer: Observer,
    users: Users,
}

/// An open HTTP port. Dropping it closes it at once, with all its connections.
#[derive(Debug)]
pub struct HttpServer {
    env: Env,
    port: Port,
    shown: Arc<RwLock<Option<Shown>>>,
    backups: Arc<RwLock<Option<Arc<Backups>>>>,
    redis: Arc<RwLock<Option<Arc<Counts>>>>,
    /// SQL over HTTP, once it is open.
    doors: watch::Sender<Option<Doors>>,
}

/// Opens an HTTP port on `host:port`, over TLS if there is a certificate; see [`Port::open`]. Until a node is
/// [shown](HttpServer::show), the port reports that the node is starting.
///
/// # Errors
///
/// Those of [`Port::open`].
pub async fn serve(listen: &str, tls: Option<&TlsConfig>) -> Result<HttpServer, ServeError> {
    serve_in(&Env::real(), listen, tls).await
}

/// [`serve`] with another [`Env`], for simulations.
///
/// # Errors
///
/// Those of [`serve`].
pub async fn serve_in(env: &Env, listen: &str, tls: Option<&TlsConfig>) -> Result<HttpServer, ServeError> {
    let (doors, opened) = watch::channel(None);
    let (shown, backups, redis) = (Arc::default(), Arc::default(), Arc::default());
    let asks = Asks::new(env, ASKS_MAX);
    let (of_backups, of_redis) = (Arc::clone(&backups), Arc::clone(&redis));
    let pages = Pages { shown: Arc::clone(&shown), backups: of_backups, redis: of_redis, doors: opened, asks };
    let port = Port::open(env, listen, tls, |_| Ok(pages)).await?;
    Ok(HttpServer { env: env.clone(), port, shown, backups, redis, doors })
}

impl HttpServer {
    /// Returns the address that the port listens on.
    pub fn local_addr(&self) -> &str {
        self.port.local_addr()
    }

    /// Shows a node from now on. The port does not keep the node alive; once the node has ended, it reports that.
    pub fn show(&self, node: &Node) {
        *unpoisoned(self.shown.write()) = Some(Shown { observer: node.observer(), users: node.users() });
    }

    /// Shows the scheduled backups of the node from now on.
    pub fn show_backups(&self, backups: Arc<Backups>) {
        *unpoisoned(self.backups.write()) = Some(backups);
    }

    /// Shows the port for the clients of Redis from now on.
    pub fn show_redis(&self, redis: &RespServer) {
        *unpoisoned(self.redis.write()) = Some(redis.counts());
    }

    /// Serves SQL over HTTP from now on, beside the pages for operators (`docs/http.md`). Where both have a page, that
    /// for operators is shown. The doors show the cluster as `node` sees it, run statements on `sql`, and let in the
    /// users of the cluster.
    pub fn open_doors(&self, node: &Node, sql: Sql, options: Options) {
        let view = NodeView::new(node.observer(), Asks::new(&self.env, ASKS_MAX));
        let options = options.with_cluster(Arc::new(view)).with_users(node.users());
        let options = options.with_backups(node.admin());
        self.doors.send_replace(Some(Doors::at(&self.env, &self.port.url(), sql, options)));
    }

    /// Closes the port cleanly: current requests are answered within [`STOP_TIME_MAX`].
    pub async fn stop(self) {
        self.port.stop().await;
    }
}

/// The state that all connections of a port share.
#[derive(Clone)]
struct Pages {
    shown: Arc<RwLock<Option<Shown>>>,
    backups: Arc<RwLock<Option<Arc<Backups>>>>,
    redis: Arc<RwLock<Option<Arc<Counts>>>>,
    doors: watch::Receiver<Option<Doors>>,
    asks: Asks,
}

impl Pages {
    fn shown(&self) -> Option<Shown> {
        unpoisoned(self.shown.read()).clone()
    }

    /// Returns what is known of the scheduled backups, if there are some.
    fn backups(&self) -> Option<Seen> {
        unpoisoned(self.backups.read()).as_ref().map(|backups| backups.seen())
    }

    /// Returns what the port for the clients of Redis has counted, if there is one.
    fn redis(&self) -> Option<Arc<Counts>> {
        unpoisoned(self.redis.read()).clone()
    }

    /// Checks that a request may see a page that is not for everyone.
    async fn admit(&self, request: &Request<Incoming>, from: &str) -> Result<(), Answer> {
        // Without a node there is nothing to see.
        let Some(Shown { users, .. }) = self.shown() else { return Ok(()) };
        login::require(&users, request.headers(), from, UserRole::Read).await
    }
}

impl Handler for Pages {
    const HALF_CLOSE: bool = true;

    async fn answer(&self, request: Request<Incoming>, from: &str) -> Answer {
        let page = Page::of(&request);
        let doors = self.doors.borrow().clone().filter(|_| page == Page::Unknown);
        if let Some(doors) = doors {
            return doors.serve(request, from).await;
        }
        if page.is_for_users()
            && let Err(refusal) = self.admit(&request, from).await
        {
            return refusal;
        }
        // A body that nobody reads is dropped at once, so that the answer does not wait for it.
        drop(request);
        page.answer(self).await
    }

    /// Drops the streams that clients of SQL over HTTP have left.
    async fn beside(mut self) {
        let opened = self.doors.wait_for(Option::is_some).await.ok().and_then(|doors| doors.clone());
        match opened {
            Some(doors) => doors.sweep().await,
            None => std::future::pending().await,
        }
    }
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Shown").field(&self.observer).finish()
    }
}
