//! The measurements, from a start of a cluster to a report.

use std::time::Instant;

use crate::args::{Measure, Options, Processes};
use crate::cluster::{Cluster, mib};
use crate::load::{Load, Loaded, Work};
use crate::machine::{Disk, Usage};
use crate::report::Report;
use crate::system::{About, Level, Row, System};
use crate::{Durability, Result};

mod image;
mod sustained;

/// Rows in the table when rows are read.
const ROWS_TO_READ: u64 = 100_000;
/// How long a measured part lasts if nothing is said.
const SECONDS_DEFAULT: f64 = 5.0;
/// Rows that are inserted to see what they take on disk, if nothing is said: files that are made ahead of use, and
/// written in full then, weigh less the more there are.
const ROWS_ON_DISK: u64 = 300_000;

/// Is a driver.
pub fn run<S: System>(measure: &Measure) -> Result<()> {
    let options = measure.options().ok_or("nothing to measure")?;
    let about = S::about(options.durability, options.nodes)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut report = heading(measure, options, &about);
    runtime.block_on(async {
        let processes = measure.processes();
        match measure {
            Measure::SqlInsert(_) => throughput(options, processes, Work::Insert, &mut report).await,
            Measure::SqlBatch(_) => {
                report.add("batch", options.batch);
                throughput(options, processes, Work::Batch { rows: options.batch }, &mut report).await
            }
            Measure::SqlSelect(_) => {
                let work = Work::Mixed { ids: ROWS_TO_READ, writes: 0, level: options.level };
                report.add("level", level_name(options.level));
                throughput(options, processes, work, &mut report).await
            }
            Measure::Mixed(_) => {
                report.add("writes_percent", options.writes);
                let work = Work::Mixed { ids: ROWS_TO_READ, writes: options.writes, level: options.level };
                report.add("level", level_name(options.level));
                throughput(options, processes, work, &mut report).await
            }
            Measure::Disk(_) => disk(options, processes, &mut report).await,
            Measure::Restart(_) => restart(options, processes, &mut report).await,
            Measure::Failover(_) => failover(options, processes, &mut report).await,
            Measure::Image(_) => image::measure(options, processes, &mut report).await,
            Measure::Sustained(_) => sustained::measure(options, processes, &mut report).await,
            Measure::Host { .. } => Err("a host measures nothing".into()),
        }
    })?;
    report.add("finished", true);
    report.print(options.json)
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Local => "local",
        Level::Linearizable => "linearizable",
    }
}

fn heading(measure: &Measure, options: &Options, about: &About) -> Report {
    let processes = match measure.processes() {
        Processes::One => "one",
        Processes::Many => "many",
    };
    let durability = match options.durability {
        Durability::Fsync => "fsync",
        Durability::Os => "os",
    };
    let mut report = Report::default();
    report.add("bench", measure.name()).add("system", options.system.name());
    report.add("version", about.version.as_str()).add("sqlite", about.sqlite.as_str());
    report.add("durability", durability).add("acknowledged", about.acknowledged.as_str());
    report.add("configuration", about.configuration.as_str());
    report.add("nodes", options.nodes).add("process", processes);
    report.add("concurrency", options.concurrency).add("db_size_mib", options.db_size);
    report
}

/// A cluster that is measured: what was acknowledged so far.
struct Bench<'a> {
    options: &'a Options,
    cluster: Cluster,
    disk: Disk,
    next_id: i64,
    acknowledged: u64,
    unsure: u64,
}

impl<'a> Bench<'a> {
    /// Starts a cluster with so many rows in it; asks the disk once all is quiet.
    async fn start(options: &'a Options, processes: Processes, rows: u64) -> Result<Self> {
        let mut cluster = Cluster::start(options, processes).await?;
        cluster.prepare(rows, options.db_size).await?;
        cluster.quiet().await?;
        let disk = Disk::probe(cluster.dir())?;
        Ok(Self { options, cluster, disk, next_id: i64::try_from(rows)? + 1, acknowledged: rows, unsure: 0 })
    }

    fn load(&self, work: Work) -> Load {
        let Options { rows, seconds, concurrency, .. } = *self.options;
        let seconds = seconds.or(rows.is_none().then_some(SECONDS_DEFAULT));
        Load { work, concurrency, rows, seconds, first_id: self.next_id }
    }

    /// Runs a load and counts what it wrote.
    async fn run(&mut self, load: Load) -> Result<Loaded> {
        let loaded = self.cluster.run(load).await?;
        self.count(&loaded);
        Ok(loaded)
    }

    fn count(&mut self, loaded: &Loaded) {
        self.next_id = loaded.next_id;
        self.acknowledged += loaded.inserted;
        self.unsure += loaded.unsure;
    }

    async fn warm_up(&mut self, work: Work) -> Result<()> {
        if self.options.warm_up > 0.0 {
            let load = Load { rows: None, seconds: Some(self.options.warm_up), ..self.load(work) };
            self.run(load).await?;
        }
        Ok(())
    }

    /// Demands the rows that were acknowledged on every node.
    async fn check(&mut self) -> Result<()> {
        self.cluster.check(self.acknowledged, self.unsure).await
    }

    /// Adds what every run tells at its end.
    async fn finish(mut self, report: &mut Report) -> Result<()> {
        self.check().await?;
        let Usage { peak_memory, .. } = self.cluster.usage()?;
        report.number("peak_memory_mib", mib(peak_memory)).add("disk_bytes", self.cluster.bytes_on_disk());
        report.add("rows_acknowledged", self.acknowledged).add("rows_unsure", self.unsure).disk(&self.disk);
        Ok(())
    }
}

/// Adds how many operations there were, how fast they were, what failed, what they cost.
fn add_loaded(report: &mut Report, work: Work, loaded: &Loaded, used: [Usage; 2]) {
    let Loaded { writes, reads, seconds, inserted, .. } = loaded;
    let operations = writes.count + reads.count;
    report.number("seconds", *seconds);
    match work {
        Work::Mixed { writes: 0, .. } => {
            report.number("selects_per_s", reads.count as f64 / seconds).times("", reads);
        }
        Work::Mixed { .. } => {
            report.number("operations_per_s", operations as f64 / seconds);
            report.number("selects_per_s", reads.count as f64 / seconds).times("read_", reads);
            report.number("inserts_per_s", *inserted as f64 / seconds).times("write_", writes);
        }
        Work::Insert | Work::Batch { .. } | Work::Upsert { .. } => {
            report.number("inserts_per_s", *inserted as f64 / seconds).times("", writes);
        }
    }
    report.add("operations", operations);
    for (stage, mean_us) in &loaded.stages {
        report.number(format!("stage_{stage}_us"), *mean_us);
    }
    if let Some((failed, reason)) = &loaded.failed {
        report.add("failed", *failed).add("failure", reason.as_str());
    }
    let [before, after] = used;
    let cpu = (after.cpu.saturating_sub(before.cpu)).as_secs_f64();
    report.number("cpu_us_per_operation", cpu * 1e6 / operations.max(1) as f64);
    report.number("cpus_busy", cpu / seconds);
    let others = after.others_cpu.saturating_sub(before.others_cpu).as_secs_f64();
    report.number("others_cpus_busy", others / seconds);
}

/// How many operations a second.
async fn throughput(options: &Options, processes: Processes, work: Work, report: &mut Report) -> Result<()> {
    let rows = if matches!(work, Work::Mixed { .. }) { ROWS_TO_READ } else { 0 };
    let mut bench = Bench::start(options, processes, rows).await?;
    bench.warm_up(work).await?;
    let before = bench.cluster.usage()?;
    let loaded = bench.run(bench.load(work)).await?;
    add_loaded(report, work, &loaded, [before, bench.cluster.usage()?]);
    bench.finish(report).await
}

/// What inserts take on disk.
async fn disk(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    let mut bench = Bench::start(options, processes, 0).await?;
    let (before, taken) = (bench.cluster.usage()?, bench.cluster.bytes_on_disk());
    report.add("disk_bytes_before", taken);
    let mut load = bench.load(Work::Insert);
    if options.rows.is_none() && options.seconds.is_none() {
        (load.rows, load.seconds) = (Some(ROWS_ON_DISK), None);
    }
    let loaded = bench.run(load).await?;
    bench.check().await?;
    let after = bench.cluster.usage()?;
    add_loaded(report, Work::Insert, &loaded, [before, after]);
    let (rows, row_bytes) = (loaded.inserted.max(1) as f64, Row::new(1).bytes());
    let written = after.written - before.written;
    report.add("row_bytes", row_bytes).add("written_bytes", written);
    report.number("written_bytes_per_row", written as f64 / rows);
    report.number("write_amplification", written as f64 / rows / row_bytes as f64);
    for (part, bytes) in bench.cluster.bytes_of_a_node() {
        report.add(format!("node_1_{part}_bytes"), bytes);
    }
    bench.finish(report).await
}

/// How long a killed node takes to serve again.
async fn restart(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    let mut bench = Bench::start(options, processes, 0).await?;
    let mut times = Times::default();
    for _ in 0..options.kills {
        let loaded = bench.run(bench.load(Work::Insert)).await?;
        if let Some((failed, reason)) = loaded.failed {
            return Err(format!("{failed} inserts failed, so that the last row is not known: {reason}").into());
        }
        let leader = bench.cluster.leader().await?;
        // Where there are others, a follower: a leader's restart would measure an election.
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

/// How long writes stand still when the leader is killed.
async fn failover(options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    if processes == Processes::One || options.nodes == 1 {
        return Err("a failover needs 3 nodes and a process for each: --nodes 3 --process many".into());
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
    report.add("kills", options.kills).number("gap_ms", times.median()).number("gap_max_ms", times.max());
    report.add("failed", failed);
    bench.finish(report).await
}

/// A few times in milliseconds.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn push(&mut self, time: f64) {
        self.0.push(time);
        self.0.sort_by(f64::total_cmp);
    }

    fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }
}
