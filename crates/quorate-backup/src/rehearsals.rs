//! Scheduled rehearsals: at each time of a schedule, the node that writes the archive restores the current state from
//! it, and compares it with those of all nodes.
//!
//! All nodes of a cluster run the same. Invariants:
//!
//! - Only the archiver rehearses, so one node does.
//! - The restored copy is removed at the end, and what a killed process has left, at the next start.
//! - Nothing that a node does waits for a rehearsal.

use std::path::PathBuf;
use std::sync::Arc;

use quorate::archive::{FetchOptions, Objects};
use quorate::{ClientConfig, Observer};
use quorate_env::Instant;

use crate::backups::{NANOS, env};
use crate::schedule::{Schedule, empty_dir, wait_until};

/// The name of the restored copy.
const FILE: &str = "rehearsal.db";

/// What a node is to do.
#[derive(Clone, Debug)]
pub struct Rehearsals {
    /// When to rehearse.
    pub schedule: Schedule,
    /// The archive.
    pub objects: Arc<dyn Objects>,
    /// How the nodes are asked for what they hold.
    pub client: ClientConfig,
    /// A directory of this node alone, for the restored copy. It is created, and emptied first.
    pub scratch: PathBuf,
}

/// Rehearses as planned, until `stop` is ready or the node ends. The log, the status and the metrics of
/// the node show the results.
pub async fn run(plan: Rehearsals, observer: Observer, stop: impl Future<Output = ()>) {
    tokio::select! {
        () = rehearse_all(&plan, observer) => {}
        () = stop => {}
    }
    clear(&plan).await;
}

async fn rehearse_all(plan: &Rehearsals, observer: Observer) {
    let env = env();
    clear(plan).await;
    let now = || env.unix_nanos() / NANOS;
    let mut after = now();
    while let Some(due) = plan.schedule.next_after(after) {
        wait_until(&env, due).await;
        let seen = observer.clone();
        let Some((status, _)) = env.blocking(move || seen.status()).await.flatten() else { return };
        if status.archive.is_some() {
            rehearse(plan, &observer).await;
        }
        after = now().max(due);
    }
    let schedule = &plan.schedule;
    tracing::warn!(event = "rehearsal_schedule", %schedule, "the schedule has no more times");
    std::future::pending().await
}

async fn rehearse(plan: &Rehearsals, observer: &Observer) {
    let begun = Instant::now();
    let file = plan.scratch.join(FILE);
    match observer.rehearse(plan.client.clone(), &plan.objects, &file, &FetchOptions::default()).await {
        Ok(found) if found.is_sound() => {
            let (position, seconds) = (found.position, begun.elapsed().as_secs_f64());
            tracing::info!(event = "rehearsed", %position, seconds, "the archive holds what the nodes hold");
        }
        Ok(found) => {
            let (position, differences) = (found.position, found.differences());
            let away: Vec<_> = found.nodes.iter().filter(|node| node.tables.is_err()).map(|node| &node.name).collect();
            tracing::warn!(event = "rehearsal_differs", %position, ?differences, ?away, "a rehearsal is not sound");
        }
        Err(error) => {
            tracing::warn!(event = "rehearsal_failed", %error, "a restore was rehearsed and failed");
            clear(plan).await;
        }
    }
}

async fn clear(plan: &Rehearsals) {
    if let Err(error) = empty_dir(&env(), &plan.scratch).await {
        tracing::warn!(event = "rehearsal_scratch", %error, "cannot empty the directory for restored copies");
    }
}
