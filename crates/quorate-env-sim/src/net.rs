//! A network in memory, with delays, cuts and failing nodes.
//!
//! Addresses are `node:port`, where `node` is the name of a node of the world. [`SimNet`] is the whole network, for
//! injecting faults; each life of a node uses it through a [`NodeNet`].
//!
//! Streams behave like TCP streams. Their bytes are never lost, duplicated or reordered: bytes that a cut holds back
//! arrive after it ends, or the stream breaks. A cut is directed. If only the way back is cut, bytes still arrive until
//! the sender's buffer is full of unacknowledged bytes. When a process dies, its streams end or break after a delay.
//! When the power of its machine fails, its peers may also receive nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_env::net::{BoxStream, Listener, Net};
use quorate_env::{Instant, Rng, lock, sleep};
use tokio::sync::Notify;

use crate::trace::Trace;

mod connection;
mod listener;
mod stream;

use connection::{Connection, Side};
use listener::{Port, SimListener};
use stream::SimStream;

/// The first of the ports that the network chooses.
const FIRST_FREE_PORT: u64 = 20_000;

/// The delay of bytes in flight, in whole milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// The usual maximum delay.
    pub usual_max: Duration,
    /// The probability of a longer delay, from 0 to 1.
    pub slow: f64,
    /// The maximum of a longer delay.
    pub slow_max: Duration,
}

impl Default for Latency {
    fn default() -> Self {
        Self { usual_max: Duration::from_millis(2), slow: 0.01, slow_max: Duration::from_millis(30) }
    }
}

/// How a life of a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The process dies, and the machine closes its sockets.
    Process,
    /// The machine loses power.
    Power,
}

/// The network of a world. Clones share one network.
#[derive(Clone, Debug)]
pub struct SimNet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified whenever links heal.
    healed: Notify,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    trace: Trace,
    latency: Latency,
    /// The current life of each node that is alive.
    alive: BTreeMap<String, u64>,
    /// Nodes that are down and send no answer, not even a refusal.
    dark: BTreeSet<String>,
    lives: u64,
    ports: BTreeMap<String, Port>,
    connections: BTreeMap<u64, Connection>,
    last_number: u64,
    cuts: BTreeSet<(String, String)>,
    isolated: BTreeSet<String>,
}

impl SimNet {
    pub(crate) fn new(rng: Rng, trace: Trace) -> Self {
        let state = State {
            rng,
            trace,
            latency: Latency::default(),
            alive: BTreeMap::new(),
            dark: BTreeSet::new(),
            lives: 0,
            ports: BTreeMap::new(),
            connections: BTreeMap::new(),
            last_number: 0,
            cuts: BTreeSet::new(),
            isolated: BTreeSet::new(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), healed: Notify::new() }))
    }

    /// Sets the delays from now on.
    pub fn set_latency(&self, latency: Latency) {
        self.state().latency = latency;
    }

    /// Cuts the way from one node to another. The opposite way stays open.
    pub fn cut_way(&self, from: &str, to: &str) {
        let mut state = self.state();
        state.trace.add("net", format_args!("cut {from} > {to}"));
        state.cuts.insert((from.to_owned(), to.to_owned()));
    }

    /// Cuts both ways between two nodes.
    pub fn cut(&self, a: &str, b: &str) {
        self.cut_way(a, b);
        self.cut_way(b, a);
    }

    /// Cuts a node off from all others.
    pub fn isolate(&self, node: &str) {
        let mut state = self.state();
        state.trace.add("net", format_args!("isolate {node}"));
        state.isolated.insert(node.to_owned());
    }

    /// Heals both ways between two nodes. An isolated node stays isolated.
    pub fn heal(&self, a: &str, b: &str) {
        self.heal_with(|state| {
            state.cuts.remove(&(a.to_owned(), b.to_owned()));
            state.cuts.remove(&(b.to_owned(), a.to_owned()));
        });
    }

    /// Ends all cuts and isolations.
    pub fn heal_all(&self) {
        self.heal_with(|state| {
            state.cuts.clear();
            state.isolated.clear();
        });
    }

    /// Breaks all streams between two nodes.
    pub fn reset(&self, a: &str, b: &str) {
        let mut state = self.state();
        state.trace.add("net", format_args!("reset {a} {b}"));
        state.connections.values_mut().filter(|connection| connection.joins(a, b)).for_each(Connection::break_now);
    }

    /// Flips a bit in the next bytes that are sent on each way of each stream between two nodes.
    pub fn garble(&self, a: &str, b: &str) {
        let mut state = self.state();
        state.trace.add("net", format_args!("garble {a} {b}"));
        let State { connections, rng, .. } = &mut *state;
        let joining = connections.values_mut().filter(|connection| connection.joins(a, b));
        joining.for_each(|connection| connection.garble([rng.below(u64::MAX), rng.below(u64::MAX)]));
    }

    /// Applies a change that heals links, and resumes the streams that it frees. Some of them break, as after a
    /// timeout.
    fn heal_with(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        let held: Vec<u64> = state.held_connections().collect();
        change(&mut state);
        state.trace.add("net", format_args!("heal"));
        for number in held {
            let delay = state.delay();
            let broke = state.rng.chance(0.25);
            if state.is_held(number) {
                continue;
            }
            if let Some(connection) = state.connections.get_mut(&number) {
                if broke { connection.break_now() } else { connection.resume(Instant::now() + delay) }
            }
        }
        drop(state);
        self.0.healed.notify_waiters();
    }

    /// Starts a new life of a node.
    pub(crate) fn begin_life(&self, node: &str) -> NodeNet {
        let mut state = self.state();
        state.lives += 1;
        let life = state.lives;
        state.alive.insert(node.to_owned(), life);
        state.dark.remove(node);
        // The machine does not know the streams of previous lives and resets them when a peer sends something.
        let previous = state.connections.iter().filter(|(_, connection)| connection.has(node));
        let previous: Vec<u64> = previous.map(|(number, _)| *number).collect();
        for number in previous {
            self.break_after(number, state.delay());
        }
        drop(state);
        NodeNet { net: self.clone(), node: node.to_owned(), life }
    }

    /// Ends the current life of a node: its listeners close, and its streams end, break or become silent.
    pub(crate) fn end_life(&self, node: &str, death: Death) {
        let mut state = self.state();
        state.alive.remove(node);
        let goes_dark = death == Death::Power && state.rng.chance(0.5);
        if goes_dark {
            state.dark.insert(node.to_owned());
        }
        let (gone, left) = std::mem::take(&mut state.ports).into_iter().partition(|(_, port)| port.node == node);
        let gone: BTreeMap<String, Port> = gone;
        state.ports = left;
        let mine = state.connections.iter().filter(|(_, connection)| connection.has(node));
        let numbers: Vec<u64> = mine.map(|(number, _)| *number).collect();
        for number in numbers {
            let delay = state.delay();
            // The death of a process may look like an orderly end to its peers.
            let ends = death == Death::Process && state.rng.chance(0.3);
            let Some(connection) = state.connections.get_mut(&number) else { continue };
            connection.node_died(node, ends);
            if !ends && !goes_dark {
                self.break_after(number, delay);
            }
        }
        drop(state);
        // Dropping the connections that were not accepted locks the state.
        drop(gone);
    }

    #[expect(clippy::disallowed_methods, reason = "the network is not a task of any node")]
    fn break_after(&self, number: u64, delay: Duration) {
        let net = self.clone();
        tokio::spawn(async move {
            sleep(delay).await;
            if let Some(connection) = net.state().connections.get_mut(&number) {
                connection.break_now();
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl State {
    fn is_cut(&self, from: &str, to: &str) -> bool {
        if from == to || (self.cuts.is_empty() && self.isolated.is_empty()) {
            return false;
        }
        let is_isolated = |node| self.isolated.contains(node);
        is_isolated(from) || is_isolated(to) || self.cuts.contains(&(from.to_owned(), to.to_owned()))
    }

    /// Returns the connections of which at least one way is cut.
    fn held_connections(&self) -> impl Iterator<Item = u64> {
        self.connections.keys().copied().filter(|number| self.is_held(*number))
    }

    fn is_held(&self, number: u64) -> bool {
        self.connections.get(&number).is_some_and(|connection| {
            let (a, b) = connection.nodes();
            self.is_cut(a, b) || self.is_cut(b, a)
        })
    }

    fn delay(&self) -> Duration {
        let Latency { usual_max, slow, slow_max } = self.latency;
        let most = if self.rng.chance(slow) { slow_max } else { usual_max };
        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.rng.below(millis.saturating_add(1)))
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

/// The network as one life of a node sees it. After that life, every call returns an error.
#[derive(Clone, Debug)]
pub struct NodeNet {
    net: SimNet,
    node: String,
    life: u64,
}

impl NodeNet {
    fn check_life(&self, state: &State) -> io::Result<()> {
        if state.alive.get(&self.node) == Some(&self.life) { Ok(()) } else { Err(io::ErrorKind::NetworkDown.into()) }
    }

    async fn dial(self, addr: String) -> io::Result<BoxStream> {
        let target = addr.rsplit_once(':').map_or(addr.as_str(), |(node, _)| node).to_owned();
        loop {
            let healed = self.net.0.healed.notified();
            let delay = {
                let state = self.net.state();
                self.check_life(&state)?;
                let is_open = !state.is_cut(&self.node, &target) && !state.is_cut(&target, &self.node);
                is_open.then(|| state.delay() + state.delay())
            };
            // As with TCP, the dialer tries again until it gets an answer.
            match delay {
                None => healed.await,
                Some(delay) => {
                    sleep(delay).await;
                    if let Some(answer) = self.try_connect(&addr, &target)? {
                        return Ok(Box::new(answer));
                    }
                    sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    /// Makes one attempt to connect; `None` if there is no answer.
    fn try_connect(&self, addr: &str, target: &str) -> io::Result<Option<SimStream>> {
        let mut state = self.net.state();
        self.check_life(&state)?;
        if state.is_cut(&self.node, target) || state.is_cut(target, &self.node) || state.dark.contains(target) {
            return Ok(None);
        }
        if !state.ports.get(addr).is_some_and(Port::has_room) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let number = state.next_number();
        let capacity = 1 << (10 + state.rng.below(11));
        state.trace.add(&self.node, format_args!("connects to {addr} as #{number}"));
        state.connections.insert(number, Connection::new(&self.node, target, capacity));
        let [mine, theirs] = [Side::Dialer, Side::Accepter].map(|side| SimStream::new(self.net.clone(), number, side));
        let from = format!("{}:{}", self.node, FIRST_FREE_PORT + number);
        if let Some(port) = state.ports.get_mut(addr) {
            port.arrive(theirs, from);
        }
        Ok(Some(mine))
    }

    fn open_port(&self, addr: &str) -> io::Result<Arc<dyn Listener>> {
        let mut state = self.net.state();
        self.check_life(&state)?;
        let (host, port) = addr.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
        if host != self.node {
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, format!("{addr} is not at {}", self.node)));
        }
        let addr = if port == "0" { format!("{host}:{}", FIRST_FREE_PORT + state.next_number()) } else { addr.into() };
        if state.ports.contains_key(&addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.ports.insert(addr.clone(), Port::new(&self.node, self.life));
        Ok(Arc::new(SimListener::new(self.net.clone(), addr, self.life)))
    }
}

impl Net for NodeNet {
    fn connect(&self, addr: &str) -> BoxFuture<'static, io::Result<BoxStream>> {
        self.clone().dial(addr.to_owned()).boxed()
    }

    fn listen(&self, addr: &str) -> BoxFuture<'static, io::Result<Arc<dyn Listener>>> {
        futures_util::future::ready(self.open_port(addr)).boxed()
    }
}

#[cfg(test)]
mod tests;
