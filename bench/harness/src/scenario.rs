//! The measurements, from the start of a cluster to a report.

use std::time::Duration;

use crate::args::{Measure, Options, Processes, Role};
use crate::cluster::{Cluster, mib};
use crate::load::{Load, Loaded, Work};
use crate::machine::{Disk, Usage, written_to_disk};
use crate::report::Report;
use crate::system::{About, Level, System};
use crate::{Durability, Result};

mod disk;
mod hand_over;
mod image;
mod kills;
mod sustained;
mod throughput;

/// The number of rows in the table for measurements of reads.
const ROWS_TO_READ: u64 = 100_000;
/// The default length of the measured part.
const SECONDS_DEFAULT: f64 = 5.0;

/// Runs as a driver.
pub fn run<S: System>(measure: &Measure) -> Result<()> {
    let options = measure.options().ok_or("nothing to measure")?;
    let processes = measure.processes();
    if options.at == Role::Follower && (processes == Processes::One || options.nodes == 1) {
        return Err("clients can call a follower only if it has its own process: use --nodes 3 --process many".into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut report = heading(measure, options, &S::about(options).await?);
        match measure {
            Measure::SqlInsert(_) => throughput::measure(options, processes, Work::Insert, &report).await?,
            Measure::SqlBatch(_) => {
                report.add("batch", options.batch);
                throughput::measure(options, processes, Work::Batch { rows: options.batch }, &report).await?;
            }
            Measure::SqlSelect(_) | Measure::Mixed(_) => {
                let writes = if matches!(measure, Measure::Mixed(_)) { options.writes } else { 0 };
                report.add("level", level_name(options.level)).add("writes_percent", writes);
                let work = Work::Mixed { ids: ROWS_TO_READ, writes, level: options.level };
                throughput::measure(options, processes, work, &report).await?;
            }
            _ if options.is_outside() => {
                return Err("servers that already run can be measured only with sql-* and mixed".into());
            }
            _ if options.concurrency.len() > 1 => {
                return Err("--concurrency takes only one number for this measurement".into());
            }
            _ if options.at == Role::Follower => {
                return Err("--at follower is only possible with sql-* and mixed".into());
            }
            _ => {
                other(measure, options, processes, &mut report).await?;
                report.add("finished", true).print(options.json)?;
            }
        }
        Ok(())
    })
}

/// Runs a measurement that has one report, for one number of clients.
async fn other(measure: &Measure, options: &Options, processes: Processes, report: &mut Report) -> Result<()> {
    report.add("concurrency", options.clients());
    match measure {
        Measure::Restart(_) => kills::restart(options, processes, report).await,
        Measure::Failover(_) => kills::failover(options, processes, report).await,
        Measure::HandOver(_) => hand_over::measure(options, processes, report).await,
        Measure::Disk(_) => disk::measure(options, processes, report).await,
        Measure::Image(_) => image::measure(options, processes, report).await,
        Measure::Sustained(_) => sustained::measure(options, processes, report).await,
        _ => Err("this subcommand measures nothing".into()),
    }
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
    let at = match options.at {
        Role::Leader => "leader",
        Role::Follower => "follower",
    };
    let mut report = Report::default();
    report.add("bench", measure.name()).add("system", options.system.name());
    report.add("version", about.version.as_str()).add("sqlite", about.sqlite.as_str());
    report.add("durability", durability).add("acknowledged", about.acknowledged.as_str());
    report.add("configuration", about.configuration.as_str());
    report.add("nodes", options.nodes).add("process", processes).add("at", at).add("db_size_mib", options.db_size);
    report
}

/// The measured cluster, and what was acknowledged so far.
struct Bench<'a> {
    options: &'a Options,
    clients: u64,
    cluster: Cluster,
    disk: Disk,
    next_id: i64,
    acknowledged: u64,
    unsure: u64,
}

impl<'a> Bench<'a> {
    /// Starts a cluster with `rows` rows in it, and probes the disk once the nodes are idle.
    async fn start(options: &'a Options, processes: Processes, rows: u64) -> Result<Self> {
        let mut cluster = Cluster::start(options, processes).await?;
        cluster.prepare(rows, options.db_size).await?;
        cluster.quiet().await?;
        let (clients, disk) = (options.clients(), Disk::probe(cluster.dir())?);
        Ok(Self { options, clients, cluster, disk, next_id: i64::try_from(rows)? + 1, acknowledged: rows, unsure: 0 })
    }

    /// Continues with another number of clients, once the nodes are idle again.
    async fn continue_with(&mut self, clients: u64) -> Result<()> {
        self.clients = clients;
        self.cluster.quiet().await?;
        self.disk = Disk::probe(self.cluster.dir())?;
        Ok(())
    }

    fn load(&self, work: Work) -> Load {
        let Options { rows, seconds, .. } = *self.options;
        let seconds = seconds.or(rows.is_none().then_some(SECONDS_DEFAULT));
        Load { work, concurrency: self.clients, rows, seconds, first_id: self.next_id }
    }

    /// Runs a load and counts what it wrote.
    async fn run(&mut self, load: Load) -> Result<Loaded> {
        let loaded = self.cluster.run(load, self.options.at).await?;
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

    /// Checks that every node has the acknowledged rows.
    async fn check(&mut self) -> Result<()> {
        self.cluster.check(self.acknowledged, self.unsure).await
    }

    /// Adds the figures of every report, once all nodes have the acknowledged rows.
    async fn finish(&mut self, report: &mut Report) -> Result<()> {
        self.check().await?;
        if !self.options.is_outside() {
            let Usage { peak_memory, .. } = self.cluster.usage()?;
            report.number("peak_memory_mib", mib(peak_memory)).add("disk_bytes", self.cluster.bytes_on_disk());
        }
        report.add("rows_acknowledged", self.acknowledged).add("rows_unsure", self.unsure).disk(&self.disk);
        Ok(())
    }
}

/// Adds the number of operations, their rates and times, and the failures.
fn add_loaded(report: &mut Report, work: Work, loaded: &Loaded) {
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
        Work::Insert | Work::Batch { .. } | Work::Name | Work::Upsert { .. } => {
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
}

/// The resources that were used before a load.
struct Used {
    hosts: Usage,
    written: Option<u64>,
}

impl Used {
    fn by(cluster: &Cluster) -> Result<Self> {
        Ok(Self { written: written_to_disk(cluster.dir())?, hosts: cluster.usage()? })
    }

    /// Adds the processor time of a load that has just ended.
    fn add_time(&self, cluster: &Cluster, loaded: &Loaded, report: &mut Report) -> Result<()> {
        let after = cluster.usage()?;
        let seconds = |after: Duration, before| after.saturating_sub(before).as_secs_f64();
        let cpu = seconds(after.cpu, self.hosts.cpu);
        let operations = (loaded.writes.count + loaded.reads.count).max(1) as f64;
        report.number("cpu_us_per_operation", cpu * 1e6 / operations).number("cpus_busy", cpu / loaded.seconds);
        report.number("others_cpus_busy", seconds(after.others_cpu, self.hosts.others_cpu) / loaded.seconds);
        Ok(())
    }

    /// Adds the bytes that were written to the disk for the load.
    fn add_written(&self, cluster: &Cluster, loaded: &Loaded, report: &mut Report) -> Result<()> {
        if loaded.inserted > 0
            && let (Some(before), Some(after)) = (self.written, written_to_disk(cluster.dir())?)
        {
            let written = after.saturating_sub(before);
            report.add("written_bytes", written);
            report.number("written_bytes_per_row", written as f64 / loaded.inserted as f64);
        }
        Ok(())
    }
}

/// Some times in milliseconds.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn push(&mut self, time: f64) {
        self.0.push(time);
        self.0.sort_by(f64::total_cmp);
    }

    /// Returns the smallest time that is not exceeded by `percent` of the times.
    fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    fn median(&self) -> f64 {
        self.percentile(50)
    }

    fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_measured_times() {
        let mut times = Times::default();
        assert_eq!((times.median(), times.max()), (0.0, 0.0));
        for time in [30.0, 10.0, 20.0] {
            times.push(time);
        }
        assert_eq!([times.median(), times.percentile(99), times.max()], [20.0, 30.0, 30.0]);
        (4..=100).for_each(|time| times.push(f64::from(time) * 10.0));
        assert_eq!([times.median(), times.percentile(99), times.max()], [500.0, 990.0, 1000.0]);
    }
}
