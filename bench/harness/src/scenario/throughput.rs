//! Measures the operations per second for each number of clients.

use super::{Bench, ROWS_TO_READ, Used, add_loaded};
use crate::Result;
use crate::args::{Options, Processes};
use crate::load::Work;
use crate::report::Report;

/// Measures all numbers of clients on one cluster, and prints a report for each.
pub(super) async fn measure(options: &Options, processes: Processes, work: Work, heading: &Report) -> Result<()> {
    let rows = if matches!(work, Work::Mixed { .. }) { ROWS_TO_READ } else { 0 };
    let mut bench = Bench::start(options, processes, rows).await?;
    for &clients in &options.concurrency {
        if clients != bench.clients {
            bench.continue_with(clients).await?;
        }
        let mut report = heading.clone();
        report.add("concurrency", clients);
        bench.warm_up(work).await?;
        let before = Used::by(&bench.cluster)?;
        let loaded = bench.run(bench.load(work)).await?;
        add_loaded(&mut report, work, &loaded);
        if !options.is_outside() {
            before.add_time(&bench.cluster, &loaded, &mut report)?;
            before.add_written(&bench.cluster, &loaded, &mut report)?;
        }
        bench.finish(&mut report).await?;
        report.add("finished", true).print(options.json)?;
    }
    Ok(())
}
