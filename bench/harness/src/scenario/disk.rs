//! Measures the size of small rows on disk after the cluster had time to clean up, and the bytes that were written for
//! them.

use std::time::{Duration, Instant};

use super::{Bench, Used, add_loaded};
use crate::Result;
use crate::args::{Options, Processes};
use crate::cluster::mib;
use crate::load::{Load, Work};
use crate::report::Report;
use crate::system::NAME_BYTES;

/// The default number of rows.
const ROWS_DEFAULT: u64 = 1_500_000;
/// How long after the last write the size of files is measured.
const SETTLE: Duration = Duration::from_secs(10);

/// Inserts rows, waits, and measures the directory of the node that uses most.
pub(super) async fn measure(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    let mut bench = Bench::start(options, processes, 0).await?;
    let before = Used::by(&bench.cluster)?;
    report.add("disk_bytes_before", bench.cluster.bytes_on_disk());
    let rows = options.rows.or(options.seconds.is_none().then_some(ROWS_DEFAULT));
    let load = Load { rows, seconds: options.seconds, ..bench.load(Work::Name) };
    let loaded = bench.run(load).await?;
    let settled = Instant::now() + SETTLE;
    add_loaded(report, Work::Name, &loaded);
    before.add_time(&bench.cluster, &loaded, report)?;
    bench.check().await?;
    tokio::time::sleep(settled.saturating_duration_since(Instant::now())).await;

    // This includes what was written to clean up after the load.
    before.add_written(&bench.cluster, &loaded, report)?;
    let parts = bench.cluster.bytes_of_a_node();
    let node_bytes: u64 = parts.values().sum();
    report.number("node_mb", node_bytes as f64 / 1e6).number("node_mib", mib(node_bytes));
    report.add("row_bytes", NAME_BYTES);
    report.number("node_bytes_per_row", node_bytes as f64 / loaded.inserted.max(1) as f64);
    for (part, bytes) in parts {
        report.add(format!("node_{part}_bytes"), bytes);
    }
    bench.finish(report).await
}
