//! Kills nodes while units are done, one at a time, the leader more often than not, and starts them again.

use std::time::Duration;

use quorate_env::Rng;
use tokio::sync::{Mutex, watch};

use crate::harness::Result;
use crate::harness::cluster::Cluster;

/// How long a node stays down at most, in milliseconds.
const DOWN_MS_MAX: u64 = 800;
/// How long after it was due a kill comes at most, in microseconds: so that it strikes anywhere within a unit.
const LATE_US_MAX: u64 = 20_000;

/// How many there are to be, over how many statements.
pub struct Plan {
    pub kills: u64,
    pub statements: u64,
    pub rng: Rng,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    pub all: u64,
    pub leaders: u64,
}

impl Plan {
    /// Kills until all are done, or nobody tells the progress any more. `whole` is held while a node is missing.
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
