//! Measures a clean stop of the leader, as in a rolling restart, while clients of another node write.

use super::{Bench, Times};
use crate::Result;
use crate::args::{Options, Processes};
use crate::load::{AROUND_KILL, Work};
use crate::report::Report;

/// Measures for each stop the longest time that a client was without an acknowledgement.
pub(super) async fn measure(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    if processes == Processes::One || options.nodes == 1 {
        return Err("a hand-over needs 3 nodes with a process for each: use --nodes 3 --process many".into());
    }
    let mut bench = Bench::start(options, processes, 0).await?;
    bench.warm_up(Work::Insert).await?;
    let (mut waits, mut stops, mut failed) = (Times::default(), Times::default(), 0);
    for _ in 0..options.kills {
        let leader = bench.cluster.leader().await?;
        let other = (leader + 1) % bench.cluster.hosts.len();
        let (stopped, loaded) = bench
            .cluster
            .run_during(bench.load(Work::Insert), [other, leader], async |host| {
                tokio::time::sleep(AROUND_KILL).await;
                let stopped = host.stop().await?;
                tokio::time::sleep(AROUND_KILL).await;
                Ok(stopped)
            })
            .await?;
        bench.count(&loaded);
        waits.push(loaded.wait_max_us / 1e3);
        stops.push(stopped.as_secs_f64() * 1e3);
        failed += loaded.failed.as_ref().map_or(0, |(count, _)| *count);
        bench.cluster.restart(leader).await?;
        bench.cluster.host(leader)?.started().await?;
        bench.check().await?;
    }
    report.add("stops", options.kills).number("wait_ms", waits.median()).number("wait_max_ms", waits.max());
    report.number("stop_ms", stops.median()).add("failed", failed);
    bench.finish(report).await
}
