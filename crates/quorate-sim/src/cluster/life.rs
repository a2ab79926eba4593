//! The process lives of nodes: what belongs to one life, what is known of all lives, and how a life ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorate::Node;
use quorate::keys::KeyWatch;
use quorate_apply::memory_store::MemoryStore;
use quorate_env::{Instant, Rng};
use quorate_model::GroupId;
use quorate_sql::connection::Attached;
use quorate_sql::image::PIECE_BLOCKS_MAX;
use quorate_sql::options::StoreOptions;
use quorate_sql::store::SqlStore;

use super::Cluster;
use crate::history::Losses;
use crate::ledger::EVENTS_KEPT;
use crate::vfs::Slot;
use crate::watched::Watched;

impl Cluster {
    /// Returns a watch of the changes of keys that a node applies, and the name of its life, if the node serves.
    pub fn watch_keys(&self, name: &'static str) -> Option<(String, KeyWatch)> {
        let life = |life: &mut Life| Some((life.who.clone(), life.node.as_ref()?.watch_keys()));
        self.with_life(name, life).flatten()
    }
}

/// Sizes that differ between clusters, because an event that is rare with some sizes is frequent with others.
#[derive(Clone, Copy)]
pub(super) struct Tuning {
    pub(super) keep_log_bytes: u64,
    pub(super) checkpoint_bytes: u64,
    pub(super) idle_after: Duration,
    pub(super) piece_blocks: u64,
    /// After how many entries the store of the group beside `main` writes its file.
    pub(super) checkpoint_entries: u64,
}

impl Tuning {
    pub(super) fn draw(rng: &Rng) -> Self {
        // The -wal is synced whenever it has grown by an eighth of this size. With a large size and a short log, purged
        // entries have often become durable just before.
        let checkpoint_bytes = pick(rng, [24 << 10, 24 << 10, 96 << 10, 1 << 20, 16 << 20]);
        let keep_log_bytes = pick(rng, [64, 1 << 10, 24 << 10, 24 << 10]);
        let idle_after = Duration::from_millis(pick(rng, [700, 20_000]));
        // An image in many small pieces takes long to send.
        let piece_blocks = pick(rng, [1, 1, 4, PIECE_BLOCKS_MAX]);
        let checkpoint_entries = pick(rng, [3, 20, 20, 200]);
        Self { keep_log_bytes, checkpoint_bytes, idle_after, piece_blocks, checkpoint_entries }
    }

    /// Sets the sizes of a node's store.
    pub(super) fn tune(self, options: &mut StoreOptions, keeps_few_events: bool) {
        options.checkpoint_bytes = self.checkpoint_bytes;
        options.idle_after = self.idle_after;
        options.piece_blocks = self.piece_blocks;
        if keeps_few_events {
            options.events.events = EVENTS_KEPT.into();
        }
    }
}

fn pick<const N: usize>(rng: &Rng, choices: [u64; N]) -> u64 {
    let at = usize::try_from(rng.below(N as u64)).unwrap_or_default();
    choices.get(at).copied().unwrap_or_default()
}

/// All lives of all nodes.
#[derive(Default)]
pub(super) struct Lives {
    pub(super) now: BTreeMap<&'static str, Life>,
    /// Lives so far, by node.
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// How often nodes have changed their addresses.
    pub(super) moves: BTreeMap<&'static str, u16>,
    /// How many times nodes have ended because their stores were stuck.
    pub(super) times_stuck: u32,
    /// How often nodes have lost data.
    pub(super) losses: BTreeMap<&'static str, Losses>,
    /// Until when a node may report that its disk is full: a short time after the disk has room again, or without limit
    /// (`None`) while it is full.
    pub(super) full: BTreeMap<&'static str, Option<Instant>>,
    /// Nodes whose database may end before their log begins, because they lost one of them and have not recovered yet.
    pub(super) unsound: BTreeSet<&'static str>,
    /// How often each node had lost data when all nodes first had the clients' tables; `None` before that. A node that
    /// loses its data later must have the tables again before it serves.
    pub(super) lost_before_tables: Option<BTreeMap<&'static str, Losses>>,
    /// Nodes, and groups, whose store may end after its log.
    pub(super) ahead: BTreeSet<(&'static str, GroupId)>,
}

/// The present life of a node.
pub(super) struct Life {
    pub(super) who: String,
    pub(super) node: Option<Arc<Node>>,
    /// A transaction of a reader outside Quorate on the node's database, and when it ends.
    pub(super) reader: Option<(Attached, Instant)>,
    /// The store of this life. It is a weak reference, because a store that is still held would keep its files from the
    /// next life.
    pub(super) store: Weak<Watched<SqlStore>>,
    /// The store of the group beside `main`, in the same way.
    pub(super) items: Weak<Watched<MemoryStore>>,
    /// The node's data are to be changed as soon as that is possible.
    pub(super) is_target: bool,
    /// Its disk was set to fail, so the node may stop.
    pub(super) is_doomed: bool,
    /// Its process has crashed in an entry that it applied.
    pub(super) is_dead: bool,
    /// The node failed to start.
    pub(super) has_failed: bool,
    // Dropped last: the VFS of this life.
    pub(super) slot: Slot,
}

impl Life {
    /// Creates a life that begins now.
    pub(super) fn new(who: String, slot: Slot) -> Self {
        let (is_target, is_doomed, is_dead, has_failed) = Default::default();
        let (store, items) = (Weak::new(), Weak::new());
        Self { who, node: None, reader: None, store, items, is_target, is_doomed, is_dead, has_failed, slot }
    }
}

/// How a node's life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its process is killed.
    Kill,
    /// Its power fails.
    Power,
    /// Its power fails, and its disk is lost.
    Wipe,
    /// Its process is killed, and a bit of its log is flipped.
    BadLog,
    /// Its process is killed, and the header of its database is overwritten.
    BadDatabase,
    /// Its process is killed, and a bit of the file that names the current generation is flipped.
    BadPointer,
}

impl End {
    /// Returns the name of its class of faults.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Power => "power",
            Self::Wipe => "lost disk",
            Self::BadLog => "bad log",
            Self::BadDatabase => "bad database",
            Self::BadPointer => "bad pointer",
        }
    }
}
