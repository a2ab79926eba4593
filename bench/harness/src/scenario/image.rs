//! A follower that loses its directory under load.

use super::Bench;
use crate::Result;
use crate::args::{Options, Processes};
use crate::cluster::mib;
use crate::load::{Load, Work};
use crate::report::Report;

/// Measures the writers alone, then while a follower gets everything anew, and how long that takes.
pub(super) async fn measure(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    /// How long writers go on at most while the follower is away, if nothing is said.
    const SECONDS_MAX: f64 = 60.0;
    if processes == Processes::One || options.nodes == 1 {
        return Err("an image needs 3 nodes and a process for each: --nodes 3 --process many".into());
    }
    let mut bench = Bench::start(options, processes, 0).await?;
    bench.warm_up(Work::Insert).await?;
    let alone = bench.run(bench.load(Work::Insert)).await?;
    let alone_per_s = alone.inserted as f64 / alone.seconds;
    bench.check().await?;

    let victim = (bench.cluster.leader().await? + 1) % bench.cluster.hosts.len();
    let database = bench.cluster.bytes_of_a_node().get("db").copied().unwrap_or_default();
    let load = Load { seconds: Some(options.seconds.unwrap_or(SECONDS_MAX)), rows: None, ..bench.load(Work::Insert) };
    bench.cluster.wipe(victim).await?;
    let (ready, loaded) = bench.cluster.run_until_ready(load, victim, bench.next_id - 1).await?;
    bench.count(&loaded);
    let meanwhile_per_s = loaded.inserted as f64 / loaded.seconds;
    report.number("ready_ms", ready.as_secs_f64() * 1e3).number("database_mib", mib(database));
    report.number("database_mib_per_s", mib(database) / ready.as_secs_f64());
    report.number("inserts_per_s_alone", alone_per_s).number("inserts_per_s", meanwhile_per_s);
    report.number("share_of_alone", meanwhile_per_s / alone_per_s).times("", &loaded.writes);
    bench.finish(report).await
}
