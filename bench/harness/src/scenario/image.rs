//! Measures how a follower that loses its directory under load is restored.

use std::time::Instant;

use super::Bench;
use crate::Result;
use crate::args::{Options, Processes};
use crate::cluster::{Host, mib};
use crate::load::Work;
use crate::report::Report;

/// Measures the writers alone, then the writers while a follower receives the whole database, and how long that takes.
pub(super) async fn measure(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    if processes == Processes::One || options.nodes == 1 {
        return Err("an image needs 3 nodes with a process for each: use --nodes 3 --process many".into());
    }
    let mut bench = Bench::start(options, processes, 0).await?;
    bench.warm_up(Work::Insert).await?;
    let alone = bench.run(bench.load(Work::Insert)).await?;
    let alone_per_s = alone.inserted as f64 / alone.seconds;
    bench.check().await?;

    let leader = bench.cluster.leader().await?;
    let victim = (leader + 1) % bench.cluster.hosts.len();
    let database = bench.cluster.host(leader)?.database_bytes().await?;
    bench.cluster.wipe(victim).await?;
    let (load, last) = (bench.load(Work::Insert), bench.next_id - 1);
    let ready = async |host: &mut Host| {
        let begin = Instant::now();
        host.ready(last).await?;
        Ok(begin.elapsed().as_secs_f64())
    };
    let (ready, loaded) = bench.cluster.run_during(load, [leader, victim], ready).await?;
    bench.count(&loaded);
    let meanwhile_per_s = loaded.inserted as f64 / loaded.seconds;
    report.number("ready_ms", ready * 1e3).number("database_mib", mib(database));
    report.number("database_mb_per_s", database as f64 / 1e6 / ready);
    report.number("inserts_per_s_alone", alone_per_s).number("inserts_per_s", meanwhile_per_s);
    report.number("share_of_alone", meanwhile_per_s / alone_per_s).times("", &loaded.writes);
    bench.finish(report).await
}
