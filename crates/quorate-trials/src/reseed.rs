//! Measures how long writes wait while a node that lost its data comes back.
//!
//! There are three nodes with a large database, and many writes in flight. A follower is killed by SIGKILL, its
//! directory is deleted, and it is started again. It joins as a new member, once the former member has been silent for
//! long enough. The program prints the longest wait of a write before the kill, while the files were deleted (a cost of
//! the file system: on one disk, the logs of the other nodes wait for it), and from then on until the node has caught
//! up.
//!
//! `cargo run --release -p quorate-trials -- reseed [--size-mib 1024] [--silence-s 30] [--in-flight 64]
//! [--baseline-s 30] [--dir DIR] [--quorate FILE]`

use std::time::{Duration, Instant};

use clap::Args;

use crate::harness::cluster::{Cluster, Member};
use crate::harness::figures::ms;
use crate::harness::load::Load;
use crate::harness::options::Options;
use crate::harness::{Result, until};
use crate::verdict::Verdict;

/// How long a node may take to come back, in addition to the silence.
const RESEED_MAX: Duration = Duration::from_secs(600);

/// Options of `quorate-trials reseed`.
#[derive(Args, Debug)]
pub struct ReseedArgs {
    /// The size of the database
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    size_mib: u64,
    /// How long a member must be silent before it may be replaced
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    silence_s: u64,
    /// How many writes are in flight
    #[arg(long, value_name = "N", default_value_t = 64)]
    in_flight: u64,
    /// How long the writes are measured before the kill
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    baseline_s: u64,
    #[command(flatten)]
    options: Options,
}

/// Runs the trial.
pub async fn run(args: ReseedArgs) -> Result<Verdict> {
    let ReseedArgs { size_mib, silence_s: silence, in_flight, baseline_s, options } = args;
    let baseline = Duration::from_secs(baseline_s);
    let mut cluster = Cluster::start(&options, &[format!("silence = \"{silence} s\"")]).await?;

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
    let text = format!(
        "database {size_mib} MiB, {in_flight} writes in flight, fsync: longest wait of a write {} without, {} with, \
         {} more",
        ms(without),
        ms(with),
        ms(with.saturating_sub(without))
    );
    cluster.stop().await?;
    Ok(Verdict::new(text, true))
}
