//! What this node knows about the other nodes, and how it reaches them.
//!
//! Every node asks every other for its status, about once a second ([`Peers::watch`]). From the answers it learns which
//! nodes are reachable and how long the others have been silent, the others' clocks, and, before it belongs to a
//! cluster, whether one lives already.
//!
//! Invariant: a member is called only on a connection whose handshake has proved that the node at the other end has
//! that Raft id and belongs to this cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use quorate_env::{Env, Instant, lock, sleep, timeout};
use quorate_model::{GroupId, NodeId};
use quorate_wire::{
    CONNECT_MAX, CallError, ConnectError, Dialer, DialerConfig, NotSent, Purpose, Role, StreamReceiver, StreamSender,
};

use crate::Member;
use crate::config::ConsensusConfig;
use crate::link::Link;
use crate::peer::messages::{StatusReply, decode, method};
use crate::raft::Raft;

/// The maximum time for a status to arrive. A later one counts as silence.
pub(crate) const STATUS_MAX: Duration = Duration::from_secs(1);

/// How often the same refusal of another node is logged.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The last status of the node at an address.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub status: StatusReply,
    /// When the answer came.
    pub at: Instant,
    /// The node's wall clock minus this node's, in nanoseconds.
    pub clock_offset: i64,
}

/// The other nodes, as this node knows them.
pub(crate) struct Peers {
    env: Env,
    config: ConsensusConfig,
    identity: quorate_wire::Identity,
    since: Instant,
    seen: Mutex<BTreeMap<String, Seen>>,
    links: Mutex<BTreeMap<(String, u64, Purpose), Link>>,
    members: Mutex<BTreeMap<u64, Member>>,
    /// The addresses of members that were found elsewhere than the list of members says.
    found: Mutex<BTreeMap<u64, String>>,
    /// Why the nodes at these addresses refuse this one, and when that was logged.
    refusals: Mutex<BTreeMap<String, (String, Instant)>>,
}

impl Seen {
    /// The last entry of a group that the node had applied.
    pub(crate) fn applied_index(&self, group: GroupId) -> u64 {
        if group == GroupId::MAIN {
            return self.status.applied_index;
        }
        let other = self.status.groups.iter().find(|other| other.group == group.0);
        other.map_or(0, |other| other.applied_index)
    }
}

impl Peers {
    pub(crate) fn new(env: Env, config: ConsensusConfig, identity: quorate_wire::Identity) -> Self {
        Self {
            env,
            config,
            identity,
            since: Instant::now(),
            seen: Mutex::default(),
            links: Mutex::default(),
            members: Mutex::default(),
            found: Mutex::default(),
            refusals: Mutex::default(),
        }
    }

    /// Sets the members.
    pub(crate) fn set_members(&self, members: BTreeMap<u64, Member>) {
        let mut links = lock(&self.links);
        links.retain(|(addr, id, _), _| *id == 0 || members.get(id).is_some_and(|member| member.addr == *addr));
        lock(&self.found).retain(|id, addr| members.get(id).is_some_and(|member| member.addr != *addr));
        *lock(&self.members) = members;
    }

    /// Records that a member answers at another address than the list of members has. This node calls it there until
    /// the list changes.
    pub(crate) fn found(&self, id: u64, addr: &str) {
        lock(&self.found).insert(id, addr.to_owned());
    }

    /// Returns the members with their Raft ids.
    pub(crate) fn members(&self) -> BTreeMap<u64, Member> {
        lock(&self.members).clone()
    }

    /// Returns a member: `known`, or else what this node knows about it.
    pub(crate) fn leader_member(&self, id: u64, known: Option<Member>) -> Option<(NodeId, Member)> {
        known.or_else(|| lock(&self.members).get(&id).cloned()).map(|member| (NodeId(id), member))
    }

    /// Returns the address at which to call a member: the one in the list of members, unless the member has answered
    /// lately at another address and not at this one. So nodes that have moved find each other by the addresses in
    /// their configurations, and by those that they announce.
    pub(crate) fn addr_of(&self, id: u64) -> Option<String> {
        let listed = lock(&self.members).get(&id)?.addr.clone();
        let seen = lock(&self.seen);
        let is_there = |seen: &Seen| seen.status.id == id && self.is_fresh(seen);
        if seen.get(&listed).is_some_and(is_there) {
            return Some(listed);
        }
        let elsewhere = seen.iter().find(|(_, seen)| is_there(seen)).map(|(addr, _)| addr.clone());
        Some(elsewhere.unwrap_or(listed))
    }

    /// Returns the connection to a node for a purpose, which is made at its first use. `id` 0 accepts any node.
    pub(crate) fn link(&self, addr: &str, id: u64, purpose: Purpose) -> Link {
        let key = (addr.to_owned(), id, purpose);
        lock(&self.links).entry(key).or_insert_with(|| self.dial(addr, id, purpose)).clone()
    }

    /// Returns a connection that is not shared.
    pub(crate) fn dial(&self, addr: &str, id: u64, purpose: Purpose) -> Link {
        let config = DialerConfig {
            addr: addr.to_owned(),
            identity: self.identity.clone(),
            secret: self.config.secret.clone(),
            role: Role::Peer,
            purpose,
            expected: (id != 0).then_some(id),
            connect_limit: CONNECT_MAX,
        };
        Link(Dialer::new(&self.env, config))
    }

    /// Drops all connections, because they were made under an identity that this node no longer has.
    pub(crate) fn hang_up(&self) {
        lock(&self.links).clear();
    }

    /// Calls a member by its Raft id.
    pub(crate) async fn call_member(
        &self,
        id: u64,
        method: u16,
        body: Bytes,
        limit: Duration,
    ) -> Result<Bytes, CallError> {
        let Some(addr) = self.addr_of(id) else { return Err(CallError::NotSent(NotSent::Closed)) };
        self.link(&addr, id, Purpose::Data).call(method, body, limit).await
    }

    /// Opens a stream to a member by its Raft id, if it can be reached.
    pub(crate) async fn open_stream(
        &self,
        id: u64,
        purpose: Purpose,
        method: u16,
    ) -> Option<(StreamSender, StreamReceiver)> {
        let addr = self.addr_of(id)?;
        let client = timeout(CONNECT_MAX, self.link(&addr, id, purpose).0.client()).await;
        client.ok()?.ok()?.open_stream(method).ok()
    }

    /// Returns the addresses of all other nodes: those in the configuration, and those of members that joined later or
    /// moved.
    pub(crate) fn addrs(&self) -> Vec<String> {
        let own = &self.config.name;
        let members = self.members();
        let listed = self.config.members.iter().chain(members.values()).filter(|member| member.name != *own);
        let mut addrs: Vec<String> = listed.map(|member| member.addr.clone()).collect();
        addrs.extend(lock(&self.found).values().cloned());
        addrs.sort();
        addrs.dedup();
        addrs
    }

    /// Asks all other nodes once for their status, and returns the answers by address.
    pub(crate) async fn ask_all(&self) -> BTreeMap<String, StatusReply> {
        let asks = self.addrs().into_iter().map(|addr| async move {
            let sent = self.env.unix_nanos();
            let link = self.link(&addr, 0, Purpose::Heartbeat);
            let connected = timeout(STATUS_MAX, link.0.client()).await.ok()?;
            self.note_refusal(&addr, connected.as_ref().err());
            connected.ok()?;
            let body = link.call(method::STATUS, Bytes::new(), STATUS_MAX).await;
            let status: StatusReply = decode(body.ok()?).ok()?;
            let received = self.env.unix_nanos();
            let middle = sent.saturating_add(received.saturating_sub(sent) / 2);
            let clock_offset = difference(status.now, middle);
            let seen = Seen { status: status.clone(), at: Instant::now(), clock_offset };
            lock(&self.seen).insert(addr.clone(), seen);
            Some((addr, status))
        });
        join_all(asks).await.into_iter().flatten().collect()
    }

    /// Returns those of the given members that answer within a time.
    pub(crate) async fn answering(&self, ids: &[u64], limit: Duration) -> Vec<u64> {
        let asks = ids.iter().map(|id| async move {
            let link = self.link(&self.addr_of(*id)?, *id, Purpose::Heartbeat);
            link.call(method::STATUS, Bytes::new(), limit).await.is_ok().then_some(*id)
        });
        join_all(asks).await.into_iter().flatten().collect()
    }

    /// Records whether a node refuses this one, and logs the reason from time to time.
    fn note_refusal(&self, addr: &str, error: Option<&ConnectError>) {
        let mut refusals = lock(&self.refusals);
        let Some(error) = error.filter(|error| !error.is_retryable()) else {
            refusals.remove(addr);
            return;
        };
        let (why, now) = (error.to_string(), Instant::now());
        let is_logged = |(logged, at): &(String, Instant)| *logged == why && at.elapsed() < REFUSAL_LOG_INTERVAL;
        if !refusals.get(addr).is_some_and(is_logged) {
            tracing::warn!(event = "refused", addr, "a node does not let this one in: {why}");
            refusals.insert(addr.to_owned(), (why, now));
        }
    }

    /// Returns why other nodes refuse this one, if any does.
    pub(crate) fn refusal(&self) -> Option<String> {
        let refusals = lock(&self.refusals);
        let all: Vec<&str> = refusals.values().map(|(why, _)| why.as_str()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Asks all other nodes for their status at regular intervals. Never returns.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            self.ask_all().await;
            sleep(self.config.timing.status).await;
        }
    }

    /// Returns how long a Raft id has not answered, at most the age of this process.
    pub(crate) fn silence(&self, id: u64) -> Duration {
        let seen = lock(&self.seen);
        let last = seen.values().filter(|seen| seen.status.id == id).map(|seen| seen.at).max();
        last.unwrap_or(self.since).elapsed()
    }

    /// Returns the last status of a Raft id.
    pub(crate) fn seen(&self, id: u64) -> Option<Seen> {
        self.look(id, Seen::clone)
    }

    fn look<T>(&self, id: u64, look: impl FnOnce(&Seen) -> T) -> Option<T> {
        let seen = lock(&self.seen);
        seen.values().filter(|seen| seen.status.id == id).max_by_key(|seen| seen.at).map(look)
    }

    /// Whether a Raft id has answered lately.
    pub(crate) fn is_heard(&self, id: u64) -> bool {
        self.look(id, |seen| self.is_fresh(seen)).unwrap_or(false)
    }

    /// Returns the last entry of a group that a Raft id has applied, if it has answered lately.
    pub(crate) fn applied_index(&self, id: u64, group: GroupId) -> Option<u64> {
        self.look(id, |seen| self.is_fresh(seen).then(|| seen.applied_index(group))).flatten()
    }

    /// Returns the format level that a member has announced lately.
    pub(crate) fn level(&self, id: NodeId) -> Option<u32> {
        self.look(id.0, |seen| self.is_fresh(seen).then_some(seen.status.level)).flatten()
    }

    /// Returns whether a member can write an archive, if it has said so, or has said that it can't, lately.
    pub(crate) fn archives(&self, id: NodeId) -> Option<bool> {
        self.look(id.0, |seen| self.is_fresh(seen).then_some(seen.status.archives)).flatten()
    }

    /// Whether a node that has answered lately knows the members, and this id is not among them.
    pub(crate) fn is_left_out(&self, id: u64) -> bool {
        let seen = lock(&self.seen);
        seen.values().any(|seen| {
            let members = &seen.status.members;
            self.is_fresh(seen) && !members.is_empty() && members.iter().all(|member| member.id != id)
        })
    }

    fn is_fresh(&self, seen: &Seen) -> bool {
        seen.at.elapsed() < self.silence_max()
    }

    /// Returns the voters' clocks minus this node's, its own included. The last answer of a voter counts even if it is
    /// silent now: a leader that reaches nobody must not rely on its own clock alone.
    pub(crate) fn voter_clock_offsets(&self, raft: &Raft) -> Vec<i64> {
        let own = *raft.node_id();
        let offset = |id| if id == own { Some(0) } else { self.look(id, |seen| seen.clock_offset) };
        raft.voter_ids().filter_map(offset).collect()
    }

    /// Returns the clocks of the other members that can be reached, minus this node's.
    pub(crate) fn clock_offsets(&self) -> Vec<(NodeId, i64)> {
        let members: Vec<u64> = lock(&self.members).keys().copied().collect();
        let fresh = |id| self.look(id, |seen| self.is_fresh(seen).then_some(seen.clock_offset)).flatten();
        members.into_iter().filter_map(|id| Some((NodeId(id), fresh(id)?))).collect()
    }

    /// Returns the longest silence after which a node still counts as reachable.
    pub(crate) fn silence_max(&self) -> Duration {
        self.config.timing.status.saturating_mul(4).saturating_add(STATUS_MAX)
    }
}

fn difference(a: u64, b: u64) -> i64 {
    i64::try_from(i128::from(a).saturating_sub(i128::from(b))).unwrap_or(if a > b { i64::MAX } else { i64::MIN })
}
