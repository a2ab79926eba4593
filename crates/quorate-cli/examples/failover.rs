//! Measures how long writes wait when the leader is killed.
//!
//! There are three nodes and many writes in flight. The leader is killed by SIGKILL and started again, many times. The
//! program prints the time from each kill to the first acknowledgment of a write that began after it, and checks that
//! the rows at the end are the acknowledged writes.
//!
//! `cargo run --release -p quorate-cli --example failover -- [--kills 50] [--in-flight 64] [--dir DIR]
//! [--quorate FILE]`

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement of real processes")]

mod harness;

use harness::cluster::Cluster;
use harness::figures::{Times, ms};
use harness::load::Load;
use harness::options::Options;

#[tokio::main(flavor = "current_thread")]
async fn main() -> harness::Result<()> {
    let mut options = Options::typed()?;
    let kills = options.number("kills", 50)?;
    let in_flight = options.number("in-flight", 64)?;
    let mut cluster = Cluster::start(&mut options, &[]).await?;
    options.finish()?;

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
    println!(
        "{kills} kills of the leader, {in_flight} writes in flight, fsync: from kill to the next acknowledged write \
         p50 {}, p99 {}, max {}",
        ms(times.percentile(50)),
        ms(times.percentile(99)),
        ms(times.longest())
    );
    cluster.stop().await
}
