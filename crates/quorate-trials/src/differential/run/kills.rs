//! Kills nodes while units are done, one at a time, most often the leader, and starts them again.

use std::time::Duration;

use quorate_env::Rng;
use tokio::sync::{Mutex, watch};

use crate::harness::Result;
use crate::harness::cluster::Cluster;

/// The longest time that a node stays down, in milliseconds.
const DOWN_MS_MAX: u64 = 800;
/// The longest delay of a kill after it is due, in microseconds. The delay is random, so that kills strike anywhere
/// within a unit.
const LATE_US_MAX: u64 = 20_000;

/// How many kills to spread over how many statements.
pub struct Plan {
    pub kills: u64,
    pub statements: u64,
    pub rng: Rng,
}

/// The kills that were done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    pub all: u64,
    pub leaders: u64,
}

impl Plan {
    /// Does the kills, and stops early if `progress` is closed. `whole` is locked while a node is down.
    pub async fn run(self, cluster: &Cluster, mut progress: watch::Receiver<u64>, whole: &Mutex<()>) -> Result<Kills> {
        let mut kills = Kills::default();
        for number in 0..self.kills {
            let due = self.statements * (2 * number + 1) / (2 * self.kills);
            if progress.wait_for(|done| *done >= due).await.is_err() {
                break;
            }
            let _whole = whole.lock().await;
            let leader = cluster.settled().await?;
            let others = cluster.nodes()?.into_iter().filter(|node| node.id != leader.id).collect::<Vec<_>>();
            let other = others.get(usize::try_from(self.rng.below(2))?).cloned();
            let victim = other.filter(|_| number > 0 && self.rng.chance(0.4)).unwrap_or_else(|| leader.clone());
            tokio::time::sleep(Duration::from_micros(self.rng.below(LATE_US_MAX))).await;
            cluster.kill(&victim)?;
            kills.all += 1;
            kills.leaders += u64::from(victim.id == leader.id);
            tokio::time::sleep(Duration::from_millis(self.rng.below(DOWN_MS_MAX))).await;
            cluster.restart(victim.id).await?;
        }
        Ok(kills)
    }
}
