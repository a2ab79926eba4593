//! Loads the data with many concurrent inserts while the leader is killed again and again.
//!
//! The work is divided into one segment more than there are kills. A segment begins once the node that was killed in
//! the previous segment has been started again. The leader is killed at a random moment in the segment.

use std::iter;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use quorate_env::Rng;
use tokio::sync::{Semaphore, watch};

use crate::Result;
use crate::cluster::{Cluster, Node};
use crate::remote::Remote;
use crate::source::{File, Source};
use crate::tables::{FLIGHTS, Row, Table};

/// The maximum number of concurrent inserts.
const IN_FLIGHT_MAX: usize = 256;
/// The rows of an atomic batch.
const BATCH_ROWS: usize = 100;
/// How long a killed leader stays down at most.
const AWAY_MS_MAX: u64 = 1_000;
/// How often the nodes are asked for a leader until there is one, and the pause in between.
const LEADER_ATTEMPTS_MAX: usize = 300;
const LEADER_RETRY: Duration = Duration::from_millis(100);

/// An insert: a single row, or the rows of an atomic batch.
struct Work {
    table: &'static Table,
    rows: Vec<Row>,
}

/// Loads all tables; the first `singles` flights are inserted by a statement each. Returns how many leaders were
/// killed.
pub async fn load(remote: &Remote, cluster: &Cluster, source: &Source, singles: usize, kills: usize) -> Result<usize> {
    for file in source.files() {
        remote.execute(file.table.create()).await?;
    }
    let total = plan(source, singles)?.count();
    let admitted = Semaphore::new(0);
    let (done, watching) = watch::channel(0);
    let inserting = insert_all(remote, plan(source, singles)?, &admitted, done);
    let killing = kill_repeatedly(cluster, total, kills, &admitted, watching);
    let ((), killed) = tokio::try_join!(inserting, killing)?;
    Ok(killed)
}

fn plan(source: &Source, singles: usize) -> Result<impl Iterator<Item = Result<Work>>> {
    let parts = source.files().map(|file| cut(file, if file.table.name == FLIGHTS.name { singles } else { 0 }));
    Ok(parts.collect::<Result<Vec<_>>>()?.into_iter().flatten())
}

/// Divides a file into single rows and then batches.
fn cut(file: &File, mut singles: usize) -> Result<impl Iterator<Item = Result<Work>>> {
    let table = file.table;
    let mut rows = file.rows()?;
    Ok(iter::from_fn(move || {
        let size = if singles == 0 { BATCH_ROWS } else { 1 };
        singles = singles.saturating_sub(1);
        let rows: Result<Vec<Row>> = rows.by_ref().take(size).collect();
        match rows {
            Ok(rows) if rows.is_empty() => None,
            rows => Some(rows.map(|rows| Work { table, rows })),
        }
    }))
}

async fn insert_all(
    remote: &Remote,
    work: impl Iterator<Item = Result<Work>>,
    admitted: &Semaphore,
    done: watch::Sender<usize>,
) -> Result<()> {
    stream::iter(work)
        .then(async |work| {
            admitted.acquire().await?.forget();
            work
        })
        .map_ok(|Work { table, rows }| remote.insert(table, rows))
        .try_buffer_unordered(IN_FLIGHT_MAX)
        .try_for_each(async |()| {
            done.send_modify(|done| *done += 1);
            Ok(())
        })
        .await
}

async fn kill_repeatedly(
    cluster: &Cluster,
    total: usize,
    kills: usize,
    admitted: &Semaphore,
    mut done: watch::Receiver<usize>,
) -> Result<usize> {
    let rng = Rng::from_os();
    let random = |below: usize| rng.below(below as u64) as usize;
    let segment = total / (kills + 1);
    for kill in 0..kills {
        admitted.add_permits(segment);
        let moment = kill * segment + segment / 10 + random(segment / 2);
        done.wait_for(|done| *done >= moment).await?;
        let node = kill_leader(cluster).await?;
        println!("killed node {} after {} inserts", node.id, *done.borrow());
        quorate_env::sleep(Duration::from_millis(rng.below(AWAY_MS_MAX))).await;
        let cluster = cluster.clone();
        blocking(move || cluster.restart(&node)).await?;
    }
    admitted.add_permits(total - kills * segment);
    Ok(kills)
}

async fn kill_leader(cluster: &Cluster) -> Result<Node> {
    for _ in 0..LEADER_ATTEMPTS_MAX {
        let cluster = cluster.clone();
        if let Some(node) = blocking(move || cluster.kill_leader()).await? {
            return Ok(node);
        }
        quorate_env::sleep(LEADER_RETRY).await;
    }
    Err(format!("no node leads after {LEADER_ATTEMPTS_MAX} attempts").into())
}

async fn blocking<T: Send + 'static>(call: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(call).await?
}
