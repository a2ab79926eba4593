//! Measures how long it takes until killed nodes, or the other nodes, serve again.

use std::time::Instant;

use super::{Bench, Times};
use crate::Result;
use crate::args::{Options, Processes};
use crate::load::Work;
use crate::report::Report;

/// Measures how long a killed node takes to serve again.
pub(super) async fn restart(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    let mut bench = Bench::start(options, processes, 0).await?;
    let mut times = Times::default();
    for _ in 0..options.kills {
        let loaded = bench.run(bench.load(Work::Insert)).await?;
        if let Some((failed, reason)) = loaded.failed {
            return Err(format!("{failed} inserts failed, so the last row is not known: {reason}").into());
        }
        let leader = bench.cluster.leader().await?;
        // In a cluster a follower is killed, because the restart of a leader would include an election.
        let victim = (leader + 1) % bench.cluster.hosts.len();
        let start = Instant::now();
        bench.cluster.restart(victim).await?;
        bench.cluster.host(victim)?.ready(bench.next_id - 1).await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        bench.check().await?;
    }
    report.add("kills", options.kills).number("ready_ms", times.median()).number("ready_max_ms", times.max());
    bench.finish(report).await
}

/// Measures how long no write is acknowledged after the leader is killed.
pub(super) async fn failover(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    if processes == Processes::One || options.nodes == 1 {
        return Err("a failover needs 3 nodes with a process for each: use --nodes 3 --process many".into());
    }
    let mut bench = Bench::start(options, processes, 0).await?;
    let (mut times, mut failed) = (Times::default(), 0);
    for _ in 0..options.kills {
        let leader = bench.cluster.leader().await?;
        let pid = bench.cluster.host(leader)?.pid()?;
        let other = (leader + 1) % bench.cluster.hosts.len();
        let load = bench.load(Work::Insert);
        let recovered = bench.cluster.host(other)?.failover(load, pid).await?;
        times.push(recovered.gap_ms);
        failed += recovered.loaded.failed.as_ref().map_or(0, |(count, _)| *count);
        bench.count(&recovered.loaded);
        bench.cluster.restart(leader).await?;
        bench.cluster.host(leader)?.started().await?;
        bench.check().await?;
    }
    report.add("kills", options.kills).number("gap_ms", times.median());
    report.number("gap_p99_ms", times.percentile(99)).number("gap_max_ms", times.max());
    report.add("failed", failed);
    bench.finish(report).await
}
