//! The second group of the simulated nodes: it runs beside `main` on the same nodes, with the store for tests.
//!
//! Invariant: the group has the same voters as `main` whenever the cluster is whole.

use std::path::Path;
use std::sync::Arc;

use quorate::sim::{self, OpenGroup};
use quorate_apply::memory_store::{MemoryStore, MemoryStoreOptions};
use quorate_consensus::Group;
use quorate_env::Env;
use quorate_env::WallClock as _;
use quorate_model::{GroupId, NodeId, StateMachine as _};

use super::{Cluster, DATA_DIR};
use crate::history::{History, State};
use crate::ledger::items::Items;
use crate::watched::Watched;

/// The second group.
pub const BESIDE: GroupId = GroupId(2);

/// The directory of its store, within the directory of the node.
const ITEMS_DIR: &str = "items";

impl Cluster {
    /// Returns the history of a group.
    pub fn history_of(&self, group: GroupId) -> &History {
        if group == BESIDE { &self.beside } else { &self.history }
    }

    /// Returns a node's part in the second group, if the node serves.
    pub fn group(&self, name: &'static str) -> Option<Group> {
        sim::group(&*self.node(name)?, BESIDE)
    }

    /// Returns the store of the second group in a node's present life.
    pub fn items(&self, name: &'static str) -> Option<Arc<Watched<MemoryStore>>> {
        self.with_life(name, |life| life.items.upgrade()).flatten()
    }

    /// Returns the function that opens the store of the second group in a node's new life (`who`).
    pub(super) fn open_items(&self, name: &'static str, who: &str, env: &Env, level: u32) -> OpenGroup {
        let (cluster, who, env) = (self.clone(), who.to_owned(), env.clone());
        Arc::new(move |identity, waits| {
            let (disk, dir) = (Arc::clone(env.disk()), Path::new(DATA_DIR).join(ITEMS_DIR));
            let checkpoint_entries = cluster.tuning.checkpoint_entries;
            let options = MemoryStoreOptions { checkpoint_entries, waits, ..MemoryStoreOptions::default() };
            let store = MemoryStore::open(disk, &dir, identity, level, options)?;
            cluster.found(name, &who, BESIDE, &*store);
            let (history, logged) = (cluster.beside.clone(), cluster.logged(name, BESIDE));
            let watched = Arc::new(Watched::new(&env, who.clone(), store, history, logged));
            cluster.with_life(name, |life| life.items = Arc::downgrade(&watched));
            Ok(watched)
        })
    }

    /// Whether a life may have ended after an image was installed in one of its stores and before the log recorded
    /// that.
    pub(super) fn has_failed_to_install(&self, who: &str) -> bool {
        self.history.has_failed_to_install(who) || self.beside.has_failed_to_install(who)
    }

    /// Whether the second group has a leader, all nodes as its voters, and on all of them what the leader has
    /// committed.
    pub(super) fn beside_is_whole(&self) -> bool {
        let parts: Vec<Group> = self.names.iter().filter_map(|name| self.group(name)).collect();
        let Some(leader) = parts.iter().filter(|part| part.is_leader()).max_by_key(|part| part.status().term) else {
            return false;
        };
        let (status, mut voters) = (leader.status(), self.voters_of_main());
        let committed = status.committed.map_or(0, |id| id.index);
        let mut own = status.voters;
        own.sort_unstable();
        voters.sort_unstable();
        own == voters
            && own.len() == self.names.len()
            && parts.iter().all(|part| {
                let status = part.status();
                status.voters.len() == own.len() && status.applied.index >= committed
            })
    }

    /// Whether every node has swept all items whose time has come by all clocks. After a clock was wrong, the time of
    /// others may come in a year.
    pub fn nothing_is_due(&self) -> bool {
        let now = self.now();
        let is_later = |due: Option<u64>| due.is_none_or(|due| due > now);
        self.names.iter().all(|name| self.items(name).is_some_and(|items| is_later(items.applied().due)))
    }

    /// The time of the clock that is behind all others, in nanoseconds since 1970-01-01 UTC.
    fn now(&self) -> u64 {
        self.names.iter().map(|name| self.world.clock(name).unix_nanos()).min().unwrap_or(0)
    }

    /// Compares the second group's store on each node with what the clients know.
    pub fn compare_items(&self, items: &Items) {
        for name in self.names {
            let Some(store) = self.items(name) else { continue };
            store.store().read(|memory, _| items.check(memory, self.now(), name, &self.beside));
        }
    }

    /// Whether different nodes lead the two groups.
    pub fn leads_apart(&self) -> bool {
        let leads = |name: &&'static str| self.group(name).is_some_and(|group| group.is_leader());
        let leader = self.names.iter().copied().find(|name| leads(name));
        leader.is_some() && self.leader().is_some() && leader != self.leader()
    }

    fn voters_of_main(&self) -> Vec<NodeId> {
        let leader = self.leader().and_then(|name| Some(self.node(name)?.status()));
        let members = leader.map(|status| status.members).unwrap_or_default();
        members.into_iter().filter(|member| member.voter).map(|member| member.id).collect()
    }

    /// Checks the second group on a node: its leader, its log, its positions, and whether it has stopped or has a fault
    /// without a reason.
    pub(super) fn look_beside(&self, name: &'static str, who: &str, id: NodeId) {
        let Some(group) = self.group(name) else { return };
        let status = group.status();
        if group.is_leader() {
            self.beside.leads(who, status.term, id);
            self.beside.leader_holds(who, status.term, status.last.map_or(0, |id| id.index));
        }
        if status.applied.group != BESIDE {
            self.beside.violation(format!("{who} gives the position {}", status.applied));
        }
        if let Some(fault) = self.items(name).and_then(|items| items.fault()) {
            let is_excused = self.with_life(name, |life| life.is_doomed) == Some(true);
            self.complain(is_excused, who, format!("has a fault in its second store: {fault}"));
        }
    }

    /// Compares the state of the second group on a node with the state that other nodes had at the same index.
    pub(super) fn sample_beside(&self, name: &'static str, who: &str) {
        let Some(items) = self.items(name) else { return };
        let hashes = items.store().hashes();
        if hashes.index > 0 {
            let state = State { outcomes: hashes.outcomes, user: hashes.rows.into(), reserved: 0, archiver: None };
            self.beside.state(who, hashes.index, state);
        }
    }
}
