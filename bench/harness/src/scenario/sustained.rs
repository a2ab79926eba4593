//! Measures upserts at full speed over a long time.

use super::Bench;
use crate::Result;
use crate::args::{Options, Processes};
use crate::cluster::mib;
use crate::load::{Load, Loaded, Span, Work};
use crate::report::Report;

/// The number of keys that are written again and again.
const KEYS: u64 = 100_000;
/// The seconds of a slice, after which the size of files is measured.
const SLICE_SECONDS: f64 = 10.0;
/// The default length in seconds.
const SECONDS_DEFAULT: f64 = 60.0;

/// Measures slice after slice, and compares the first minute with the last, or the first slice with the last in a
/// shorter run.
pub(super) async fn measure(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    let mut bench = Bench::start(options, processes, KEYS).await?;
    let slices = (options.seconds.unwrap_or(SECONDS_DEFAULT) / SLICE_SECONDS).ceil().max(2.0) as usize;
    let work = Work::Upsert { ids: KEYS };
    let load = Load { rows: None, seconds: Some(SLICE_SECONDS), ..bench.load(work) };
    let (mut rates, mut max_us, mut bytes_max, mut slow) = (Vec::new(), 0.0_f64, 0, Slow::default());
    for slice in 0..slices {
        // The slices are not counted, because they add no rows: the rows that were acknowledged at the start must be
        // present.
        let loaded = bench.cluster.run(load.clone(), options.at).await?;
        rates.push(loaded.inserted as f64 / loaded.seconds);
        max_us = max_us.max(loaded.writes.max_us);
        slow.add(slice as f64 * SLICE_SECONDS, &loaded);
        bytes_max = bytes_max.max(bench.cluster.bytes_on_disk());
    }
    let ends = (60.0 / SLICE_SECONDS) as usize;
    let ends = if slices >= 2 * ends { ends } else { 1 };
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let first = mean(rates.get(..ends).unwrap_or_default());
    let last = mean(rates.get(slices - ends..).unwrap_or_default());
    report.number("upserts_per_s", mean(&rates)).number("first_per_s", first).number("last_per_s", last);
    report.number("last_to_first", last / first).number("max_us", max_us);
    report.add("slices", slices);
    report.add("writes_over_50_ms", slow.writes).add("of_them_beside_no_long_sync", slow.unexplained);
    report.add("syncs_over_50_ms", slow.syncs).add("when_over_50_ms", slow.texts);
    report.number("disk_max_mib", mib(bytes_max));
    bench.finish(report).await
}

/// The writes and syncs of the log that took longer than 50 ms.
#[derive(Default)]
struct Slow {
    writes: usize,
    unexplained: usize,
    syncs: usize,
    /// A text for each of them. Writes that overlap are reported as one.
    texts: Vec<String>,
}

impl Slow {
    /// Adds those of a slice that began `begin` seconds after the start.
    fn add(&mut self, begin: f64, loaded: &Loaded) {
        let text = |what: &str, span: &Span| {
            format!("{what} from {:.3} s for {:.0} ms", begin + span.from, (span.to - span.from) * 1e3)
        };
        let syncs = &loaded.long_syncs;
        self.syncs += syncs.len();
        self.texts.extend(syncs.iter().map(|sync| text("a sync", sync)));
        let mut writes = loaded.slow_writes.clone();
        writes.sort_by(|a, b| a.from.total_cmp(&b.from));
        self.writes += writes.len();
        let is_explained = |write: &Span| syncs.iter().any(|sync| sync.overlaps(write));
        self.unexplained += writes.iter().filter(|write| !is_explained(write)).count();
        writes.dedup_by(|next, first| first.overlaps(next));
        self.texts.extend(writes.iter().map(|write| text("writes", write)));
    }
}
