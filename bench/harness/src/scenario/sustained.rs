//! Upserts at full speed for as long as one likes.

use super::Bench;
use crate::Result;
use crate::args::{Options, Processes};
use crate::cluster::mib;
use crate::load::{Load, Work};
use crate::report::Report;

/// Keys that are written again and again.
const KEYS: u64 = 100_000;
/// Seconds of a slice, after which files are looked at.
const SLICE_SECONDS: f64 = 10.0;
/// Seconds, if nothing is said.
const SECONDS_DEFAULT: f64 = 60.0;
/// A slice with a write that took longer is counted.
const SLOW_US: f64 = 50_000.0;

/// Measures slice after slice; tells of the first and the last minute, or of the first and the last slice of a shorter
/// run.
pub(super) async fn measure(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    let mut bench = Bench::start(options, processes, KEYS).await?;
    let slices = (options.seconds.unwrap_or(SECONDS_DEFAULT) / SLICE_SECONDS).ceil().max(2.0) as usize;
    let work = Work::Upsert { ids: KEYS };
    let load = Load { rows: None, seconds: Some(SLICE_SECONDS), ..bench.load(work) };
    let (mut rates, mut max_us, mut slow, mut bytes_max) = (Vec::new(), 0.0_f64, 0, 0);
    for _ in 0..slices {
        // No row is added: what was acknowledged at the start is what must be there.
        let loaded = bench.cluster.run(load.clone()).await?;
        rates.push(loaded.inserted as f64 / loaded.seconds);
        max_us = max_us.max(loaded.writes.max_us);
        slow += usize::from(loaded.writes.max_us > SLOW_US);
        bytes_max = bytes_max.max(bench.cluster.bytes_on_disk());
    }
    let ends = (60.0 / SLICE_SECONDS) as usize;
    let ends = if slices >= 2 * ends { ends } else { 1 };
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let (first, last) = (mean(&rates[..ends]), mean(&rates[slices - ends..]));
    report.number("upserts_per_s", mean(&rates)).number("first_per_s", first).number("last_per_s", last);
    report.number("last_to_first", last / first).number("max_us", max_us);
    report.add("slices", slices).add("slices_with_a_slow_write", slow);
    report.number("disk_max_mib", mib(bytes_max));
    bench.finish(report).await
}
