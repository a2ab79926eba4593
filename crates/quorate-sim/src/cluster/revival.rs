//! What happens to nodes when they apply entries: they are late, crash or get stuck in an entry, or find their database
//! damaged. Nodes that have ended by themselves are started again.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use quorate::Ended;

use quorate_env::timeout;
use quorate_model::StoreFault;

use super::{Cluster, End, LOOK_EVERY};
use crate::program::Ailment;

impl Cluster {
    /// A node is about to fail at the entry that it applies. A process that crashes in it, or a store that gets stuck
    /// in it, does nothing more in this life.
    pub(super) fn ails(&self, name: &'static str, ailment: Ailment) {
        match ailment {
            Ailment::Crash => self.dies(name),
            Ailment::Stuck => {
                let store = self.with_life(name, |life| life.store.upgrade()).flatten();
                store.iter().for_each(|store| store.stick());
            }
            Ailment::Memory | Ailment::Slow | Ailment::Damage => {}
        }
    }

    /// Crashes a node's process. The node does nothing more until [`Cluster::revive`] has ended this life.
    pub fn dies(&self, name: &'static str) {
        self.doom(name, |disk| disk.stop_after(0));
        self.with_life(name, |life| life.is_dead = true);
    }

    /// Delays the next entries that a node hands to its store.
    pub fn hold_up(&self, name: &'static str, late: Duration) {
        let store = self.with_life(name, |life| life.store.upgrade()).flatten();
        store.into_iter().for_each(|store| store.hold_up(late));
    }

    /// Whether a node has ended because its store is stuck.
    pub(super) fn has_ended_stuck(&self, name: &'static str) -> bool {
        let node = self.with_life(name, |life| life.node.clone()).flatten();
        let ended = node.and_then(|node| node.ended().now_or_never());
        matches!(ended, Some(Ended::Store(StoreFault::Stuck(_))))
    }

    /// Returns how many times nodes have ended because their stores were stuck; those that ended together count once.
    pub fn times_stuck(&self) -> u32 {
        self.lives().times_stuck
    }

    /// Starts the next life of each node that has ended by itself.
    pub async fn revive(&self) {
        let stuck = self.names.iter().filter(|name| self.has_ended_stuck(name)).count();
        self.lives().times_stuck += u32::from(stuck > 0);
        for name in self.names {
            let is_dead = self.with_life(name, |life| life.is_dead) == Some(true);
            if is_dead || self.has_ended_of_damage(name) || self.has_ended_stuck(name) {
                self.end(name, End::Kill).await;
                self.start(name);
            }
        }
    }

    /// Waits for a future, and meanwhile restarts nodes that have ended by themselves.
    pub async fn reviving<T>(&self, awaited: impl Future<Output = T>) -> T {
        let mut awaited = std::pin::pin!(awaited);
        loop {
            self.revive().await;
            if let Ok(done) = timeout(LOOK_EVERY, awaited.as_mut()).await {
                return done;
            }
        }
    }
}
