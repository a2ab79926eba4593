//! Nodes that end by themselves, since they die of an entry or find their databases damaged: somebody starts them
//! again.

use std::future::Future;

use quorate_env::timeout;

use super::{Cluster, End, LOOK_EVERY};

impl Cluster {
    /// A node's process dies of what it applies: it does nothing more until [`Cluster::revive`] has ended this life.
    pub(super) fn die(&self, name: &'static str) {
        self.doom(name, |disk| disk.stop_after(0));
        self.with_life(name, |life| life.is_dead = true);
    }

    /// Nodes that have ended by themselves begin their next lives.
    pub async fn revive(&self) {
        for name in self.names {
            if self.with_life(name, |life| life.is_dead) == Some(true) || self.has_ended_of_damage(name) {
                self.end(name, End::Kill).await;
                self.start(name);
            }
        }
    }

    /// Waits for something, while nodes that die of what they apply are started again.
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
