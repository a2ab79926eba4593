//! The lives of nodes: what belongs to one, what is known of all, and how they end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorate::Node;
use quorate_env::{Instant, Rng};
use quorate_sql::connection::Attached;
use quorate_sql::image::PIECE_BLOCKS_MAX;

use crate::history::Losses;
use crate::vfs::Slot;
use crate::watched::Watched;

/// Sizes that differ between clusters: what is rare with some is frequent with others.
#[derive(Clone, Copy)]
pub(super) struct Tuning {
    pub(super) keep_log_bytes: u64,
    pub(super) checkpoint_bytes: u64,
    pub(super) idle_after: Duration,
    pub(super) piece_blocks: u64,
}

impl Tuning {
    pub(super) fn draw(rng: &Rng) -> Self {
        // The -wal is synced whenever an eighth of this has come: with much of it and little log kept, what is purged
        // has often but just become durable.
        let checkpoint_bytes = pick(rng, [24 << 10, 24 << 10, 96 << 10, 1 << 20, 16 << 20]);
        let keep_log_bytes = pick(rng, [64, 1 << 10, 24 << 10, 24 << 10]);
        let idle_after = Duration::from_millis(pick(rng, [700, 20_000]));
        // Images in many small pieces are on their way for long.
        let piece_blocks = pick(rng, [1, 1, 4, PIECE_BLOCKS_MAX]);
        Self { keep_log_bytes, checkpoint_bytes, idle_after, piece_blocks }
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
    /// What nodes have lost.
    pub(super) losses: BTreeMap<&'static str, Losses>,
    /// Until when a node may say that its disk is full: for a while after it was, or while it is (`None`).
    pub(super) full: BTreeMap<&'static str, Option<Instant>>,
    /// Nodes whose database may end before their log begins: they lost one or the other, and it is not yet made good.
    pub(super) unsound: BTreeSet<&'static str>,
    /// What each node had lost at the moment when all nodes had the clients' tables; `None` before that. A node that
    /// loses its data later gets the tables from the others before it serves.
    pub(super) lost_before_tables: Option<BTreeMap<&'static str, Losses>>,
    /// Nodes whose database may end behind their log.
    pub(super) ahead: BTreeSet<&'static str>,
}

/// The present life of a node.
pub(super) struct Life {
    pub(super) who: String,
    pub(super) node: Option<Arc<Node>>,
    /// Somebody's transaction on its database, and when it ends.
    pub(super) reader: Option<(Attached, Instant)>,
    /// Its own: whoever holds a store keeps its files from the next one.
    pub(super) store: Weak<Watched>,
    /// Somebody means to change its data.
    pub(super) is_target: bool,
    /// Its disk was told to fail: it may give up.
    pub(super) is_doomed: bool,
    /// Its process has died of what it applied.
    pub(super) is_dead: bool,
    /// It gave up before it served.
    pub(super) has_failed: bool,
    // Dropped last: the VFS of this life.
    pub(super) slot: Slot,
}

impl Life {
    /// A life that begins.
    pub(super) fn new(who: String, slot: Slot) -> Self {
        let (is_target, is_doomed, is_dead, has_failed) = Default::default();
        Self { who, node: None, reader: None, store: Weak::new(), is_target, is_doomed, is_dead, has_failed, slot }
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
    /// Its process is killed, and a bit of its log changes.
    BadLog,
    /// Its process is killed, and the header of its database is overwritten.
    BadDatabase,
    /// Its process is killed, and a bit of what says which generation is in force changes.
    BadPointer,
}

impl End {
    /// Its class.
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
