//! Measures how long writes wait when the leader is killed.
//!
//! There are three nodes and many writes in flight. The leader is killed by SIGKILL and started again, many times. The
//! program prints the time from each kill to the first acknowledgment of a write that began after it, and checks that
//! the rows at the end are the acknowledged writes.
//!
//! `cargo run --release -p quorate-trials -- failover [--kills 50] [--in-flight 64] [--dir DIR] [--quorate FILE]`

use clap::Args;

use crate::harness::Result;
use crate::harness::cluster::Cluster;
use crate::harness::figures::{Times, ms};
use crate::harness::load::Load;
use crate::harness::options::Options;
use crate::verdict::Verdict;

/// Options of `quorate-trials failover`.
#[derive(Args, Debug)]
pub struct FailoverArgs {
    /// How many times the leader is killed
    #[arg(long, value_name = "N", default_value_t = 50)]
    kills: u64,
    /// How many writes are in flight
    #[arg(long, value_name = "N", default_value_t = 64)]
    in_flight: u64,
    #[command(flatten)]
    options: Options,
}

/// Runs the trial.
pub async fn run(args: FailoverArgs) -> Result<Verdict> {
    let FailoverArgs { kills, in_flight, options } = args;
    let mut cluster = Cluster::start(&options, &[]).await?;

    let sql = cluster.sql().await?;
    let load = Load::start(&sql, in_flight).await?;
    let mut times = Times::default();
    for kill in 1..=kills {
        let leader = cluster.settled().await?;
        let killed = cluster.kill(&leader)?;
        let time = load.acknowledged_after(killed).await? - killed;
        println!("kill {kill:2}, node {}: {}", leader.id, ms(time));
        times.push(time);
        cluster.restart(leader.id).await?;
    }
    cluster.settled().await?;
    let written = load.stop().await?;
    written.check(&sql).await?;
    let text = format!(
        "{kills} kills of the leader, {in_flight} writes in flight, fsync: from kill to the next acknowledged write \
         p50 {}, p99 {}, max {}",
        ms(times.percentile(50)),
        ms(times.percentile(99)),
        ms(times.longest())
    );
    cluster.stop().await?;
    Ok(Verdict::new(text, true))
}
