//! Measures appends to a log with a given number of pending appends: Quorate's log, the crate raft-log, and plain
//! writes.
//!
//! Both logs run their own threads. One thread appends each entry by a separate call with a separate completion, and
//! appends the next entry as soon as one completes. Plain writes put all pending entries into one write with one
//! `fdatasync` and call no completions, so no log can be faster.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use quorate_bench_harness::{Disk, Histogram, Report, Result, Summary, data_dir};
use serde_json::{Value, json};

mod peer_log;
mod plain;
mod quorate_log;

use peer_log::PeerLog;
use quorate_log::QuorateLog;

/// The maximum time of an append.
const APPEND_MAX: Duration = Duration::from_secs(60);

/// The options of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The numbers of pending appends to measure.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64, 512])]
    pending: Vec<u32>,
    /// The bytes of an entry.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    entry_bytes: u32,
    /// The seconds for each figure.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// A directory for the data, on the disk to be measured; by default beside this program. The data are removed at
    /// the end.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print one line of JSON as the last line.
    #[arg(long)]
    json: bool,
}

/// A log that is measured.
trait Log {
    /// Appends an entry. Its number is sent to `done` when it is durable.
    fn append(&mut self, number: u64, done: &Done) -> Result<()>;

    /// Returns how often the log has synced so far, if it counts that.
    fn syncs(&self) -> Option<u64>;
}

/// The sender of completions: the number of the entry, or an error.
type Done = Sender<Result<u64, String>>;

/// The figures of a log.
struct Figures {
    appends_per_s: f64,
    syncs_per_s: Option<f64>,
    times: Summary,
}

/// Measures all logs, one after the other for each number of pending appends.
pub fn run(options: &Options) -> Result<()> {
    let dir = data_dir(options.dir.as_deref())?;
    let disk = Disk::probe(dir.path())?;
    let mut runs = Vec::new();
    for &pending in &options.pending {
        for (log, measure) in LOGS {
            let log_dir = dir.path().join(format!("{log}-{pending}"));
            std::fs::create_dir(&log_dir)?;
            let figures = measure(&log_dir, pending.max(1), options)?;
            if !options.json {
                println!("{}", figures.line(log, pending));
            }
            runs.push(figures.value(log, pending));
            std::fs::remove_dir_all(&log_dir)?;
        }
    }
    let mut report = Report::default();
    report.add("bench", "wal").add("durability", "fsync").add("entry_bytes", options.entry_bytes);
    if options.json {
        report.add("runs", runs);
    }
    report.disk(&disk).add("finished", true);
    report.print(options.json)
}

/// Measures a log in a directory, with the given number of pending appends.
type Measure = fn(&Path, u32, &Options) -> Result<Figures>;

const LOGS: [(&str, Measure); 3] = [
    ("plain", plain::measure),
    ("quorate-wal", |dir, pending, options| pend(QuorateLog::open(dir, options.entry_bytes)?, pending, options)),
    ("raft-log", |dir, pending, options| pend(PeerLog::open(dir, options.entry_bytes, pending)?, pending, options)),
];

/// Appends for a while, always with the same number of pending appends.
fn pend(mut log: impl Log, pending: u32, options: &Options) -> Result<Figures> {
    let (done, completed) = channel();
    let syncs = log.syncs();
    let mut appended = Appended { log: &mut log, done, begins: Vec::new(), completed, times: Histogram::default() };
    let begin = Instant::now();
    for _ in 0..pending {
        appended.append()?;
    }
    while begin.elapsed() < Duration::from_secs(options.seconds) {
        appended.complete()?;
        appended.append()?;
    }
    for _ in 0..pending {
        appended.complete()?;
    }
    let (seconds, times) = (begin.elapsed().as_secs_f64(), appended.times.summary());
    let syncs = log.syncs().zip(syncs).map(|(after, before)| (after - before) as f64 / seconds);
    Ok(Figures { appends_per_s: times.count as f64 / seconds, syncs_per_s: syncs, times })
}

/// A log with pending appends.
struct Appended<'a, L> {
    log: &'a mut L,
    done: Done,
    completed: Receiver<Result<u64, String>>,
    /// When each entry was appended.
    begins: Vec<Instant>,
    times: Histogram,
}

impl<L: Log> Appended<'_, L> {
    fn append(&mut self) -> Result<()> {
        let number = self.begins.len() as u64;
        self.begins.push(Instant::now());
        self.log.append(number, &self.done)
    }

    fn complete(&mut self) -> Result<()> {
        let number = self.completed.recv_timeout(APPEND_MAX)??;
        let begin = self.begins.get(usize::try_from(number)?).ok_or("an entry completed that was not appended")?;
        self.times.record(begin.elapsed());
        Ok(())
    }
}

/// Returns bytes that can't be compressed and are the same in every run.
fn payload(bytes: u32) -> Vec<u8> {
    let mut payload = vec![0; bytes as usize];
    quorate_env::Rng::from_seed(1).fill(&mut payload);
    payload
}

impl Figures {
    fn line(&self, log: &str, pending: u32) -> String {
        let Self { appends_per_s, times, .. } = self;
        let syncs = self.syncs_per_s.map_or_else(|| "-".to_owned(), |syncs| format!("{syncs:.0}"));
        let rates = format!("{appends_per_s:>10.0} appends/s {syncs:>7} syncs/s");
        format!("{pending:>4} pending  {log:<12}{rates}  p50 {:.0} us, p99 {:.0} us", times.p50_us, times.p99_us)
    }

    fn value(&self, log: &str, pending: u32) -> Value {
        let Summary { p50_us, p90_us, p99_us, max_us, .. } = self.times;
        json!({
            "log": log, "pending": pending, "appends_per_s": self.appends_per_s.round(),
            "syncs_per_s": self.syncs_per_s.map(f64::round),
            "p50_us": p50_us, "p90_us": p90_us, "p99_us": p99_us, "max_us": max_us,
        })
    }
}
