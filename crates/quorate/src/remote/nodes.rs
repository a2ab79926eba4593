//! The nodes of a cluster that a client knows, and the choice of the node that it calls.
//!
//! Invariants:
//! - If many calls fail at once, one of them searches for another node, and the others wait for its result.
//! - Once a node has answered, the client talks only to nodes of the same cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use quorate_env::{Cause, Env, Instant, lock, sleep, timeout};
use quorate_wire::{CONNECT_MAX, Client, ConnectError, Dialer, DialerConfig, Identity, Purpose, Role, Secret};

use super::ClientConfig;
use crate::error::Error;
use crate::protocol::{self, StatusReply, method};
use crate::status::Status;

/// The time limit for a status request.
const STATUS_MAX: Duration = Duration::from_secs(2);

/// The time limit for asking the other nodes who leads, while a call waits for its reply.
const DOUBT_MAX: Duration = Duration::from_millis(500);

/// The pause after no known node has answered.
const PAUSE: Duration = Duration::from_millis(50);

/// The most addresses that a client remembers, including the configured ones.
const ADDRS_MAX: usize = 64;

/// The known nodes; see the module.
pub(crate) struct Nodes {
    env: Env,
    secret: Secret,
    role: Role,
    identity: Identity,
    /// Whether calls always go to the node that answered first.
    pinned: bool,
    state: Mutex<State>,
    searching: tokio::sync::Mutex<()>,
    /// Held while the other nodes are asked who leads, so that only one of the waiting calls asks them.
    doubting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    dialers: BTreeMap<String, Dialer>,
    /// All known addresses, in the order in which they are tried.
    addrs: Vec<String>,
    /// The node that is called.
    target: Option<Arc<str>>,
    /// The node at which a call failed last.
    suspect: Option<Arc<str>>,
}

/// A node that is ready for calls.
pub(crate) struct Reached {
    pub(crate) client: Client,
    pub(crate) addr: Arc<str>,
}

impl Nodes {
    pub(crate) fn new(env: &Env, config: &ClientConfig, role: Role, secret: Secret) -> Self {
        let mut addrs = config.addrs.clone();
        if config.pinned {
            addrs.truncate(1);
        }
        Self {
            env: env.clone(),
            secret,
            role,
            identity: Identity::default(),
            pinned: config.pinned,
            state: Mutex::new(State { addrs, ..State::default() }),
            searching: tokio::sync::Mutex::default(),
            doubting: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Returns the same nodes, but calls always go to the first node that answers, leader or not.
    pub(super) fn staying(self) -> Self {
        Self { pinned: true, ..self }
    }

    /// Returns a connection to the node to call: the leader, as far as it is known.
    pub(crate) async fn reach(&self) -> Result<Reached, ConnectError> {
        if let Some(addr) = self.target() {
            return self.connect(addr).await;
        }
        let _searching = self.searching.lock().await;
        match self.target() {
            // Another call found it while this call waited.
            Some(addr) => self.connect(addr).await,
            None => self.search().await.map(|(reached, _)| reached),
        }
    }

    /// Returns the state of the cluster. Tries until a node answers, or an error is final.
    pub(crate) async fn status(&self, limit: Duration) -> Result<Status, Error> {
        let deadline = Instant::now() + limit;
        loop {
            let searching = self.searching.lock().await;
            let error = match self.search().await {
                Ok((_, status)) => return Ok(status),
                Err(error) => error,
            };
            drop(searching);
            if !error.is_retryable() || Instant::now() + PAUSE >= deadline {
                return Err(unreachable(error));
            }
            sleep(PAUSE).await;
        }
    }

    /// Records that a call to a node failed without a reply. From now on the other nodes are asked first: a leader that
    /// is cut off from them still believes that it leads, and would claim so indefinitely.
    pub(crate) fn failed(&self, addr: &Arc<str>) {
        self.put_last(addr);
        let mut state = self.state();
        state.suspect = Some(Arc::clone(addr));
        state.target.take_if(|target| target == addr);
    }

    /// Records that a node does not lead, and that it names another node as the leader.
    pub(crate) fn redirect(&self, leader: &str) {
        if self.pinned || leader.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.suspect.as_deref() != Some(leader) {
            state.target = Some(leader.into());
        }
    }

    /// Returns whether a node other than the one at `addr` leads; if so, that node is called from now on.
    ///
    /// Among the answers of the other nodes, that with the highest term is used: a leader that was cut off names
    /// itself, but in a lower term.
    pub(super) async fn leads_elsewhere(&self, addr: &Arc<str>) -> bool {
        if self.pinned {
            return false;
        }
        if self.target().is_some_and(|target| target != *addr) {
            return true;
        }
        let Ok(_doubting) = self.doubting.try_lock() else { return false };
        let others: Vec<String> = self.state().addrs.iter().filter(|other| ***other != **addr).cloned().collect();
        let requests = others.into_iter().map(|other| timeout(DOUBT_MAX, self.ask(other.into())));
        let statuses = join_all(requests).await.into_iter().filter_map(|reply| Some(reply.ok()?.ok()?.1));
        let newest = statuses.max_by_key(|status| status.term);
        let leader = newest.as_ref().and_then(Status::leader).filter(|leader| *leader.addr != **addr);
        if let Some(leader) = leader {
            self.failed(addr);
            self.redirect(&leader.addr);
        }
        leader.is_some()
    }

    /// Records that a node answered.
    pub(crate) fn answered(&self, addr: &Arc<str>) {
        self.state().suspect.take_if(|suspect| suspect == addr);
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        let state = std::mem::take(&mut *self.state());
        state.dialers.values().for_each(Dialer::hang_up);
    }

    /// Asks the known nodes for their status, one after another, until one answers. That node, or the leader that it
    /// names, is called from then on.
    async fn search(&self) -> Result<(Reached, Status), ConnectError> {
        let addrs = self.state().addrs.clone();
        // Before any node has answered, a wrong secret is a more useful error than an unreachable node. After that,
        // unreachable nodes may come back.
        let known = self.identity.cluster() != 0;
        let mut best_error: Option<ConnectError> = None;
        for addr in addrs {
            let addr: Arc<str> = addr.into();
            match self.ask(Arc::clone(&addr)).await {
                Ok((reached, status)) => return Ok((self.learn(reached, &status).await, status)),
                Err(error) => {
                    self.put_last(&addr);
                    best_error =
                        Some(best_error.filter(|known_error| known_error.is_retryable() == known).unwrap_or(error));
                }
            }
        }
        let nobody = || ConnectError::Unreachable { addr: String::new(), source: "no node is known".into() };
        Err(best_error.unwrap_or_else(nobody))
    }

    async fn ask(&self, addr: Arc<str>) -> Result<(Reached, Status), ConnectError> {
        let reached = self.connect(addr).await?;
        let unreachable = |source: Cause| ConnectError::Unreachable { addr: reached.addr.to_string(), source };
        let reply = reached.client.call(method::STATUS, Bytes::new(), Instant::now() + STATUS_MAX).await;
        let reply = reply.map_err(|error| unreachable(error.into()))?;
        let status: StatusReply = protocol::decode(reply).map_err(|error| unreachable(error.into()))?;
        Ok((reached, status.into()))
    }

    /// Remembers the members, and switches to the leader if it can be reached.
    async fn learn(&self, reached: Reached, status: &Status) -> Reached {
        self.identity.set(status.cluster.0, 0);
        if self.pinned {
            self.state().target = Some(Arc::clone(&reached.addr));
            return reached;
        }
        let leader: Option<Arc<str>> = status.leader().map(|leader| leader.addr.as_str().into());
        let suspect = {
            let mut state = self.state();
            for member in &status.members {
                if !state.addrs.contains(&member.addr) && state.addrs.len() < ADDRS_MAX {
                    state.addrs.push(member.addr.clone());
                }
            }
            state.suspect.clone()
        };
        // The node that answered may not know yet that the leader is gone. It finds the next leader sooner than the
        // client.
        let leader = leader.filter(|leader| Some(leader) != suspect.as_ref() && *leader != reached.addr);
        let reached = match leader {
            Some(leader) => self.connect(leader).await.unwrap_or(reached),
            None => reached,
        };
        self.state().target = Some(Arc::clone(&reached.addr));
        reached
    }

    async fn connect(&self, addr: Arc<str>) -> Result<Reached, ConnectError> {
        let client = self.dialer(&addr).client().await;
        if client.is_err() {
            self.failed(&addr);
        }
        Ok(Reached { client: client?, addr })
    }

    fn dialer(&self, addr: &str) -> Dialer {
        let mut state = self.state();
        if let Some(dialer) = state.dialers.get(addr) {
            return dialer.clone();
        }
        let config = DialerConfig {
            addr: addr.to_owned(),
            identity: self.identity.clone(),
            secret: self.secret.clone(),
            role: self.role,
            purpose: Purpose::Client,
            expected: None,
            connect_limit: CONNECT_MAX,
        };
        let dialer = Dialer::new(&self.env, config);
        state.dialers.insert(addr.to_owned(), dialer.clone());
        dialer
    }

    fn target(&self) -> Option<Arc<str>> {
        self.state().target.clone()
    }

    fn put_last(&self, addr: &str) {
        let mut state = self.state();
        if let Some(at) = state.addrs.iter().position(|known| known == addr) {
            let addr = state.addrs.remove(at);
            state.addrs.push(addr);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Converts the error of a call for which no node can be reached.
pub(crate) fn unreachable(error: ConnectError) -> Error {
    if error.is_retryable() { Error::Unavailable(error.into()) } else { Error::Forbidden(error.into()) }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Nodes").field("addrs", &state.addrs).field("target", &state.target).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SecretSource;

    #[test]
    fn a_node_that_did_not_reply_is_asked_last() {
        let config = ClientConfig::new(["a:1", "b:1", "c:1"], SecretSource::Kept);
        let nodes = Nodes::new(&Env::real(), &config, Role::ReadWrite, Secret::new("a secret for tests only").unwrap());
        nodes.redirect("a:1");
        nodes.failed(&"a:1".into());
        assert_eq!(nodes.target(), None);
        assert_eq!(nodes.state().addrs, ["b:1", "c:1", "a:1"]);
        // The client does not return to it when another node still considers it the leader.
        nodes.redirect("a:1");
        assert_eq!(nodes.target(), None);
    }
}
