//! What the clients of the second group know about their items.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorate_apply::memory::Memory;
use quorate_env::{Rng, lock};

use crate::history::History;

/// How long an item may stay after its time has come, in nanoseconds, while the cluster is whole.
const SWEEP_MAX: u64 = 5_000_000_000;

/// What becomes of an item, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is there until it is taken.
    Kept,
    /// It is there until the time of stamps is this, unless it is taken before.
    Expires(u64),
    /// It was taken, or has expired.
    Gone,
    /// A write of it may have been done or not.
    Unknown,
}

/// All items that were ever added. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Items(Arc<Mutex<BTreeMap<Bytes, Fate>>>);

impl Items {
    /// Records that an item is about to be added.
    pub fn begin(&self, key: &Bytes, fate: Fate) {
        lock(&self.0).insert(key.clone(), fate);
    }

    /// Records what became of an item.
    pub fn ended(&self, key: &Bytes, fate: Fate) {
        lock(&self.0).insert(key.clone(), fate);
    }

    /// Returns the items of a client.
    pub fn of(&self, client: u64) -> Vec<(Bytes, Fate)> {
        let prefix = format!("{client}-");
        let items = lock(&self.0);
        items
            .iter()
            .filter(|(key, _)| key.starts_with(prefix.as_bytes()))
            .map(|(key, fate)| (key.clone(), *fate))
            .collect()
    }

    /// Returns an item of a client that is certainly there, or was until it expired.
    pub fn pick(&self, client: u64, rng: &Rng) -> Option<(Bytes, Fate)> {
        let mut there = self.of(client);
        there.retain(|(_, fate)| matches!(fate, Fate::Kept | Fate::Expires(_)));
        let at = usize::try_from(rng.below(there.len().max(1) as u64)).ok()?;
        there.get(at).cloned()
    }

    /// Compares a store with what the clients know at the time `now`: items that are kept are there, those that are
    /// gone or have expired are not, and no others are.
    pub fn check(&self, memory: &Memory, now: u64, who: &str, history: &History) {
        let items = lock(&self.0);
        for (key, fate) in &*items {
            let is_there = memory.item(key, 0).is_some();
            let is_wrong = match fate {
                Fate::Kept => !is_there,
                Fate::Gone => is_there,
                Fate::Expires(due) => is_there && due.saturating_add(SWEEP_MAX) <= now,
                Fate::Unknown => false,
            };
            if is_wrong {
                history.violation(format!("{who} has {key:?}: {is_there}, and it must be {fate:?}"));
            }
        }
        let strange = memory.item_keys().find(|key| !items.contains_key(*key));
        if let Some(key) = strange {
            history.violation(format!("{who} has {key:?}, which no client has added"));
        }
    }
}
