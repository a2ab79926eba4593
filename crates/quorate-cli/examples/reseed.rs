//! Measures how long writes wait while a node that lost its data comes back.
//!
//! There are three nodes with a large database, and many writes in flight. A follower is killed by SIGKILL, its
//! directory is deleted, and it is started again. It joins as a new member, once the former member has been silent for
//! long enough. The program prints the longest wait of a write before the kill, while the files were deleted (a cost of
//! the file system: on one disk, the logs of the other nodes wait for it), and from then on until the node has caught
//! up.
//!
//! `cargo run --release -p quorate-cli --example reseed -- [--size-mib 1024] [--silence-s 30] [--in-flight 64]
//! [--baseline-s 30] [--dir DIR] [--quorate FILE]`

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement of real processes")]

mod harness;

use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Member};
use harness::figures::ms;
use harness::load::Load;
use harness::options::Options;
use harness::{Result, until};

/// How long a node may take to come back, in addition to the silence.
const RESEED_MAX: Duration = Duration::from_secs(600);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut options = Options::typed()?;
    let size_mib = options.number("size-mib", 1024)?;
    let silence = options.number("silence-s", 30)?;
    let in_flight = options.number("in-flight", 64)?;
    let baseline = Duration::from_secs(options.number("baseline-s", 30)?);
    let mut cluster = Cluster::start(&mut options, &[format!("silence = \"{silence} s\"")]).await?;
    options.finish()?;

    cluster.fill(size_mib).await?;
    let sql = cluster.sql().await?;
    let load = Load::start(&sql, in_flight).await?;
    load.take_longest();
    tokio::time::sleep(baseline).await;
    let without = load.take_longest();
    println!("longest wait of a write in {} s with all nodes: {}", baseline.as_secs(), ms(without));

    let leader = cluster.settled().await?;
    let victim = cluster.nodes()?.into_iter().find(|node| node.id != leader.id).ok_or("there is no follower")?;
    let former = cluster.status().await?.members.into_iter().find(|member| member.id == victim.id);
    let former = former.ok_or("the follower is no member")?.raft_id;
    let before = load.acknowledged();
    load.take_longest();
    let start = Instant::now();
    cluster.kill(&victim)?;
    let dir = victim.data_dir.clone();
    // Delete on another thread: this one runs the writers.
    tokio::task::spawn_blocking(move || std::fs::remove_dir_all(dir)).await??;
    let deleted = start.elapsed();
    let deleting = load.take_longest();
    println!("longest wait of a write in the {} in which the directory was deleted: {}", ms(deleted), ms(deleting));
    cluster.restart(victim.id).await?;
    until("the node to come back", RESEED_MAX + Duration::from_secs(silence), async || {
        let members = cluster.status().await.ok()?.members;
        let is_back = |member: &Member| member.id == victim.id && member.raft_id != former && member.is_caught_up();
        members.iter().any(is_back).then_some(())
    })
    .await?;
    let took = start.elapsed();
    println!(
        "node {} came back as a new member after {:.1} s ({silence} s of silence included), {} writes meanwhile",
        victim.id,
        took.as_secs_f64(),
        load.acknowledged() - before
    );
    let written = load.stop().await?;
    let with = written.longest;
    written.check(&sql).await?;
    println!(
        "database {size_mib} MiB, {in_flight} writes in flight, fsync: longest wait of a write {} without, {} with, \
         {} more",
        ms(without),
        ms(with),
        ms(with.saturating_sub(without))
    );
    cluster.stop().await
}
